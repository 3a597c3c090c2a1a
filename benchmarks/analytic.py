"""UAT-Lite without sampling against UAT-Lite with ten passes, on models fine-tuned with several seeds.

    python benchmarks/analytic.py --models DIR DIR DIR --data FILE [FILE ...] [--rows 3000]

The models are of one architecture and task, one for each seed. The rows of all files (JSONL, also .gz, with `label`
and `text`, or `text_a` and `text_b`) are shuffled by a fixed seed; one half fits the calibrators, the other is the
test set. Scores are means over the models; the interval of each difference from the first contender resamples test
rows, the same for all, and takes the mean over models in each resample.
"""

import argparse
import gzip
import json
import random
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from uatlite.lab.evaluate.compare import Resampling, compare
from uatlite.lab.evaluate.plan import parse_contenders
from uatlite.metrics.bootstrap import METRICS, Estimate, metric_estimates
from uatlite.metrics.ranking import Rows
from uatlite.predictive import margin_variance
from uatlite.trust.auto import make_calibrator

CONTENDERS = "uat+ts,analytic+its,analytic+ts,uat+its,base+ts"
SCORES = ("accuracy", "nll", "ece", "aurc")
BATCH = 64
Row = dict[str, str]
Logits = tuple[np.ndarray, np.ndarray | None]


def read_rows(paths: list[Path], count: int | None) -> list[Row]:
    """The rows of all files, shuffled."""
    rows = []
    for path in paths:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
        rows += [json.loads(line) for line in text.splitlines()]
    random.Random(0).shuffle(rows)
    return rows[:count]


def run(directory: str, rows: list[Row], methods: dict[str, object], seed: int) -> dict[str, Logits]:
    """Mean logits (rows, classes) and the margin's variance (rows,) of every method."""
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    found: dict[str, list[Logits]] = {name: [] for name in methods}
    order = sorted(
        range(len(rows)), key=lambda i: sum(len(rows[i].get(key, "")) for key in ("text", "text_a", "text_b"))
    )
    for start in range(0, len(rows), BATCH):
        some = [rows[i] for i in order[start : start + BATCH]]
        columns = [[row[key] for row in some] for key in ("text", "text_a", "text_b") if key in some[0]]
        encoded = tokenizer(*columns, padding=True, truncation=True, max_length=128, return_tensors="pt")
        for name, method in methods.items():
            passes = method.seeded(seed).run(model, encoded)
            logits = passes.logits.double().numpy()
            variance = None if passes.margin_variance is None else passes.margin_variance.double().numpy()
            if variance is None and len(logits) > 1:
                variance = margin_variance(logits)
            found[name].append((logits.mean(axis=0), variance))
    back = np.argsort(order)
    return {name: tuple(_joined(parts, back)) for name, parts in found.items()}


def _joined(parts: list[Logits], back: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    logits = np.concatenate([part[0] for part in parts])[back]
    variances = [part[1] for part in parts]
    return logits, None if variances[0] is None else np.concatenate(variances)[back]


def gold(directory: str, rows: list[Row]) -> np.ndarray:
    """The model's column of each row's label."""
    config = AutoModelForSequenceClassification.from_pretrained(directory).config
    return np.array([config.label2id[row["label"]] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--data", nargs="+", type=Path, required=True)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--contenders", default=CONTENDERS)
    chosen = parser.parse_args()
    rows = read_rows(chosen.data, chosen.rows)
    half = len(rows) // 2
    contenders = parse_contenders(chosen.contenders)
    methods = {contender.method.name: contender.method for contender in contenders}
    estimates: dict[str, list[dict[str, Estimate]]] = {contender.name: [] for contender in contenders}
    for seed, directory in enumerate(chosen.models):
        labels = gold(directory, rows)
        found = run(directory, rows, methods, seed)
        for contender in contenders:
            logits, variance = found[contender.method.name]
            parts = [None if variance is None else variance[part] for part in (slice(half), slice(half, None))]
            calibrator = make_calibrator(contender.calibrator).fit(logits[:half], labels[:half], parts[0])
            scored = Rows.of(calibrator.probabilities(logits[half:], parts[1]), labels[half:])
            estimates[contender.name].append(metric_estimates(scored, SCORES))
            print(f"  {directory} {contender.name}: {calibrator.to_dict()}", flush=True)
    better = {score: METRICS[score].better for score in SCORES}
    scores = compare(estimates, better, (len(rows) - half,), Resampling(2000))
    print(f"\n{len(chosen.models)} models, {half} rows to calibrate, {len(rows) - half} to test\n")
    print("| contender | " + " | ".join(SCORES) + " |\n" + "|---" * (len(SCORES) + 1) + "|")
    for name, of in scores.items():
        cells = []
        for score in SCORES:
            gap = of[score].differences.get(next(iter(scores)))
            interval = "" if gap is None else f" ({gap.point:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}])"
            cells.append(f"{of[score].mean:.4f}{interval}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
