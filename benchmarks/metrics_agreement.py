"""ECE, NLL, Brier and AURC of published softmax outputs, against four independent libraries.

    python benchmarks/metrics_agreement.py --data dev_model_probs.jsonl.gz

The file has one row for each text: {"label": name, "probs": {model: [entailment, neutral, contradiction]}}, the ANLI
development set with the outputs of eight models, rounded to five decimals. The environment is that of
benchmarks/requirements-metrics.txt. Prints Markdown; fails where a difference exceeds the tolerance.

Four differences are bridged, and nothing else:
- torchmetrics and torch-uncertainty (whose ECE is torchmetrics') put a confidence of exactly 1 in a bin of its own:
  they get it 1e-6 lower. They also sum a bin row by row in float32, which alone is 6e-6 off on these data: their
  stored confidences are set to float64 before the sums.
- torch-uncertainty's NLL is infinite for a probability of 0: it gets 2.2e-16, which is what scikit-learn makes of it.
- torch-uncertainty takes tied rows as they come and integrates by trapezoids: it is averaged over orders in which
  every row of a tie stands at every place of it once, and the two half end terms are added.
"""

import argparse
import gzip
import importlib
import importlib.util
import json
import sys
import types
import warnings
from pathlib import Path

import netcal.metrics
import numpy as np
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.classification import MulticlassCalibrationError

from uatlite.metrics.accuracy import accuracy, brier, nll
from uatlite.metrics.calibration import ece
from uatlite.metrics.selective import aurc

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


def below_one(probabilities):
    """The same rows with a confidence of exactly 1 lowered by a hair."""
    return np.where(probabilities == 1, 1 - 1e-6, probabilities)


def updated(metric, probabilities, labels):
    """The metric after one update."""
    metric.update(torch.tensor(probabilities), torch.tensor(labels))
    return metric


def torchmetrics_ece(probabilities, labels):
    metric = updated(MulticlassCalibrationError(len(LABELS), n_bins=15), below_one(probabilities), labels)
    return metric.set_dtype(torch.float64).compute()


def torch_uncertainty_ece(probabilities, labels):
    metric = tu.CalibrationError(task="multiclass", num_classes=len(LABELS), num_bins=15)
    return updated(metric, below_one(probabilities), labels).set_dtype(torch.float64).compute()


def torch_uncertainty_nll(probabilities, labels):
    return updated(tu.CategoricalNLL(), np.maximum(probabilities, 2.0**-52), labels).compute()


def torch_uncertainty_brier(probabilities, labels):
    return updated(tu.BrierScore(num_classes=len(LABELS)), probabilities, labels).compute()


def torch_uncertainty_aurc(probabilities, labels):
    """Their AURC with ties averaged: turning one tie at a time through all its places, the others fixed."""
    confidence, wrong = probabilities.max(axis=1), probabilities.argmax(axis=1) != labels
    order = np.argsort(-confidence, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(confidence[order]) != 0))
    base = ordered_aurc(wrong[order])
    total = base
    for tie in np.split(np.arange(len(order)), starts[1:]):
        if 0 < wrong[order[tie]].sum() < len(tie):
            turned = []
            for shift in range(len(tie)):
                ranked = wrong[order].copy()
                ranked[tie] = np.roll(ranked[tie], shift)
                turned.append(ordered_aurc(ranked))
            total += np.mean(turned) - base
    return total


def ordered_aurc(wrong):
    """torch-uncertainty's AURC of errors in a given order, as the mean over all coverages."""
    n = len(wrong)
    confidence = np.linspace(0.9, 0.6, n)
    metric = updated(tu.AURC(), np.column_stack([confidence, 1 - confidence]), wrong.astype(int))
    return (float(metric.compute()) * (n - 1) + (wrong[0] + wrong.mean()) / 2) / n


THEIRS = {
    ("ECE", "netcal"): lambda p, y: netcal.metrics.ECE(15).measure(p, y),
    ("ECE", "torchmetrics"): torchmetrics_ece,
    ("ECE", "torch-uncertainty"): torch_uncertainty_ece,
    ("NLL", "scikit-learn"): lambda p, y: log_loss(y, p),
    ("NLL", "torch-uncertainty"): torch_uncertainty_nll,
    ("Brier", "scikit-learn"): lambda p, y: brier_score_loss(y, p, scale_by_half=False),
    ("Brier", "torch-uncertainty"): torch_uncertainty_brier,
    ("AURC", "torch-uncertainty"): torch_uncertainty_aurc,
}


def read(path):
    """Labels (rows,) and each model's probabilities (rows, classes)."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    labels = np.array([LABELS.index(row["label"]) for row in rows])
    return labels, {model: np.array([row["probs"][model] for row in rows]) for model in rows[0]["probs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="JSONL.gz with the published outputs")
    labels, models = read(parser.parse_args().data)

    print(f"| model ({len(labels)} rows) | accuracy | " + " | ".join(OURS) + " |")
    print("|---|" + "---:|" * (1 + len(OURS)))
    for model, probabilities in models.items():
        values = [metric(probabilities, labels) for metric in (accuracy, *OURS.values())]
        print(f"| {model} | " + " | ".join(f"{value:.4f}" for value in values) + " |")

    print("\n| metric | library | largest difference |\n|---|---|---:|")
    worst = 0.0
    for (name, library), theirs in THEIRS.items():
        apart = max(abs(OURS[name](p, labels) - float(theirs(p, labels))) for p in models.values())
        print(f"| {name} | {library} | {apart:.1e} |")
        worst = max(worst, apart)
    print(f"\nThe largest difference is {worst:.1e}; the tolerance is {TOLERANCE:g}.")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    # scikit-learn and torchmetrics remark on five-decimal rows and on buffers; neither changes a number.
    warnings.simplefilter("ignore")
    tu = torch_uncertainty_metrics()
    sys.exit(main())
