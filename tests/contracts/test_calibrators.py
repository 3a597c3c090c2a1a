"""What holds of every calibrator: those of a classifier, and the baselines of an evaluation."""

import json

import numpy as np
import pytest

from reference import draw_logits
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, ConfigurationError, InputError, StoreError
from uatlite.lab.evaluate.baseline_calibrators import CALIBRATOR_FORMS, EVALUATED, EvaluatedCalibrator
from uatlite.trust.calibrators import BASELINES, CALIBRATORS, Calibrator, check_calibrator

LEARNS = [name for name in EVALUATED if name != "none"]


@pytest.fixture(params=EVALUATED)
def name(request):
    return request.param


@pytest.fixture(params=[2, 4], ids=["binary", "four-class"])
def classes(request):
    return request.param


@pytest.fixture
def fitted(name, classes):
    return EVALUATED[name](*draw_logits(300, classes))


@pytest.fixture
def fresh(classes):
    """Logits (rows, classes) and variance (rows,) that the calibrator was not fitted on."""
    logits, _, variance = draw_logits(200, classes, seed=1)
    return logits, variance


def test_the_calibrators_of_a_classifier_and_the_baselines_are_all():
    assert sorted([*CALIBRATORS, *BASELINES]) == sorted(EVALUATED)
    assert all(kind.name == name for name, kind in CALIBRATORS.items())


def test_rows_sum_to_one(fitted, fresh):
    probs = fitted.probabilities(*fresh)
    assert (probs >= 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=0, atol=1e-12)


def test_no_calibrator_of_a_classifier_changes_a_prediction(fitted, fresh):
    logits, variance = fresh
    same = fitted.probabilities(logits, variance).argmax(axis=1) == logits.argmax(axis=1)
    assert same.all() or not isinstance(fitted, Calibrator)


def test_it_comes_back_from_json_bit_by_bit(fitted, fresh):
    state = dump(fitted, kind=EvaluatedCalibrator)
    again = load(EvaluatedCalibrator, json.loads(json.dumps(state, allow_nan=False)), advice="fit it again.")
    assert type(again) is type(fitted)
    np.testing.assert_array_equal(again.probabilities(*fresh), fitted.probabilities(*fresh))
    assert dump(again, kind=EvaluatedCalibrator) == state


def test_fitting_again_gives_the_same_bits(name):
    first, second = (dump(EVALUATED[name](*draw_logits(300, 3))) for _ in range(2))
    assert first == second


def test_each_row_is_by_itself(fitted, fresh):
    logits, variance = fresh
    probs = fitted.probabilities(logits, variance)
    np.testing.assert_allclose(fitted.probabilities(logits[7:9], variance[7:9]), probs[7:9], rtol=1e-13)


def test_a_shift_of_a_whole_row_changes_nothing(fitted, fresh):
    logits, variance = fresh
    shifted = fitted.probabilities(logits + np.linspace(-5, 5, len(logits))[:, None], variance)
    np.testing.assert_allclose(shifted, fitted.probabilities(logits, variance), atol=1e-9)


def test_extreme_logits_never_give_nan(fitted, classes):
    logits = np.full((4, classes), -1e4)
    logits[0, 0] = logits[1, -1] = logits[2, :] = 1e4
    for variance in (np.zeros(4), np.full(4, 1e8)):
        probs = fitted.probabilities(logits, variance)
        assert np.isfinite(probs).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e4, 1e-4])
def test_fitting_on_extreme_logits_never_gives_nan(name, scale):
    logits, labels, variance = draw_logits(200, 3)
    probs = EVALUATED[name](logits * scale, labels, variance).probabilities(logits * scale, variance)
    assert np.isfinite(probs).all()


@pytest.mark.parametrize("labels_are", ["the argmax", "never the argmax"])
def test_separable_and_misleading_logits_never_give_nan(name, labels_are):
    logits, _, variance = draw_logits(200, 3)
    labels = logits.argmax(axis=1) if labels_are == "the argmax" else logits.argmin(axis=1)
    assert np.isfinite(EVALUATED[name](logits, labels, variance).probabilities(logits, variance)).all()


def test_the_order_of_the_classes_does_not_matter(name):
    logits, labels, variance = draw_logits(400, 3)
    order = np.array([2, 0, 1])  # column j of the permuted logits is the class order[j]
    plain = EVALUATED[name](logits, labels, variance).probabilities(logits, variance)
    permuted = EVALUATED[name](logits[:, order], np.argsort(order)[labels], variance)
    np.testing.assert_allclose(permuted.probabilities(logits[:, order], variance), plain[:, order], atol=2e-6)


@pytest.mark.parametrize("name", LEARNS)
def test_it_helps_where_the_model_is_overconfident(name):
    rows = draw_logits(1500, 3, overconfidence=3.0)
    logits, labels, variance = draw_logits(1500, 3, seed=1, overconfidence=3.0)

    def loss(calibrator):
        return -np.log(calibrator.probabilities(logits, variance)[np.arange(len(labels)), labels]).mean()

    assert loss(EVALUATED[name](*rows)) < 0.8 * loss(EVALUATED["none"](*rows))


def test_what_cannot_be_used_is_refused(name):
    logits, labels, variance = draw_logits(100, 3)
    broken = logits.copy()
    broken[3, 1] = np.nan
    for given, error in (
        ((broken, labels), "1 of 100 rows"),
        ((logits, np.where(labels == 0, -100, labels)), r"labels\[\d+\] is -100; allowed are 0 to 2"),
        ((logits, labels.astype(float)), "integers"),
        ((logits, labels[:-1]), "shape"),
        ((logits[None], labels), "passes"),
    ):
        with pytest.raises(InputError, match=error):
            EVALUATED[name](*given, variance)
    with pytest.raises(InputError, match="fitted on 3"):
        EVALUATED[name](logits, labels, variance).probabilities(logits[:, :2], variance)


@pytest.mark.parametrize("name", LEARNS)
def test_rows_that_teach_nothing_are_refused(name):
    logits, labels, variance = draw_logits(100, 3)
    with pytest.raises(CalibrationError, match="too few"):
        EVALUATED[name](logits[:5], labels[:5], variance[:5])
    with pytest.raises(CalibrationError, match="all 100 labels are 1"):
        EVALUATED[name](logits, np.ones_like(labels), variance)


@pytest.mark.parametrize("name", ["vector", *CALIBRATOR_FORMS])
def test_a_class_without_rows_is_refused_by_those_who_fit_each_class(name):
    logits, labels, variance = draw_logits(100, 3)
    with pytest.raises(CalibrationError, match=r"label \[2\]"):
        EVALUATED[name](logits, np.minimum(labels, 1), variance)


def test_unknown_names_and_broken_states_say_so():
    with pytest.raises(ConfigurationError, match="Did you mean 'temperature'"):
        check_calibrator("temprature")
    with pytest.raises(ConfigurationError, match=r"baseline of uatlite evaluate \(base\+platt\).*use one of none"):
        check_calibrator("platt")
    for state, error in (({"is": "magic"}, "'magic' is not one of"), ({"is": "Temperature"}, "classes: it is missing")):
        with pytest.raises(StoreError, match=error):
            load(EvaluatedCalibrator, state, advice="calibrate again.")
