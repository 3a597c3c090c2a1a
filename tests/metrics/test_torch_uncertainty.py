"""Agreement with torch-uncertainty 0.13, and where its definitions differ from ours."""

import numpy as np
import pytest
import torch

from uatlite import metrics
from uatlite.predictive import predict


def theirs(metric, probabilities, labels) -> float:
    metric.update(torch.tensor(probabilities), torch.tensor(labels))
    return float(metric.compute())


def test_proper_scores(torch_uncertainty, smooth_case) -> None:
    # Their sums are kept in float32.
    assert metrics.nll(*smooth_case) == pytest.approx(
        theirs(torch_uncertainty.CategoricalNLL(), *smooth_case), abs=1e-6
    )
    assert metrics.brier(*smooth_case) == pytest.approx(
        theirs(torch_uncertainty.BrierScore(num_classes=4), *smooth_case), abs=1e-6
    )


def test_aurc_without_ties(torch_uncertainty, smooth_case) -> None:
    metric = torch_uncertainty.AURC()
    value = theirs(metric, *smooth_case)
    risks = metric.partial_compute().numpy()
    assert metrics.aurc(*smooth_case) == pytest.approx(risks.mean(), abs=1e-9)
    # Their number is the trapezoid rule over the same risks, from coverage 1/n on.
    n = len(risks)
    assert (value * (n - 1) + (risks[0] + risks[-1]) / 2) / n == pytest.approx(metrics.aurc(*smooth_case), abs=1e-6)


def test_augrc_without_ties(torch_uncertainty, smooth_case) -> None:
    probabilities, labels = smooth_case
    value, n = theirs(torch_uncertainty.AUGRC(), probabilities, labels), len(labels)
    top = probabilities.max(axis=1).argmax()
    first = float(probabilities[top].argmax() != labels[top]) / 2 / n**2  # from coverage 0 to 1/n
    assert value * (1 - 1 / n) + first == pytest.approx(metrics.augrc(probabilities, labels), abs=1e-6)


def test_risk_at_coverage_without_ties(torch_uncertainty, smooth_case) -> None:
    for coverage in (0.5, 0.8):
        expected = theirs(torch_uncertainty.RiskAtxCov(coverage), *smooth_case)
        assert metrics.risk_at_coverage(*smooth_case, coverage) == pytest.approx(expected, abs=1e-6)


def test_calibration_errors_off_the_edges(torch_uncertainty, smooth_case) -> None:
    probabilities, labels = smooth_case
    assert len(labels) % 15 == 0  # their adaptive bins hold whole rows
    pairs = [
        (metrics.ece, torch_uncertainty.CalibrationError(task="multiclass", num_classes=4, num_bins=15)),
        (metrics.adaptive_ece, torch_uncertainty.AdaptiveCalibrationError("multiclass", num_classes=4, num_bins=15)),
        (metrics.classwise_ece, torch_uncertainty.ClasswiseCalibrationError(num_classes=4, num_bins=15)),
    ]
    for ours, metric in pairs:
        assert ours(probabilities, labels) == pytest.approx(theirs(metric, probabilities, labels), abs=1e-6)


def test_smooth_ece_up_to_their_grid(torch_uncertainty, smooth_case) -> None:
    probabilities, labels = (smooth_case[0].astype(np.float32), smooth_case[1])
    expected = theirs(torch_uncertainty.SmoothCalibrationError("reflected"), probabilities, labels)
    assert metrics.smooth_ece(probabilities, labels) == pytest.approx(expected, rel=0.02)


def test_fpr95_with_and_without_ties(torch_uncertainty) -> None:
    generator = np.random.default_rng(0)
    positives = (generator.random(300) < 0.4).astype(int)
    for decimals in (1, 8):
        scores = np.round(generator.normal(size=300) + positives, decimals)
        expected = theirs(torch_uncertainty.FPR95(pos_label=1), scores, positives)
        assert metrics.fpr95(scores, positives) == pytest.approx(expected, abs=1e-6)


def test_mutual_information(torch_uncertainty) -> None:
    logits = np.random.default_rng(0).normal(size=(5, 20, 3)) * 2
    passes = torch.softmax(torch.tensor(logits), dim=-1).transpose(0, 1)
    metric = torch_uncertainty.MutualInformation(reduction="none")
    metric.update(passes)
    assert predict(logits).mutual_information == pytest.approx(metric.compute().numpy(), abs=1e-6)
