"""What a calibrated `predict` costs, end to end, beside the plain Hugging Face model on the same texts.

    python benchmarks/predict_cost.py --model DIR --data DIR [--rows 600] [--rounds 3] [--calibration 872]

One process, methods taking turns; the plain model runs in batches by length, with its tokenizer. Prints the table of
docs/start/which-method.md: medians over rounds, for all texts in one call and for one text at a time; then what fitting
the default costs over calibrating `analytic`. Run it on a quiet machine.
"""

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from harness import head, line, parser_of, seconds
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.tokens import tokenize
from uatlite.text.tasks import load

METHODS = {
    "base": ("1", "no"),
    "distilled": ("1", "yes"),
    "analytic": ("1 forward, 1 backward", "yes"),
    "fast": ("5", "yes"),
    "uat": ("10", "yes"),
}
"""The methods by cost: their passes, and whether they know mutual information and variance."""
PLAIN = "the plain model, by Hugging Face"
BATCH = 32
SINGLE = 60
"""Texts that are also predicted one at a time."""


def plain(checkpoint: Checkpoint, texts: list[str]) -> None:
    """The model as transformers runs it, in batches by length."""
    tokens = tokenize(checkpoint.tokenizer, texts, 128)
    order = tokens.by_length()
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            checkpoint.model(**tokens.pad(order[start : start + BATCH]))


def one_at_a_time(predict: Callable[[list[str]], object], texts: list[str]) -> float:
    """Median milliseconds for a call with one text."""
    return 1000 * statistics.median(seconds(lambda text=text: predict([text])) for text in texts)  # type: ignore[misc]


def main() -> None:
    parser = parser_of(__doc__, rows=600, rounds=3, calibration=None)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    checkpoint = load_checkpoint(options.model)
    rows = load("sst2", "calibration", options.data, limit=options.calibration)
    labels = [rows.labels[label] for label in rows.gold if label is not None]
    texts = list(load("sst2", "test-original", options.data, limit=options.rows).texts)
    classifiers, fitting = {}, {}

    def calibrate(name: str, target: float | None) -> UncertaintyClassifier:
        classifier = UncertaintyClassifier(checkpoint.model, checkpoint.tokenizer, name, max_length=128)
        taken = seconds(lambda: classifier.calibrate(rows.texts, labels, target_risk=target))
        fitting[name] = min(taken, fitting.get(name, taken))
        return classifier

    for name in METHODS:
        classifiers[name] = calibrate(name, 0.05)
    for name in ("distilled", "analytic", "distilled", "analytic"):
        calibrate(name, None)
    checkpoint.model.eval()
    predicts: dict[str, Callable[[list[str]], object]] = {
        PLAIN: partial(plain, checkpoint),
        **{name: one.predict for name, one in classifiers.items()},
    }
    for predict in predicts.values():  # once, so that masks and buffers are there
        predict(texts)
    batches, singles = np.zeros((2, options.rounds, len(predicts)))
    for number in range(options.rounds):
        batches[number] = [seconds(partial(predict, texts)) for predict in predicts.values()]
        singles[number] = [one_at_a_time(predict, texts[:SINGLE]) for predict in predicts.values()]
    columns = ["in batches, cost", "one text, ms", "one text, cost", "mutual information and variance"]
    head("method", "passes", *columns, left=2)
    for i, name in enumerate(predicts):
        passes, known = METHODS.get(name, ("1", "no"))
        cost, alone = (times_plain(taken[:, i] / taken[:, 0]) for taken in (batches, singles))
        line(name if name == PLAIN else f"`{name}`", passes, cost, f"{np.median(singles[:, i]):.1f}", alone, known)
    print(f"\nFitting the default over calibrating `analytic`: {fitting['distilled'] / fitting['analytic']:.2f}")


def times_plain(ratios: np.ndarray) -> str:
    """The cost over the plain model of the same round: the median, and the range over rounds."""
    if (ratios == 1).all():
        return "1"
    return f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
