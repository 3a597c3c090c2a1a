"""Label sets: by hand, and at the stated rate."""

import json
import math

import numpy as np
import pytest

from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.label_sets import NONCONFORMITY, LabelSets, label_sets, text_uniforms

ONE_ROW = np.array([[0.2, 0.5, 0.3]])


def test_nonconformity_by_hand():
    np.testing.assert_allclose(NONCONFORMITY["lac"](ONE_ROW, None), [[0.8, 0.5, 0.7]])
    # In falling order 0.5, 0.3, 0.2: what comes before, plus a quarter of its own.
    np.testing.assert_allclose(NONCONFORMITY["aps"](ONE_ROW, np.array([0.25])), [[0.85, 0.125, 0.575]])


def test_the_threshold_is_the_right_order_statistic():
    """Nine rows, coverage 0.8: the ceil(10·0.8) = 8th smallest of 1 - p."""
    own = np.array([0.9, 0.8, 0.7, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2])
    fitted = label_sets(np.stack([own, 1 - own], axis=1), np.zeros(9, dtype=int), 0.8)
    assert fitted.threshold == pytest.approx(0.7)
    np.testing.assert_array_equal(fitted.sets([[0.31, 0.69], [0.29, 0.71]]), [[True, True], [False, True]])


def test_too_few_rows_give_all_labels():
    """18 rows cannot promise 0.95: ceil(19·0.95) = 19 > 18. 19 rows can."""
    chances = np.tile([0.9, 0.1], (19, 1))
    short = label_sets(chances[:18], np.zeros(18, dtype=int), 0.95)
    assert short.threshold == math.inf
    assert short.sets([[1.0, 0.0]]).all()
    assert label_sets(chances, np.zeros(19, dtype=int), 0.95).threshold < math.inf


def test_rounding_asks_for_no_row_too_many():
    """100·0.29 is 28.999999999999996 in binary; the rank is 29 for it and for 0.29000000001 is 30."""
    own = np.linspace(0.99, 0.01, 99)
    chances = np.stack([own, 1 - own], axis=1)
    labels = np.zeros(99, dtype=int)
    assert label_sets(chances, labels, 0.29).threshold == pytest.approx(0.29)
    assert label_sets(chances, labels, 0.29000001).threshold == pytest.approx(0.30)


@pytest.mark.parametrize("method", sorted(NONCONFORMITY))
@pytest.mark.parametrize("rows", [20, 100])
def test_coverage_is_what_was_promised(method, rows):
    """Over 600 samples the mean true coverage is ceil((n+1)·0.9)/(n+1), up to three standard errors."""
    rng = np.random.default_rng(3)
    covered = []
    for repetition in range(600):
        truth = rng.dirichlet([0.4, 0.4, 0.4], rows + 400)
        model = truth**2 / (truth**2).sum(axis=1, keepdims=True)  # overconfident, and covered all the same
        labels = (rng.random(rows)[:, None] > truth[:rows].cumsum(axis=1)[:, :2]).sum(axis=1)
        uniforms = text_uniforms(range(rows + 400), seed=repetition)
        fitted = label_sets(model[:rows], labels, 0.9, method=method, uniforms=uniforms[:rows])
        covered.append((fitted.sets(model[rows:], uniforms[rows:]) * truth[rows:]).sum(axis=1).mean())
    expected = math.ceil((rows + 1) * 0.9) / (rows + 1)
    assert np.mean(covered) == pytest.approx(expected, abs=3 * np.std(covered) / math.sqrt(600))


def test_aps_does_not_collapse_when_more_rows_are_wrong_than_may_be():
    """A binary model wrong in 15 % of rows at coverage 0.9: without the random part all sets would be full."""
    rng = np.random.default_rng(0)
    confident = rng.uniform(0.7, 1.0, 2000)
    labels = (rng.random(2000) > confident).astype(int)
    chances, uniforms = np.stack([confident, 1 - confident], axis=1), rng.random(2000)
    sets = label_sets(chances, labels, 0.9, method="aps", uniforms=uniforms).sets(chances, uniforms)
    full = label_sets(chances, labels, 0.9, method="aps", uniforms=np.ones(2000)).sets(chances, np.ones(2000))
    assert full.all()
    assert 0.88 < (sets[np.arange(2000), labels]).mean() < 0.92
    assert sets.sum(axis=1).mean() < 1.6


def test_the_interval_is_the_beta_law():
    fitted = label_sets(np.tile([0.6, 0.4], (999, 1)), np.zeros(999, dtype=int), 0.9)
    low, high = fitted.coverage_interval
    assert (low, high) == pytest.approx((0.8806, 0.9178), abs=5e-4)  # Beta(900, 100)


def test_a_text_has_one_uniform_and_texts_have_many():
    texts = [f"text {i}" for i in range(4000)]
    uniforms = text_uniforms(texts)
    np.testing.assert_array_equal(text_uniforms(texts[::-1])[::-1], uniforms)
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    assert np.abs(np.sort(uniforms) - (np.arange(4000) + 0.5) / 4000).max() < 1.63 / math.sqrt(4000)  # KS, 1 %
    assert (text_uniforms(texts, seed=1) != uniforms).all()
    assert text_uniforms([("a", "b")]) != text_uniforms([("b", "a")])


def test_sets_come_back_from_json():
    for rows in (5, 50):
        fitted = label_sets(np.tile([0.6, 0.4], (rows, 1)), np.zeros(rows, dtype=int), 0.9)
        assert LabelSets.from_dict(json.loads(json.dumps(fitted.to_dict(), allow_nan=False))) == fitted
    with pytest.raises(CalibrationError, match="calibrate again"):
        LabelSets.from_dict({"method": "magic"})


def test_what_cannot_be_used_is_refused():
    labels = np.zeros(1, dtype=int)
    with pytest.raises(ConfigurationError, match="method="):
        label_sets(ONE_ROW, labels, method="lacc")
    with pytest.raises(ConfigurationError, match="coverage=90"):
        label_sets(ONE_ROW, labels, 90)
    with pytest.raises(InputError, match="not the logits"):
        label_sets([[2.0, -1.0]], labels)
    with pytest.raises(InputError, match="text_uniforms"):
        label_sets(ONE_ROW, labels, method="aps")
    with pytest.raises(InputError, match="uniforms"):
        label_sets(ONE_ROW, labels, method="aps", uniforms=[0.1, 0.2])
