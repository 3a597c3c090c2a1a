"""Temperature against slow, independent searches; the variance of a margin."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax

from reference import draw_logits
from uatlite.errors import InputError
from uatlite.predictive import margin_variance
from uatlite.trust.calibrators import TEMPERATURE_BOUNDS, Temperature, stratified_folds


def nll(logits, labels):
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


def by_grid(logits, labels):
    """The minimiser of the NLL over log T, by a grid that closes in tenfold eight times."""
    centre, width = 0.0, math.log(1000.0)
    for _ in range(8):
        grid = np.linspace(centre - width, centre + width, 41)
        centre, width = grid[np.argmin([nll(logits / math.exp(t), labels) for t in grid])], width / 10
    return math.exp(centre)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("overconfidence", [0.3, 1.0, 4.0])
def test_temperature_is_the_minimiser(classes, overconfidence):
    logits, labels, _ = draw_logits(400, classes, overconfidence=overconfidence)
    found = Temperature.fit(logits, labels).temperature
    assert found == pytest.approx(by_grid(logits, labels), rel=1e-5)  # all that values of the NLL can tell
    lower, at, upper = (nll(logits / (found * factor), labels) for factor in (0.999, 1.0, 1.001))
    assert at < lower
    assert at < upper


def test_temperature_is_found_to_one_in_a_million():
    """Two rows' worth of algebra: margin m right in a share s of rows gives sigmoid(m/T) = s."""
    rows, right, margin = 1000, 870, 7.0
    logits = np.tile([margin, 0.0], (rows, 1))
    labels = (np.arange(rows) >= right).astype(int)
    expected = margin / math.log(right / (rows - right))
    assert Temperature.fit(logits, labels).temperature == pytest.approx(expected, rel=1e-9)


def test_the_true_temperature_is_recovered():
    logits, labels, _ = draw_logits(20_000, 3, overconfidence=2.5)
    assert Temperature.fit(logits, labels).temperature == pytest.approx(2.5, rel=0.03)


def test_without_a_minimiser_the_bounds_hold():
    logits, _, _ = draw_logits(100, 3)
    separable = Temperature.fit(logits, logits.argmax(axis=1))
    misleading = Temperature.fit(logits, logits.argmin(axis=1))
    assert (separable.temperature, misleading.temperature) == TEMPERATURE_BOUNDS
    constant = Temperature.fit(np.zeros((100, 2)), np.arange(100) % 2)
    assert constant.temperature == 1.0


def test_margin_variance_by_hand():
    one_row = [[[3.0, 1.0, 0.0]], [[1.0, 2.0, 9.0]], [[5.0, 3.0, -9.0]]]  # mean 3, 2, 0: margins 2, -1, 2
    np.testing.assert_allclose(margin_variance(one_row), [np.var([2, -1, 2], ddof=1)])


def test_margin_variance_needs_two_passes():
    with pytest.raises(InputError, match="at least 2 passes"):
        margin_variance(np.zeros((1, 4, 3)))


def test_folds_are_even_and_stratified():
    labels = np.repeat([0, 1, 2], [100, 50, 25])
    folds = stratified_folds(labels, 5, seed=3)
    for label, rows in ((0, 100), (1, 50), (2, 25)):
        np.testing.assert_array_equal(np.bincount(folds[labels == label]), rows // 5)
    np.testing.assert_array_equal(folds, stratified_folds(labels, 5, seed=3))
    assert (folds != stratified_folds(labels, 5, seed=4)).any()
