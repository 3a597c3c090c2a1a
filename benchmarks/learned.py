"""How much of a task an encoder learns here: accuracy by backbone, training rows, text length, epochs and seed.

    python benchmarks/learned.py squad2 --data DIR --models DIR [--backbone minilm --backbone DIR/gte-small]
                                 [--max-length 128 --max-length 256] [--epochs 2] [--seeds 0,1] [--rows 20000]

Rows and recipe are those of `uatlite reproduce --limit 1000 --precision bf16`: the recipe `few-rows` with the changes
given here, at most --rows training rows, 1,000 test rows. The task counts as learned if the plain model is five points
better than one answer for all. A finished model is left as it is, so the command can be stopped and repeated; models
are kept by what they were trained on. Prints a Markdown table; its intervals cover the test rows.
"""

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from harness import head, line, numbers, parser_of_models
from uatlite.classifier.runtime import run_tokens
from uatlite.lab.evaluate.cells import MARGIN
from uatlite.lab.paper.source import FineTunedModels, ReproductionSettings
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.recipe import Recipe, TrainingJob
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Interval, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.model.load import load_checkpoint
from uatlite.model.tokens import longest, tokenize
from uatlite.predictive import predict
from uatlite.values import Dataset

TEST_ROWS = 1000


def accuracy(directory: Path, test: Dataset, max_length: int | None) -> Interval:
    """Of the plain model in a directory, with its interval over rows."""
    checkpoint = load_checkpoint(directory)
    tokens = tokenize(checkpoint.tokenizer, test.texts, longest(checkpoint.model, checkpoint.tokenizer, max_length))
    probabilities = predict(run_tokens(checkpoint.model, BASE, tokens).logits).probabilities
    labels = np.array([example.label for example in test.examples])
    return intervals(metric_estimates(Rows.of(probabilities, labels), ["accuracy"]))["accuracy"]


def place(models: Path, backbone: str, train: Dataset, recipe: Recipe, seed: int) -> Path:
    key = hashlib.sha256(f"{backbone} {train.fingerprint} {recipe}".encode()).hexdigest()[:8]
    return models / f"{Path(backbone).name}-{train.name}-{seed}-{key}"


def main() -> None:
    parser = parser_of_models(__doc__, seeds="0", rows=20_000)
    parser.add_argument("task")
    parser.add_argument("--backbone", action="append", help="minilm, a directory or a hub id; may be repeated")
    parser.add_argument("--max-length", type=int, action="append", help="tokens of a text; may be repeated")
    parser.add_argument("--epochs", type=int, action="append", help="may be repeated")
    given = parser.parse_args()
    settings = ReproductionSettings(
        limit=TEST_ROWS, train_limit=given.rows, data_dir=given.data, changes={"precision": "bf16"}, backbone="minilm"
    )
    source, usual = FineTunedModels(given.models, settings), settings.recipe_of(given.task)
    train, test = source.dataset(f"{given.task}/train"), source.dataset(given.task)
    share = max(Counter(example.label for example in test.examples).values()) / len(test)
    print(f"{source.training_note(given.task)}; {len(test):,} test rows, one answer for all {share:.3f}\n")
    head("task", "backbone", "training rows", "tokens", "epochs", "seed", "accuracy", "learned", left=2)
    for backbone, length, epochs, seed in product(
        given.backbone or ["minilm"],
        given.max_length or [usual.max_length],
        given.epochs or [usual.epochs],
        numbers(given.seeds),
    ):
        recipe = replace(usual, max_length=length, epochs=epochs)
        directory = place(given.models, backbone, train, recipe, seed)
        fine_tune(TrainingJob(backbone, train, recipe=recipe, seed=seed, checkpoint_steps=100), directory, resume=True)
        found = accuracy(directory, test, length)
        learned = "yes" if found.point >= share + MARGIN else "no"
        interval = f"{found.point:.3f} [{found.low:.3f}, {found.high:.3f}]"
        line(given.task, Path(backbone).name, f"{len(train):,}", length, epochs, seed, interval, learned)


if __name__ == "__main__":
    main()
