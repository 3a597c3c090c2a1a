"""Label sets: by hand, and at the stated rate."""

import math

import numpy as np
import pytest

from by_hand import again
from uatlite.errors import ConfigurationError, InputError
from uatlite.trust.distribution import label_sets

ONE_ROW = np.array([[0.2, 0.5, 0.3]])


def test_the_threshold_is_the_right_order_statistic():
    """Nine rows, coverage 0.8: the ceil(10·0.8) = 8th smallest of 1 - p."""
    own = np.array([0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2])
    fitted = label_sets(np.stack([own, 1 - own], axis=1), np.zeros(9, dtype=int), 0.8)
    assert fitted.threshold == pytest.approx(0.7)
    np.testing.assert_array_equal(fitted.sets([[0.31, 0.69], [0.29, 0.71]]), [[True, True], [False, True]])


def test_too_few_rows_give_all_labels():
    """18 rows cannot promise 0.95: ceil(19·0.95) = 19 > 18. 19 rows can."""
    probs = np.tile([0.9, 0.1], (19, 1))
    short = label_sets(probs[:18], np.zeros(18, dtype=int), 0.95)
    assert short.threshold == math.inf
    assert short.sets([[1.0, 0.0]]).all()
    assert label_sets(probs, np.zeros(19, dtype=int), 0.95).threshold < math.inf


def test_rounding_asks_for_no_row_too_many():
    """100·0.29 is 28.999999999999996 in binary; the rank is 29 for it and for 0.29000000001 is 30."""
    own = np.linspace(0.99, 0.01, 99)
    probs, labels = np.stack([own, 1 - own], axis=1), np.zeros(99, dtype=int)
    assert label_sets(probs, labels, 0.29).threshold == pytest.approx(0.29)
    assert label_sets(probs, labels, 0.29000001).threshold == pytest.approx(0.30)


@pytest.mark.parametrize("rows", [20, 100])
def test_coverage_is_what_was_promised(rows):
    """Over 600 samples the mean true coverage is ceil((n+1)·0.9)/(n+1), up to three standard errors."""
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(600):
        truth = rng.dirichlet([0.4, 0.4, 0.4], rows + 400)
        model = truth**2 / (truth**2).sum(axis=1, keepdims=True)  # overconfident, and covered all the same
        labels = (rng.random(rows)[:, None] > truth[:rows].cumsum(axis=1)[:, :2]).sum(axis=1)
        fitted = label_sets(model[:rows], labels, 0.9)
        covered.append((fitted.sets(model[rows:]) * truth[rows:]).sum(axis=1).mean())
    expected = math.ceil((rows + 1) * 0.9) / (rows + 1)
    assert np.mean(covered) == pytest.approx(expected, abs=3 * np.std(covered) / math.sqrt(600))


def test_the_interval_is_the_beta_law():
    fitted = label_sets(np.tile([0.6, 0.4], (999, 1)), np.zeros(999, dtype=int), 0.9)
    assert fitted.coverage_interval == pytest.approx((0.8806, 0.9178), abs=5e-4)  # Beta(900, 100)


def test_sets_come_back_from_json():
    for rows in (5, 50):
        fitted = label_sets(np.tile([0.6, 0.4], (rows, 1)), np.zeros(rows, dtype=int), 0.9)
        assert again(fitted) == fitted


def test_what_cannot_be_used_is_refused():
    labels = np.zeros(1, dtype=int)
    with pytest.raises(ConfigurationError, match="coverage=90"):
        label_sets(ONE_ROW, labels, 90)
    with pytest.raises(InputError, match="not the logits"):
        label_sets([[2.0, -1.0]], labels)
