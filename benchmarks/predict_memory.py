"""Peak memory of `uatlite predict` on files of growing length: it must not grow with the rows.

    python benchmarks/predict_memory.py            # 10 thousand and 100 thousand rows
    python benchmarks/predict_memory.py 10000 1000000
    python benchmarks/predict_memory.py --method uat

The model is a BERT of two layers with random weights, so that the time goes into reading, tokenizing and writing,
which is what is measured. Each size runs in a process of its own; peak memory is what the kernel says of it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WORDS = 200
SIZES = (10_000, 100_000)


def make_classifier(directory: Path, method: str = "base") -> None:
    """A calibrated tiny classifier, so that the rule, the distances and the shift check are measured too."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    from uatlite.classifier.classifier import UncertaintyClassifier

    torch.manual_seed(0)
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = BertTokenizer(vocab={w: i for i, w in enumerate([*marks, *(f"a{n}" for n in range(WORDS))])})
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    classifier = UncertaintyClassifier(BertForSequenceClassification(config).eval(), tokenizer, method)
    texts = made_texts(300)
    labels = classifier.predict(texts).predicted
    labels[::5] = 1 - labels[::5]
    classifier.calibrate(texts, labels, target_risk=0.3).save_pretrained(directory)


def made_texts(rows: int) -> list[str]:
    generator = np.random.default_rng(rows)
    return [
        " ".join(f"a{word}" for word in generator.integers(0, WORDS, size=size))
        for size in generator.integers(4, 16, size=rows)
    ]


def make_rows(path: Path, rows: int) -> None:
    with open(path, "w") as file:
        for start in range(0, rows, 10_000):
            for place, text in enumerate(made_texts(min(10_000, rows - start)), start):
                file.write(json.dumps({"id": str(place), "text": text}) + "\n")


def measure(model: str, source: str, output: str) -> None:
    """Score one file in this process and print peak memory, in MB, before and after, and the seconds."""
    import torch

    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.scoring.job import Job
    from uatlite.scoring.run import score_file

    torch.set_num_threads(1)
    classifier = UncertaintyClassifier.from_pretrained(model)
    classifier.predict(made_texts(512))  # all that is loaded on first use is loaded
    before = peak()
    begun = time.perf_counter()
    summary = score_file(classifier, Job(source, Path(output)))
    seconds = time.perf_counter() - begun
    print(json.dumps({"rows": summary.rows, "before": before, "after": peak(), "seconds": seconds}))


def peak() -> float:
    """The most memory that this process has had, in MB. (Linux; getrusage would count the parent's.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(sizes: list[int], method: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        make_classifier(Path(place) / "model", method)
        print(f"{'rows':>10} {'loaded, MB':>11} {'peak, MB':>9} {'rows/s':>7}")
        for size in sizes:
            source = Path(place) / f"{size}.jsonl"
            make_rows(source, size)
            command = [
                sys.executable,
                __file__,
                "--measure",
                f"{place}/model",
                str(source),
                f"{place}/{size}.out.jsonl",
            ]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            got = json.loads(answer)
            speed = got["rows"] / got["seconds"]
            print(f"{got['rows']:>10,} {got['before']:>11.0f} {got['after']:>9.0f} {speed:>7.0f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("rows", nargs="*", type=int, default=SIZES, help="rows of each file")
        parser.add_argument("--method", default="uat:samples=2", help="as `uatlite methods` spells it")
        arguments = parser.parse_args()
        main(arguments.rows, arguments.method)
