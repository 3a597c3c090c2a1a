"""The ellipsoid against brute force, and the shift check at its stated rate."""

import json
import math

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf

from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.shift import ShiftReference, fit_ellipsoid, summarise


def draw(rows, units, rng):
    """Correlated vectors (rows, units)."""
    return rng.standard_normal((rows, units)) @ np.diag(1 / np.sqrt(1 + np.arange(units))) + 3.0


@pytest.mark.parametrize("rows, units", [(60, 5), (60, 40), (50, 120)])
def test_leaving_one_out_is_what_the_formula_gives(rows, units):
    """Each row's mean and covariance computed afresh from the others, the shrinkage held."""
    x = draw(rows, units, np.random.default_rng(0))
    centred = x - x.mean(axis=0)
    shrinkage, spread = ledoit_wolf(centred, assume_centered=True)[1], np.square(centred).mean()
    slow = []
    for i in range(rows):
        rest = np.delete(x, i, axis=0)
        covariance = (1 - shrinkage) * np.cov(rest.T, bias=True) + shrinkage * spread * np.eye(units)
        gap = x[i] - rest.mean(axis=0)
        slow.append(gap @ np.linalg.solve(covariance, gap))
    np.testing.assert_allclose(fit_ellipsoid(x).distances, np.sort(slow), rtol=1e-9)


def test_new_distances_by_brute_force():
    rng = np.random.default_rng(1)
    fitted, new = fit_ellipsoid(draw(100, 8, rng)), draw(20, 8, rng)
    slow = [(row - fitted.mean) @ np.linalg.inv(fitted.covariance) @ (row - fitted.mean) for row in new]
    np.testing.assert_allclose(fitted.squared_distances(new), slow, rtol=1e-9)


def test_reference_distances_are_those_of_new_rows_and_in_sample_ones_are_not():
    rng = np.random.default_rng(2)
    x = draw(400, 150, rng)
    fitted = fit_ellipsoid(x)
    new = np.median(fitted.squared_distances(draw(4000, 150, rng)))
    assert np.median(fitted.distances) == pytest.approx(new, rel=0.03)
    assert np.median(fitted.squared_distances(x)) < 0.8 * new


def test_representations_that_do_not_vary_are_refused():
    with pytest.raises(CalibrationError, match="do not vary"):
        fit_ellipsoid(np.ones((60, 4)))


@pytest.fixture
def reference():
    rng = np.random.default_rng(0)
    return summarise(rng.random(400), draw(400, 20, rng))


def test_like_rows_raise_no_alarm_and_shifted_ones_do(reference):
    rng = np.random.default_rng(5)
    like = reference.check(rng.random(200), draw(200, 20, rng))
    assert like.shifted is False
    assert "No shift was found" in like.describe()
    other_scores = reference.check(rng.random(200) ** 2, draw(200, 20, rng))
    assert other_scores.shifted
    assert other_scores.score_p_value < 1e-4 < other_scores.distance_p_value
    other_texts = reference.check(rng.random(200), 2 * draw(200, 20, rng))
    assert other_texts.shifted
    assert other_texts.distance_p_value < 1e-4 < other_texts.score_p_value
    assert other_texts.outliers > 0.5
    assert other_texts.median_distance > 2 * other_texts.reference_distance
    assert "the promises are off" in other_texts.describe()
    assert json.loads(json.dumps(other_texts.to_dict()))["shifted"] is True


def test_rows_all_the_same_are_a_shift_too(reference):
    rng = np.random.default_rng(6)
    middle = np.tile(reference.ellipsoid.mean, (100, 1))
    assert reference.check(rng.random(100), middle).shifted


def test_a_few_rows_say_nothing(reference):
    rng = np.random.default_rng(7)
    report = reference.check(rng.random(19), 50 * draw(19, 20, rng))
    assert report.shifted is None
    assert "too few" in report.describe()
    assert reference.outliers(reference.squared_distances(50 * draw(1, 20, rng))).all()  # each row by itself can


@pytest.mark.parametrize("leave_one_out", [True, False], ids=["as it is", "in-sample reference"])
def test_false_alarms_come_at_the_stated_rate(leave_one_out):
    """200 pairs of like samples, stated rate 0.1; with in-sample distances as reference nearly all would alarm."""
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(200):
        x = draw(120, 60, rng)
        reference = summarise(rng.random(120), x, false_alarm=0.1)
        if not leave_one_out:
            in_sample = np.sort(reference.squared_distances(x))
            reference = ShiftReference.from_arrays(
                reference.to_dict(), reference.to_arrays() | {"distances": in_sample}
            )
        alarms += reference.check(rng.random(80), draw(80, 60, rng)).shifted
    limit = 0.1 + 3 * math.sqrt(0.1 * 0.9 / 200)
    assert (alarms / 200 <= limit) is leave_one_out
    assert leave_one_out or alarms > 150


def test_outliers_come_at_the_stated_rate():
    rng = np.random.default_rng(9)
    reference = summarise(rng.random(2000), draw(2000, 10, rng), false_alarm=0.05)
    rate = reference.outliers(reference.squared_distances(draw(4000, 10, rng))).mean()
    assert rate == pytest.approx(0.05, abs=3 * math.sqrt(0.05 * 0.95 * (1 / 2000 + 1 / 4000)))


def test_scores_alone_can_be_checked():
    rng = np.random.default_rng(10)
    reference = summarise(rng.random(100))
    assert set(reference.to_arrays()) == {"scores"}
    assert reference.check(rng.random(100)).shifted is False
    assert reference.check(rng.random(100) / 3).shifted
    with pytest.raises(CalibrationError, match="kept no representations"):
        reference.check(rng.random(100), np.zeros((100, 3)))


def test_a_reference_comes_back_whole(reference):
    rng = np.random.default_rng(11)
    state = json.loads(json.dumps(reference.to_dict()))
    again = ShiftReference.from_arrays(state, reference.to_arrays())
    scores, x = rng.random(50), draw(50, 20, rng)
    assert again.check(scores, x) == reference.check(scores, x)
    # A stream keeps distances, not representations.
    assert again.check(scores, distances=reference.squared_distances(x)) == reference.check(scores, x)
    with pytest.raises(CalibrationError, match="calibrate again"):
        ShiftReference.from_arrays(state, {"mean": np.zeros(3)})


def test_what_cannot_be_used_is_refused(reference):
    rng = np.random.default_rng(12)
    with pytest.raises(CalibrationError, match="49 rows are too few"):
        summarise(rng.random(49))
    with pytest.raises(ConfigurationError, match="false_alarm=1"):
        summarise(rng.random(100), false_alarm=1)
    with pytest.raises(InputError, match="same rows"):
        summarise(rng.random(100), draw(99, 4, rng))
    with pytest.raises(InputError, match="20"):
        reference.check(rng.random(50), draw(50, 21, rng))
    with pytest.raises(InputError, match="same rows"):
        reference.check(rng.random(50), draw(51, 20, rng))
    with pytest.raises(InputError, match="NaN"):
        reference.check(rng.random(50), np.full((50, 20), np.nan))
