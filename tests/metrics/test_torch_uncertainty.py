"""Agreement with torch-uncertainty 0.13, and where its definitions differ from ours."""

import numpy as np
import pytest
import torch

from uatlite import metrics
from uatlite.predictive import predict


def theirs(metric, probabilities, labels):
    metric.update(torch.tensor(probabilities), torch.tensor(labels))
    return float(metric.compute())


PAIRS = {
    "nll": lambda tu: tu.CategoricalNLL(),
    "brier": lambda tu: tu.BrierScore(num_classes=4),
    "ece": lambda tu: tu.CalibrationError(task="multiclass", num_classes=4, num_bins=15),
    "adaptive_ece": lambda tu: tu.AdaptiveCalibrationError("multiclass", num_classes=4, num_bins=15),
    "classwise_ece": lambda tu: tu.ClasswiseCalibrationError(num_classes=4, num_bins=15),
}
"""Their sums are kept in float32. Their bins are open where ours are closed: these rows are off the edges."""


@pytest.mark.parametrize("name", PAIRS)
def test_proper_scores_and_calibration_errors(torch_uncertainty, smooth_case, name):
    assert len(smooth_case[1]) % 15 == 0  # their adaptive bins hold whole rows
    expected = theirs(PAIRS[name](torch_uncertainty), *smooth_case)
    assert getattr(metrics, name)(*smooth_case) == pytest.approx(expected, abs=1e-6)


def test_risk_coverage_without_ties(torch_uncertainty, smooth_case):
    probabilities, labels = smooth_case
    metric, n = torch_uncertainty.AURC(), len(labels)
    value, risks = theirs(metric, *smooth_case), metric.partial_compute().numpy()
    assert metrics.aurc(*smooth_case) == pytest.approx(risks.mean(), abs=1e-9)
    # Their number is the trapezoid rule over the same risks, from coverage 1/n on.
    assert (value * (n - 1) + (risks[0] + risks[-1]) / 2) / n == pytest.approx(metrics.aurc(*smooth_case), abs=1e-6)
    top = probabilities.max(axis=1).argmax()
    first = float(probabilities[top].argmax() != labels[top]) / 2 / n**2  # from coverage 0 to 1/n
    value = theirs(torch_uncertainty.AUGRC(), *smooth_case) * (1 - 1 / n) + first
    assert value == pytest.approx(metrics.augrc(*smooth_case), abs=1e-6)
    for coverage in (0.5, 0.8):
        expected = theirs(torch_uncertainty.RiskAtxCov(coverage), *smooth_case)
        assert metrics.risk_at_coverage(*smooth_case, coverage) == pytest.approx(expected, abs=1e-6)


def test_smooth_ece_up_to_their_grid(torch_uncertainty, smooth_case):
    probabilities, labels = (smooth_case[0].astype(np.float32), smooth_case[1])
    expected = theirs(torch_uncertainty.SmoothCalibrationError("reflected"), probabilities, labels)
    assert metrics.smooth_ece(probabilities, labels) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("decimals", [1, 8], ids=["ties", "no ties"])
def test_fpr95(torch_uncertainty, decimals):
    generator = np.random.default_rng(0)
    positives = (generator.random(300) < 0.4).astype(int)
    scores = np.round(generator.normal(size=300) + positives, decimals)
    expected = theirs(torch_uncertainty.FPR95(pos_label=1), scores, positives)
    assert metrics.fpr95(scores, positives) == pytest.approx(expected, abs=1e-6)


def test_mutual_information(torch_uncertainty):
    logits = np.random.default_rng(0).normal(size=(5, 20, 3)) * 2
    metric = torch_uncertainty.MutualInformation(reduction="none")
    metric.update(torch.softmax(torch.tensor(logits), dim=-1).transpose(0, 1))
    assert predict(logits).mutual_information == pytest.approx(metric.compute().numpy(), abs=1e-6)
