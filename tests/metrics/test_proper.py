"""Proper scores against scikit-learn, and the split of the Brier score against its definition."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from uatlite.metrics.accuracy import brier, brier_calibration, brier_refinement, nll


def test_nll_and_brier_are_those_of_scikit_learn(case) -> None:
    probabilities, labels = case
    classes = np.arange(probabilities.shape[1])
    if len(classes) == 1:
        pytest.skip("scikit-learn scores no task of one class")
    assert nll(*case) == pytest.approx(log_loss(labels, probabilities, labels=classes), abs=1e-9)
    expected = brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)
    assert brier(*case) == pytest.approx(expected, abs=1e-12)


def test_one_class_is_never_wrong() -> None:
    assert nll(np.ones((3, 1)), [0, 0, 0]) == brier(np.ones((3, 1)), [0, 0, 0]) == 0


def test_a_probability_of_zero_costs_36_nats_and_not_infinity() -> None:
    assert nll([[1.0, 0.0]], [1]) == pytest.approx(-np.log(2.0**-52))


def test_the_two_parts_of_the_brier_score(case) -> None:
    probabilities, labels = case
    calibration = refinement = 0.0
    for c, p in enumerate(probabilities.T):
        gaps = p - (labels == c)
        bins = np.array([next(b for b in range(15) if value <= (b + 1) / 15) for value in p])
        for b in set(bins):
            calibration += (bins == b).sum() * gaps[bins == b].mean() ** 2 / len(labels)
            refinement += (bins == b).sum() * gaps[bins == b].var() / len(labels)
    assert brier_calibration(*case) == pytest.approx(calibration, abs=1e-12)
    assert brier_refinement(*case) == pytest.approx(refinement, abs=1e-12)
    assert brier_calibration(*case) + brier_refinement(*case) == pytest.approx(brier(*case), abs=1e-12)
