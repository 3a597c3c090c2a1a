"""What a calibrated `predict` costs, end to end, beside the plain Hugging Face model on the same texts.

    python benchmarks/predict_cost.py --model DIR --data DIR [--rows 600] [--rounds 3]

One process, methods taking turns; the plain model runs in batches by length, with its tokenizer. Prints Markdown
tables: medians over rounds for all texts in one call, milliseconds for one text at a time, and what fitting the default
costs over calibrating `analytic`. Run it on a quiet machine.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.text.tasks import load

METHODS = ("distilled", "base", "analytic", "fast", "adaptive", "uat")
BATCH = 32
SINGLE = 60
"""Texts that are also predicted one at a time."""


def plain(model: torch.nn.Module, tokenizer: object, texts: list[str]) -> Callable[[], None]:
    """The model as transformers runs it, in batches by length."""

    def run() -> None:
        tokens = tokenize(tokenizer, texts, 128)  # type: ignore[arg-type]
        order = tokens.by_length()
        with torch.inference_mode():
            for start in range(0, len(texts), BATCH):
                model(**tokens.pad(order[start : start + BATCH]))

    return run


def one_at_a_time(predict: Callable[[list[str]], object], texts: list[str]) -> float:
    """Median milliseconds for a call with one text."""
    return 1000 * statistics.median(seconds(lambda text=text: predict([text])) for text in texts)  # type: ignore[misc]


def seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    checkpoint = load_checkpoint(options.model)
    rows = load("sst2", "calibration", options.data)
    labels = [rows.labels[label] for label in rows.gold if label is not None]
    texts = load("sst2", "test-original", options.data, limit=options.rows).texts
    classifiers, fitting = {}, {}
    for name in METHODS:
        classifier = UncertaintyClassifier(checkpoint.model, checkpoint.tokenizer, name, max_length=128)
        fitting[name] = seconds(lambda: classifier.calibrate(rows.texts, labels, target_risk=0.05))  # noqa: B023
        classifiers[name] = classifier
    for name in ("distilled", "analytic", "distilled", "analytic"):
        classifier = UncertaintyClassifier(checkpoint.model, checkpoint.tokenizer, name, max_length=128)
        fitting[name] = min(fitting[name], seconds(lambda: classifier.calibrate(rows.texts, labels)))  # noqa: B023
    runs: dict[str, Callable[[], object]] = {
        "Hugging Face": plain(checkpoint.model.eval(), checkpoint.tokenizer, list(texts)),
        **{name: (lambda c=one: c.predict(texts)) for name, one in classifiers.items()},  # type: ignore[misc]
    }
    for run in runs.values():
        run()
    timed: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            timed[name].append(seconds(run))
    print(f"| calibrated `predict`, {len(texts)} SST-2 sentences in one call | cost |\n|---|--:|")
    for name in METHODS:
        ratios = [own / base for own, base in zip(timed[name], timed["Hugging Face"], strict=True)]
        print(f"| `{name}` | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")
    print("\n| one sentence at a time | median ms | cost |\n|---|--:|--:|")
    model = checkpoint.model.eval()
    singles: dict[str, Callable[[list[str]], object]] = {
        "Hugging Face": lambda some: plain(model, checkpoint.tokenizer, some)(),
        **{f"`{name}`": one.predict for name, one in classifiers.items()},
    }
    rounds = [
        {name: one_at_a_time(predict, list(texts[:SINGLE])) for name, predict in singles.items()}
        for _ in range(options.rounds)
    ]
    for name in singles:
        own, base = (statistics.median(times[key] for times in rounds) for key in (name, "Hugging Face"))
        print(f"| {name} | {own:.1f} | {own / base:.2f} |")
    print(f"\nFitting the default over calibrating `analytic`: {fitting['distilled'] / fitting['analytic']:.2f}")


if __name__ == "__main__":
    main()
