"""What holds of every calibrator, whichever it is."""

import json

import numpy as np
import pytest

from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.auto import CALIBRATORS, calibrator_from_dict, make_calibrator
from uatlite.trust.calibrators import Calibrator

EVERY = sorted(CALIBRATORS)
LEARNS = [name for name in EVERY if name != "none"]
EACH_CLASS = ["platt", "vector", "histogram", "isotonic"]


@pytest.fixture(params=EVERY)
def name(request):
    return request.param


@pytest.fixture(params=[2, 4], ids=["binary", "four-class"])
def classes(request):
    return request.param


@pytest.fixture
def fitted(name, classes, rows):
    return make_calibrator(name).fit(*rows(300, classes))


@pytest.fixture
def fresh(classes, rows):
    """Logits (rows, classes) and variance (rows,) that the calibrator was not fitted on."""
    logits, _, variance = rows(200, classes, seed=1)
    return logits, variance


def test_it_is_a_calibrator_under_its_own_name(name):
    calibrator = make_calibrator(name)
    assert isinstance(calibrator, Calibrator)
    assert calibrator.name == name


def test_rows_sum_to_one(fitted, fresh):
    chances = fitted.probabilities(*fresh)
    assert (chances >= 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=0, atol=1e-12)


def test_the_predicted_class_stays_where_it_is_promised(fitted, fresh):
    logits, variance = fresh
    same = fitted.probabilities(logits, variance).argmax(axis=1) == logits.argmax(axis=1)
    assert same.all() or not fitted.keeps_argmax


def test_it_comes_back_from_json_bit_by_bit(fitted, fresh):
    logits, variance = fresh
    text = json.dumps(fitted.to_dict(), allow_nan=False)
    again = calibrator_from_dict(json.loads(text))
    assert type(again) is type(fitted)
    np.testing.assert_array_equal(again.probabilities(logits, variance), fitted.probabilities(logits, variance))
    assert again.to_dict() == fitted.to_dict()


def test_fitting_again_gives_the_same_bits(name, rows):
    logits, labels, variance = rows(300, 3)
    first, second = (make_calibrator(name).fit(logits, labels, variance) for _ in range(2))
    assert first.to_dict() == second.to_dict()


def test_each_row_is_by_itself(fitted, fresh):
    logits, variance = fresh
    whole = fitted.probabilities(logits, variance)
    np.testing.assert_allclose(fitted.probabilities(logits[7:9], variance[7:9]), whole[7:9], rtol=1e-13)


def test_a_shift_of_a_whole_row_changes_nothing(fitted, fresh):
    logits, variance = fresh
    shift = np.linspace(-5, 5, len(logits))[:, None]
    shifted = fitted.probabilities(logits + shift, variance)
    np.testing.assert_allclose(shifted, fitted.probabilities(logits, variance), atol=1e-9)


def test_extreme_logits_never_give_nan(fitted, classes):
    logits = np.full((4, classes), -1e4)
    logits[0, 0] = 1e4
    logits[1, -1] = 1e4
    logits[2, :] = 1e4
    for variance in (np.zeros(4), np.full(4, 1e8)):
        chances = fitted.probabilities(logits, variance)
        assert np.isfinite(chances).all()
        np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e4, 1e-4])
def test_fitting_on_extreme_logits_never_gives_nan(name, rows, scale):
    logits, labels, variance = rows(200, 3)
    chances = make_calibrator(name).fit(logits * scale, labels, variance).probabilities(logits * scale, variance)
    assert np.isfinite(chances).all()


@pytest.mark.parametrize("labels_are", ["the argmax", "never the argmax"])
def test_separable_and_misleading_logits_never_give_nan(name, rows, labels_are):
    logits, _, variance = rows(200, 3)
    labels = logits.argmax(axis=1) if labels_are == "the argmax" else logits.argmin(axis=1)
    chances = make_calibrator(name).fit(logits, labels, variance).probabilities(logits, variance)
    assert np.isfinite(chances).all()


def test_the_order_of_the_classes_does_not_matter(name, rows):
    logits, labels, variance = rows(400, 3)
    order = np.array([2, 0, 1])  # column j of the permuted logits is the class order[j]
    plain = make_calibrator(name).fit(logits, labels, variance).probabilities(logits, variance)
    permuted = make_calibrator(name).fit(logits[:, order], np.argsort(order)[labels], variance)
    np.testing.assert_allclose(permuted.probabilities(logits[:, order], variance), plain[:, order], atol=2e-6)


@pytest.mark.parametrize("name", LEARNS)
def test_it_helps_where_the_model_is_overconfident(name, rows):
    logits, labels, variance = rows(1500, 3, overconfidence=3.0)
    fresh_logits, fresh_labels, fresh_variance = rows(1500, 3, seed=1, overconfidence=3.0)

    def loss(calibrator):
        chances = calibrator.probabilities(fresh_logits, fresh_variance)
        return -np.log(chances[np.arange(len(fresh_labels)), fresh_labels]).mean()

    raw = loss(make_calibrator("none").fit(logits, labels))
    assert loss(make_calibrator(name).fit(logits, labels, variance)) < 0.8 * raw


def test_what_cannot_be_used_is_refused(name, rows):
    logits, labels, variance = rows(100, 3)
    broken = logits.copy()
    broken[3, 1] = np.nan
    with pytest.raises(InputError, match="1 of 100 rows"):
        make_calibrator(name).fit(broken, labels, variance)
    with pytest.raises(InputError, match=r"labels\[\d+\] is -100; allowed are 0 to 2"):
        make_calibrator(name).fit(logits, np.where(labels == 0, -100, labels), variance)
    with pytest.raises(InputError, match="integers"):
        make_calibrator(name).fit(logits, labels.astype(float), variance)
    with pytest.raises(InputError, match="shape"):
        make_calibrator(name).fit(logits, labels[:-1], variance)
    with pytest.raises(InputError, match="passes"):
        make_calibrator(name).fit(logits[None], labels, variance)
    with pytest.raises(CalibrationError, match="not fitted"):
        make_calibrator(name).probabilities(logits, variance)
    fitted = make_calibrator(name).fit(logits, labels, variance)
    with pytest.raises(InputError, match="fitted on 3"):
        fitted.probabilities(logits[:, :2], variance)


@pytest.mark.parametrize("name", LEARNS)
def test_rows_that_teach_nothing_are_refused(name, rows):
    logits, labels, variance = rows(100, 3)
    with pytest.raises(CalibrationError, match="too few"):
        make_calibrator(name).fit(logits[:5], labels[:5], variance[:5])
    with pytest.raises(CalibrationError, match="all 100 labels are 1"):
        make_calibrator(name).fit(logits, np.ones_like(labels), variance)


@pytest.mark.parametrize("name", EACH_CLASS)
def test_a_class_without_rows_is_refused_by_those_who_fit_each_class(name, rows):
    logits, labels, variance = rows(100, 3)
    with pytest.raises(CalibrationError, match=r"label \[2\]"):
        make_calibrator(name).fit(logits, np.minimum(labels, 1), variance)


def test_unknown_and_broken_states_say_so():
    with pytest.raises(ConfigurationError, match="Did you mean 'temperature'"):
        make_calibrator("temprature")
    with pytest.raises(CalibrationError, match="is not one of"):
        calibrator_from_dict({"calibrator": "magic"})
    with pytest.raises(CalibrationError, match="broken"):
        calibrator_from_dict({"calibrator": "temperature", "classes": 2})
