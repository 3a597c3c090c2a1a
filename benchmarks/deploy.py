"""An exported classifier beside the PyTorch one: cost, accuracy after calibrating what is deployed, size, service.

    python benchmarks/deploy.py cost [--shape MiniLM-L6] [--size 32x128] [--rounds 5]
    python benchmarks/deploy.py quality --model DIR --task sst2 --data DIR [--test test-original]
    python benchmarks/deploy.py installed --export EXPORT --environment VENV

`cost` draws random weights of each shape, exports them in fp32 and int8, and times the default method end to end over
the Hugging Face model in eval mode with SDPA on the same texts; all take turns in one process on two threads. `quality`
calibrates a checkpoint, exports it, calibrates the int8 one on the same rows, and compares both with PyTorch on test
rows by paired bootstrap. VENV is an environment with `pip install '.[onnx]'`: its size and the time to the first answer
of a new process are printed. EXPORT is a directory that `uatlite export` wrote; `python benchmarks/serve.py EXPORT`
measures it as a service. Prints Markdown tables. Run it on a quiet machine.
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")

import numpy as np
import torch
from transformers import AutoTokenizer

from engine import SHAPES, model_of
from harness import Run, change, head, line, parser_of, ratios, seconds
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.export import export
from uatlite.methods.distilled import DISTILLED, FEATURES, ReadOut
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.model.load import embedded_backbone
from uatlite.model.tokens import Batch, tokenize
from uatlite.text.tasks import load

SIZES = ("32x128", "1x32")
"""Texts, and tokens of each."""
ROWS = 120
"""Calibration rows of a model with random weights."""
TORCH, FP32, INT8 = "PyTorch", "ONNX Runtime, fp32", "ONNX Runtime, int8"
FIRST = (
    "import sys; from uatlite import UncertaintyClassifier as C; C.from_pretrained(sys.argv[1]).predict(['A film.'])"
)
Classifiers = dict[str, UncertaintyClassifier]


def exported(clf: UncertaintyClassifier, directory: Path, texts: list[str] | None = None) -> Classifiers:
    """The classifier in PyTorch, and exported in both precisions; with texts the int8 one is not calibrated yet."""
    kinds: Classifiers = {TORCH: clf}
    for kind, int8 in ((FP32, False), (INT8, True)):
        print(f"{kind}: {export(clf, directory / str(int8), int8=int8, texts=texts).describe()}")
        kinds[kind] = UncertaintyClassifier.from_pretrained(directory / str(int8), calibrated=not int8 or texts is None)
    return kinds


def texts_of(clf: UncertaintyClassifier, count: int, tokens: int) -> list[str]:
    """Texts of exactly so many tokens, special ones included: words that are one token each."""
    words = [word for word in clf.tokenizer.get_vocab() if word.isalpha() and len(word) > 2]  # type: ignore[union-attr]
    draws = np.random.default_rng(0)
    return [" ".join(draws.choice(sorted(words), tokens - 2)) for _ in range(count)]


def default_of(shape: str) -> UncertaintyClassifier:
    """Random weights with the default method: a read-out of zeros, which costs what any other does."""
    tokenizer = AutoTokenizer.from_pretrained(embedded_backbone())
    clf = UncertaintyClassifier(model_of(shape), tokenizer, BASE)
    texts = texts_of(clf, ROWS, 16)
    labels = [clf.class_names[row % 2] for row in range(ROWS)]
    features = FEATURES["one"].of(clf.runtime.run(BASE, batch_of(clf, texts[:2], 16))).shape[1]
    method = replace(DISTILLED, read_out=ReadOut.empty("one", ROWS, features, quality=1.0))
    clf = UncertaintyClassifier(clf.model, tokenizer, method, max_length=512)
    return clf.calibrate(texts, labels, review_share=0.2)


def batch_of(clf: UncertaintyClassifier, texts: list[str], tokens: int) -> Batch:
    rows = tuple(range(len(texts)))
    return Batch(rows, tokenize(clf.tokenizer, texts, tokens).padded(rows))


def cost(options: argparse.Namespace) -> None:
    columns: dict[str, dict[str, float]] = {}
    for shape in options.shape or SHAPES:
        with tempfile.TemporaryDirectory() as made:
            classifiers = exported(default_of(shape), Path(made) / "default")
            for size in options.size or SIZES:
                columns[f"{shape}, {size.replace('x', '×')}"] = cost_column(classifiers, size, options.rounds)
                print(f"<!-- {shape}, {size}: done -->", flush=True)
    head("time over a Hugging Face forward", *columns)
    for name in next(iter(columns.values())):
        line(name, *(f"{column[name]:.2f}" for column in columns.values()))


def cost_column(classifiers: Classifiers, size: str, rounds: int) -> dict[str, float]:
    count, tokens = map(int, size.split("x"))
    checkpoint = classifiers[TORCH]
    texts = texts_of(checkpoint, count, tokens)
    assert batch_of(checkpoint, texts, tokens).arrays["input_ids"].shape == (count, tokens)

    def plain() -> None:
        """The model as transformers runs it, in one batch."""
        with torch.inference_mode():
            checkpoint.model(**batch_of(checkpoint, texts, tokens).inputs)  # type: ignore[operator]

    runs: dict[str, Run] = {
        f"the default method, end to end, {name}": partial(clf.predictor().predict, texts)
        for name, clf in classifiers.items()
    }
    return ratios(runs, plain, rounds if count > 1 else 4 * rounds)


def quality(options: argparse.Namespace) -> None:
    rows = load(options.task, "calibration", options.data, limit=options.rows)
    test = load(options.task, options.test, options.data, limit=options.test_rows)
    texts, gold = [one.text for one in rows.examples], [rows.labels[one.label] for one in rows.examples]  # type: ignore[index]
    clf = UncertaintyClassifier.from_pretrained(options.model, options.method or None, calibrated=False)
    if set(clf.class_names) != set(rows.labels):
        clf.rename_classes(rows.labels)
    clf.calibrate(texts, gold)
    with tempfile.TemporaryDirectory() as made:
        kinds = exported(clf, Path(made), texts)
        kinds[INT8].calibrate(texts, gold)
        print(f"\n{Path(options.model).name}, `{clf.method.name}`, {options.task}: {len(gold)} calibration rows\n")
        columns = {name: column for column, name in enumerate(clf.class_names)}
        labels = np.array([columns[test.labels[one.label]] for one in test.examples])  # type: ignore[index]
        compare({name: one.predict_proba([row.text for row in test.examples]) for name, one in kinds.items()}, labels)


def compare(found: dict[str, np.ndarray], labels: np.ndarray) -> None:
    estimates = {name: metric_estimates(Rows.of(p, labels), ["accuracy", "nll"]) for name, p in found.items()}
    head(f"{len(labels):,} test rows", "accuracy", "NLL", "accuracy less PyTorch's", "NLL less PyTorch's")
    for name, ours in estimates.items():
        gaps = intervals(ours - estimates[TORCH]).values()
        cells = ["" if name == TORCH else change(gap) for gap in gaps]
        line(name, *(f"{point:.4f}" for point in ours.points().values()), *cells)


def installed(options: argparse.Namespace) -> None:
    packages = next(options.environment.glob("lib/python3*/site-packages"))
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    command = [str(options.environment / "bin" / "python"), "-c", FIRST, str(options.export)]
    start = partial(subprocess.run, command, check=True, env={"PATH": os.environ["PATH"]})
    taken = [seconds(start) for _ in range(options.rounds)]
    print(
        f"Installed: {size / 2**20:.0f} MiB, pip included. First answer of a new process: "
        f"{np.median(taken):.1f} s (from {min(taken):.1f} to {max(taken):.1f})."
    )


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {"cost": cost, "quality": quality, "installed": installed}


def main() -> None:
    parser = parser_of(__doc__, model="", task="", test="test", method="", rows=None, test_rows=None, rounds=5)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--shape", action="append", choices=tuple(SHAPES), help="of cost; may be repeated")
    parser.add_argument("--size", action="append", help="of cost: texts x tokens, as in 32x128; may be repeated")
    for name in ("--data", "--export", "--environment"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    needed = {"cost": (), "quality": ("model", "task"), "installed": ("export", "environment")}[given.part]
    if missing := [f"--{name}" for name in needed if not getattr(given, name)]:
        parser.error(f"{given.part} needs {', '.join(missing)}")
    print(f"torch {torch.__version__.split('+')[0]}, {torch.get_num_threads()} threads")
    PARTS[given.part](given)


if __name__ == "__main__":
    main()
