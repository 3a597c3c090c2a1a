"""An exported classifier beside the PyTorch one: time, accuracy after calibrating what is deployed, size, first answer.

    python benchmarks/deploy.py --model DIR --rows FILE --test FILE [--rounds 5] [--environment VENV]

DIR is a classifier that `uatlite calibrate` wrote from the labelled rows of FILE with the default method. It is
exported to fp32 and int8, and the int8 one is calibrated on the same rows. Times are of `predict`, end to end, over the
plain Hugging Face model on the same texts, tokenizer included; all take turns in one process on two threads. VENV is an
environment with `pip install '.[onnx]'`: its size and the time to the first answer of a new process are printed.
Prints Markdown tables. Run it on a quiet machine.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import torch

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.export import export
from uatlite.lab.bench_timing import take_turns
from uatlite.metrics.bootstrap import paired_bootstrap
from uatlite.model.tokens import tokenize
from uatlite.scoring.blocks import read_labelled
from uatlite.text.schema import Layout

SHAPES = ((32, 128), (1, 32))
"""Texts, and tokens of each."""
FIRST = (
    "import sys; from uatlite import UncertaintyClassifier as C; C.from_pretrained(sys.argv[1]).predict(['A film.'])"
)


def texts_of(clf: UncertaintyClassifier, words: list[str], count: int, tokens: int) -> list[str]:
    """Texts of exactly so many tokens, special ones included."""
    found = []
    for number in range(count):
        order = np.random.default_rng(number).permutation(len(words))
        text = " ".join(words[place] for place in order[: 2 * tokens])
        ids = clf.tokenizer(text, truncation=True, max_length=tokens)["input_ids"][1:-1]
        found.append(clf.tokenizer.decode(ids))  # type: ignore[union-attr]
    return found


def plain(clf: UncertaintyClassifier, texts: list[str], tokens: int) -> Callable[[], None]:
    """The model as transformers runs it, in one batch."""

    def run() -> None:
        with torch.inference_mode():
            clf.model(**tokenize(clf.tokenizer, texts, tokens).pad(range(len(texts))))

    return run


def times(kinds: dict[str, UncertaintyClassifier], words: list[str], rounds: int) -> None:
    checkpoint = kinds["PyTorch"]
    header = "".join(f" {count}×{tokens} |" for count, tokens in SHAPES)
    columns: list[dict[str, float]] = []
    for count, tokens in SHAPES:
        texts = texts_of(checkpoint, words, count, tokens)
        runs: dict[str, Callable[[], None]] = {"plain": plain(checkpoint, texts, tokens)}
        for name, clf in kinds.items():
            predictor = clf.predictor()
            runs[name] = lambda predictor=predictor, texts=texts: predictor.predict(texts)  # type: ignore[misc]
        columns.append({name: timed.ratio for name, timed in take_turns(runs, "plain", rounds).items()})
    print(f"| time of `predict` over a Hugging Face forward |{header}\n|---|{'---:|' * len(SHAPES)}")
    for name in kinds:
        print(f"| {name} |" + "".join(f" {column[name]:.2f} |" for column in columns))


def quality(kinds: dict[str, UncertaintyClassifier], texts: list[str], gold: list[int]) -> None:
    labels = np.array(gold)
    found = {name: clf.predict_proba(texts) for name, clf in kinds.items()}
    base = found["PyTorch"]
    print(f"| {len(labels):,} test rows | accuracy | NLL | accuracy less PyTorch's | NLL less PyTorch's |")
    print("|---|---:|---:|---:|---:|")
    for name, probabilities in found.items():
        accuracy = (probabilities.argmax(axis=1) == labels).mean()
        nll = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
        gaps = paired_bootstrap(probabilities, base, labels, metrics=["accuracy", "nll"])
        cells = [f"{gap.point:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]" for gap in gaps.values()]
        print(f"| {name} | {accuracy:.4f} | {nll:.4f} | {' | '.join(cells) if name != 'PyTorch' else '| '} |")


def installed(environment: Path, directory: Path) -> None:
    packages = next(environment.glob("lib/python3*/site-packages"))
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        command = [str(environment / "bin" / "python"), "-c", FIRST, str(directory)]
        subprocess.run(command, check=True, env={"PATH": os.environ["PATH"]})
        seconds.append(time.perf_counter() - begun)
    print(
        f"\nInstalled: {size / 2**20:.0f} MiB, pip included. First answer of a new process: {np.median(seconds):.1f} s."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environment", type=Path)
    arguments = parser.parse_args()
    clf = UncertaintyClassifier.from_pretrained(arguments.model)
    layout = Layout(codes=clf.class_names)
    rows, test = (read_labelled(file, layout, clf.class_names) for file in (arguments.rows, arguments.test))
    words = sorted({word for text in rows.texts for word in str(text).split()})
    with tempfile.TemporaryDirectory() as made:
        fp32, int8, deployed = (Path(made) / name for name in ("fp32", "int8", "deployed"))
        print(export(clf, fp32, texts=rows.texts).describe())
        print(export(clf, int8, int8=True, texts=rows.texts).describe() + "\n")
        again = UncertaintyClassifier.from_pretrained(int8, calibrated=False)
        again.calibrate(rows.texts, rows.labels)
        again.save_pretrained(deployed)

        def kinds() -> dict[str, UncertaintyClassifier]:
            directories = {"PyTorch": arguments.model, "ONNX Runtime, fp32": fp32, "ONNX Runtime, int8": deployed}
            return {name: UncertaintyClassifier.from_pretrained(one) for name, one in directories.items()}

        quality(kinds(), list(map(str, test.texts)), test.labels)
        if arguments.environment is not None:
            installed(arguments.environment, deployed)
        print()
        times(kinds(), words, arguments.rounds)


if __name__ == "__main__":
    main()
