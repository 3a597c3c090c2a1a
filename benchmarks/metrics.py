"""Our metrics and their intervals: whether other libraries agree, and whether intervals hold the truth.

    python benchmarks/metrics.py agreement --data dev_model_probs.jsonl.gz
    python benchmarks/metrics.py coverage [--sets 2000] [--rows 1000] [--resamples 1000]

`agreement`: ECE, NLL, Brier and AURC of published softmax outputs, against four independent libraries. The file has one
row for each text: {"label": name, "probs": {model: [entailment, neutral, contradiction]}}, the ANLI development set
with the outputs of eight models, rounded to five decimals. The environment is that of
benchmarks/requirements-metrics.txt. Fails where a difference exceeds the tolerance. Four differences are bridged:
- torchmetrics and torch-uncertainty (whose ECE is torchmetrics') put a confidence of exactly 1 in a bin of its own:
  they get it 1e-6 lower. They also sum a bin row by row in float32, which alone is 6e-6 off on these data: their
  stored confidences are set to float64 before the sums.
- torch-uncertainty's NLL is infinite for a probability of 0: it gets 2.2e-16, which is what scikit-learn makes of it.
- torch-uncertainty takes tied rows as they come and integrates by trapezoids: it is averaged over orders in which
  every row of a tie stands at every place of it once, and the two half end terms are added.

`coverage`: how often 95 % bootstrap intervals hold the true value of a simulated classifier. A classifier of three
classes gives softmax(z), z normal with deviation 2; the label is drawn from softmax(z / T). At T = 1 it is perfectly
calibrated, at T = 2 overconfident. The true value of each metric is that of 4 million rows, and for the calibration
errors of their label *probabilities* instead of drawn labels, so that it has no upward bias. A share of 95 % of 500
sets has a standard error of 1 point; of 2,000 sets, half a point. The share of the first 500 sets stands beside.
"""

import gzip
import importlib
import importlib.util
import json
import sys
import types
import warnings
from argparse import Namespace
from pathlib import Path

import numpy as np

from harness import head, line, parser_of
from uatlite.metrics.accuracy import accuracy, brier, nll
from uatlite.metrics.calibration import ece
from uatlite.metrics.intervals import METRICS, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.metrics.selective import aurc
from uatlite.predictive import softmax

# ── agreement ──────────────────────────────────────────────────────────────────────────────────────────────────────

LABELS = ["entailment", "neutral", "contradiction"]
TOLERANCE = 1e-6
OURS = {"ECE": ece, "NLL": nll, "Brier": brier, "AURC": aurc}


def torch_uncertainty_metrics():
    """torch-uncertainty's metrics without the package's __init__, which needs torchvision for its plots."""
    root = Path(importlib.util.find_spec("torch_uncertainty").origin).parent
    for name, path in (("torch_uncertainty", root), ("torch_uncertainty.metrics", root / "metrics")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    return importlib.import_module("torch_uncertainty.metrics.classification")


def theirs():
    """(Metric, library) -> that library's metric of probabilities and labels."""
    import netcal.metrics
    import torch
    from sklearn.metrics import brier_score_loss, log_loss
    from torchmetrics.classification import MulticlassCalibrationError

    tu = torch_uncertainty_metrics()

    def updated(metric, probabilities, labels):
        metric.update(torch.tensor(probabilities), torch.tensor(labels))
        return metric

    def binned(metric, probabilities, labels):
        """An ECE; a confidence of exactly 1 is lowered by a hair."""
        below_one = np.where(probabilities == 1, 1 - 1e-6, probabilities)
        return updated(metric, below_one, labels).set_dtype(torch.float64).compute()

    def ordered_aurc(wrong):
        """torch-uncertainty's AURC of errors in a given order, as the mean over all coverages."""
        n = len(wrong)
        confidence = np.linspace(0.9, 0.6, n)
        metric = updated(tu.AURC(), np.column_stack([confidence, 1 - confidence]), wrong.astype(int))
        return (float(metric.compute()) * (n - 1) + (wrong[0] + wrong.mean()) / 2) / n

    def tied_aurc(probabilities, labels):
        """Their AURC with ties averaged: turning one tie at a time through all its places, the others fixed."""
        confidence, wrong = probabilities.max(axis=1), probabilities.argmax(axis=1) != labels
        order = np.argsort(-confidence, kind="stable")
        starts = np.flatnonzero(np.append(True, np.diff(confidence[order]) != 0))
        total = base = ordered_aurc(wrong[order])
        for tie in np.split(np.arange(len(order)), starts[1:]):
            if 0 < wrong[order[tie]].sum() < len(tie):
                turned = []
                for shift in range(len(tie)):
                    ranked = wrong[order].copy()
                    ranked[tie] = np.roll(ranked[tie], shift)
                    turned.append(ordered_aurc(ranked))
                total += np.mean(turned) - base
        return total

    size = {"num_classes": len(LABELS)}
    return {
        ("ECE", "netcal"): lambda p, y: netcal.metrics.ECE(15).measure(p, y),
        ("ECE", "torchmetrics"): lambda p, y: binned(MulticlassCalibrationError(**size, n_bins=15), p, y),
        ("ECE", "torch-uncertainty"): lambda p, y: binned(
            tu.CalibrationError(task="multiclass", **size, num_bins=15), p, y
        ),
        ("NLL", "scikit-learn"): lambda p, y: log_loss(y, p),
        ("NLL", "torch-uncertainty"): lambda p, y: updated(tu.CategoricalNLL(), np.maximum(p, 2.0**-52), y).compute(),
        ("Brier", "scikit-learn"): lambda p, y: brier_score_loss(y, p, scale_by_half=False),
        ("Brier", "torch-uncertainty"): lambda p, y: updated(tu.BrierScore(**size), p, y).compute(),
        ("AURC", "torch-uncertainty"): tied_aurc,
    }


def agreement(options: Namespace) -> None:
    # scikit-learn and torchmetrics remark on five-decimal rows and on buffers; neither changes a number.
    warnings.simplefilter("ignore")
    with gzip.open(options.data, "rt", encoding="utf-8") as lines:
        rows = [json.loads(row) for row in lines]
    labels = np.array([LABELS.index(row["label"]) for row in rows])
    models = {model: np.array([row["probs"][model] for row in rows]) for model in rows[0]["probs"]}
    head(f"model ({len(labels)} rows)", "accuracy", *OURS)
    for model, probabilities in models.items():
        line(model, *(f"{metric(probabilities, labels):.4f}" for metric in (accuracy, *OURS.values())))
    head("metric", "library", "largest difference", left=2)
    worst = 0.0
    for (name, library), metric in theirs().items():
        apart = max(abs(OURS[name](p, labels) - float(metric(p, labels))) for p in models.values())
        line(name, library, f"{apart:.1e}")
        worst = max(worst, apart)
    print(f"\nThe largest difference is {worst:.1e}; the tolerance is {TOLERANCE:g}.")
    sys.exit(int(worst > TOLERANCE))


# ── coverage ───────────────────────────────────────────────────────────────────────────────────────────────────────

SETTINGS = {"well calibrated": 1.0, "slightly overconfident": 1.2, "overconfident": 2.0}
NAMES = ["accuracy", "nll", "brier", "aurc", "ece", "debiased_ece"]
BLOCKS, BLOCK = 16, 250_000


def simulate(rows, temperature, generator):
    """Probabilities given, probabilities true (rows, classes), and labels drawn from the true ones (rows,)."""
    logits = 2 * generator.normal(size=(rows, len(LABELS)))
    given, true = softmax(logits), softmax(logits / temperature)
    labels = (true.cumsum(axis=1) < generator.random((rows, 1))).sum(axis=1)
    return given, true, np.minimum(labels, len(LABELS) - 1)


def true_values(temperature):
    """Each metric in the population."""
    generator = np.random.default_rng(2026)
    values = {name: [] for name in NAMES[:4]}
    gaps = np.zeros(15)
    for _ in range(BLOCKS):
        given, true, labels = simulate(BLOCK, temperature, generator)
        for name, found in values.items():
            found.append(METRICS[name](given, labels))
        confidence = given.max(axis=1)
        gap = confidence - np.take_along_axis(true, given.argmax(axis=1)[:, None], axis=1)[:, 0]
        gaps += np.bincount(np.ceil(confidence * 15).astype(int) - 1, weights=gap, minlength=15)
    calibration = float(np.abs(gaps).sum() / (BLOCKS * BLOCK))
    return {name: float(np.mean(found)) for name, found in values.items()} | dict.fromkeys(NAMES[4:], calibration)


def coverage(options: Namespace) -> None:
    print(f"{options.sets} sets of {options.rows} rows, {options.resamples} resamples each.")
    head("setting", "metric", "true value", "mean estimate", "coverage", "of the first 500", left=2)
    for setting, temperature in SETTINGS.items():
        truth = true_values(temperature)
        points, hits = {name: [] for name in NAMES}, {name: [] for name in NAMES}
        for seed in range(options.sets):
            # A stream of its own: from the same one, the resamples would depend on the rows.
            rng = np.random.default_rng([round(10 * temperature), seed])
            given, _, labels = simulate(options.rows, temperature, rng)
            estimates = metric_estimates(Rows.of(given, labels), NAMES)
            for name, interval in intervals(estimates, Resampling(options.resamples, seed=seed)).items():
                points[name].append(interval.point)
                # The true error of a calibrated classifier is 0 up to rounding, and so is the end of its interval.
                hits[name].append(not interval.excludes(truth[name] if truth[name] > 1e-9 else 0.0))
        for name in NAMES:
            shares = [f"{100 * np.mean(held):.1f} %" for held in (hits[name], hits[name][:500])]
            line(setting, name, f"{truth[name]:.4f}", f"{np.mean(points[name]):.4f}", *shares)


PARTS = {"agreement": agreement, "coverage": coverage}


def main() -> None:
    parser = parser_of(__doc__, data="", sets=2000, rows=1000, resamples=1000)
    parser.add_argument("part", choices=PARTS)
    options = parser.parse_args()
    PARTS[options.part](options)


if __name__ == "__main__":
    main()
