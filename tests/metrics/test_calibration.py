"""Calibration errors against loops that a reader can check, and against torchmetrics."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import foldnorm
from torchmetrics.functional.classification import multiclass_calibration_error

from by_hand import bins_of, slow_ece
from uatlite import metrics
from uatlite.errors import ConfigurationError
from uatlite.metrics.calibration import NARROWEST


def confidence_and_gaps(case):
    probabilities, labels = case
    return probabilities.max(axis=1), probabilities.max(axis=1) - (probabilities.argmax(axis=1) == labels)


def test_ece_and_mce_by_the_definition(case):
    bins = bins_of(*confidence_and_gaps(case))
    rows = sum(len(gaps) for gaps in bins)
    assert rows == len(case[1])
    assert metrics.ece(*case) == pytest.approx(sum(len(g) * abs(g.mean()) for g in bins) / rows, abs=1e-12)
    assert metrics.mce(*case) == pytest.approx(max(abs(g.mean()) for g in bins), abs=1e-12)


def test_classwise_ece_by_the_definition(case):
    probabilities, labels = case
    errors = [slow_ece(p, labels == c) for c, p in enumerate(probabilities.T)]
    assert metrics.classwise_ece(*case) == pytest.approx(np.mean(errors), abs=1e-12)


def test_adaptive_ece_by_the_definition(case):
    # Sharing a row among bins in proportion is the same as cutting each row in 15 and giving out whole pieces.
    confidence, gaps = confidence_and_gaps(case)
    averaged = np.array([gaps[confidence == c].mean() for c in confidence])
    pieces = np.repeat(averaged[np.argsort(confidence)], 15).reshape(15, -1)
    assert metrics.adaptive_ece(*case) == pytest.approx(np.abs(pieces.mean(axis=1)).mean(), abs=1e-12)


def test_debiased_ece_by_the_definition(case):
    total = 0.0
    bins = bins_of(*confidence_and_gaps(case))
    for gaps in bins:
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        noise = 0.0
        if error > 1e-9:
            true = np.sqrt(max(0.0, gaps.mean() ** 2 - error**2))
            noise = foldnorm(true / error, scale=error).mean() - true
        total += len(gaps) * (abs(gaps.mean()) - noise)
    expected = max(0.0, total / len(case[1]))
    # Where the rows of a bin are all alike the variance is 0 up to rounding, which its root carries to 1e-8.
    assert metrics.debiased_ece(*case) == pytest.approx(expected, abs=1e-7)


def test_smooth_ece_by_the_definition(case):
    confidence, gaps = confidence_and_gaps(case)
    middles = (np.arange(4000) + 0.5) / 4000

    def error(width):
        curve = np.zeros(len(middles))
        for c, gap in zip(confidence, gaps, strict=True):
            for mirror in range(-8, 9, 2):
                for centre in (mirror + c, mirror - c):
                    curve += gap * np.exp(-(((middles - centre) / width) ** 2) / 2) / np.sqrt(2 * np.pi) / width
        return float(np.abs(curve / len(gaps)).mean())

    narrow = error(NARROWEST)
    expected = brentq(lambda w: error(w) - w, NARROWEST, 1.5) if narrow > NARROWEST else narrow
    assert metrics.smooth_ece(*case) == pytest.approx(expected, abs=2e-4)


def torchmetrics_error(probabilities, labels, norm="l1"):
    """What torchmetrics finds with 15 bins; it computes in float32."""
    preds, target = torch.tensor(probabilities), torch.tensor(labels)
    return float(multiclass_calibration_error(preds, target, num_classes=preds.shape[1], n_bins=15, norm=norm))


def test_ece_and_mce_are_those_of_torchmetrics_off_the_edges(smooth_case):
    assert metrics.ece(*smooth_case) == pytest.approx(torchmetrics_error(*smooth_case), abs=1e-6)
    assert metrics.mce(*smooth_case) == pytest.approx(torchmetrics_error(*smooth_case, norm="max"), abs=1e-6)


def test_on_the_edges_torchmetrics_closes_its_bins_on_the_left_and_gives_1_a_bin_of_its_own():
    for confidence in (0.6, 1.0):
        on_edge = np.array([[confidence, 1 - confidence], [confidence - 0.01, 1.01 - confidence]])
        below = np.array([[confidence - 1e-6, 1 - confidence + 1e-6], on_edge[1]])
        ours = metrics.ece(on_edge, [1, 0])
        assert torchmetrics_error(on_edge, [1, 0]) > ours + 0.009
        assert torchmetrics_error(below, [1, 0]) == pytest.approx(ours, abs=2e-6)


def test_debiased_ece_removes_most_of_the_bias_of_ece_under_perfect_calibration():
    generator = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(40):
        probabilities = generator.dirichlet(np.ones(3), size=1000)
        labels = (probabilities.cumsum(axis=1) < generator.random((1000, 1))).sum(axis=1)
        plain.append(metrics.ece(probabilities, labels))
        debiased.append(metrics.debiased_ece(probabilities, labels))
    assert np.mean(debiased) < np.mean(plain) / 2


def test_binless_and_adaptive_errors_do_not_depend_on_the_order_of_rows(tied_case):
    probabilities, labels = tied_case
    order = np.random.default_rng(0).permutation(len(labels))
    for metric in (metrics.adaptive_ece, metrics.smooth_ece):
        shuffled = metric(probabilities[order], labels[order])
        assert metric(probabilities, labels) == pytest.approx(shuffled, abs=1e-12)


@pytest.mark.parametrize("name", ["ece", "mce", "adaptive_ece", "classwise_ece", "debiased_ece"])
def test_bins_must_be_at_least_one(name):
    with pytest.raises(ConfigurationError, match="bins=0 is not allowed"):
        getattr(metrics, name)([[0.5, 0.5]], [0], bins=0)
