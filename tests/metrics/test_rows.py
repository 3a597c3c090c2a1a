"""The list of metrics and the names that are fixed; what is let in, what is refused, and what the refusal says."""

import inspect

import numpy as np
import pytest

import uatlite.metrics
from uatlite.errors import InputError
from uatlite.metrics.calibration import ece
from uatlite.metrics.intervals import METRICS, SCALES
from uatlite.metrics.rows import Rows
from uatlite.metrics.selective import coverage_at
from uatlite.values import SUM_TOLERANCE

GOOD = np.array([[0.7, 0.3], [0.4, 0.6]])

BAD = {
    "nan": (np.array([[0.7, 0.3], [np.nan, 0.6]]), [0, 1], r"probabilities\[1, 0\] is nan"),
    "infinite": (np.array([[np.inf, 0.0]]), [0], r"probabilities\[0, 0\] is inf"),
    "negative": (np.array([[1.2, -0.2]]), [0], r"probabilities\[0, 1\] is -0.2"),
    "sum": (np.array([[0.7, 0.3], [0.7, 0.6]]), [0, 1], r"probabilities\[1\] sums to 1.3; allowed is 1 within"),
    "logits": (np.array([[2.0, 1.0]]), [0], "softmax"),
    "one column of scores": (np.array([0.7, 0.4]), [1, 0], r"np.column_stack\(\[1 - p, p\]\)"),
    "text": (np.array([["a", "b"]]), [0], "type"),
    "no rows": (np.empty((0, 2)), [], r"shape \(0, 2\); allowed is \(rows, classes\)"),
    "no classes": (np.empty((2, 0)), [0, 0], r"shape \(2, 0\)"),
    "too few labels": (GOOD, [0], r"labels have shape \(1,\); allowed is \(2,\)"),
    "one-hot labels": (GOOD, np.eye(2), r"labels have shape \(2, 2\)"),
    "float labels": (GOOD, [0.0, 1.0], r"labels have type float64; .* labels.astype\(int\)"),
    "label too high": (GOOD, [0, 2], r"labels\[1\] is 2; allowed are 0 to 1"),
    "label below 0": (GOOD, [-1, 0], r"labels\[0\] is -1"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_refused_by_every_metric_with_its_place(fault):
    probabilities, labels, message = BAD[fault]
    for metric in METRICS.values():
        with pytest.raises(InputError, match=message):
            metric(probabilities, labels)


def test_four_or_five_decimals_and_float32_are_accepted_as_given():
    generator = np.random.default_rng(0)
    exact = generator.dirichlet(np.ones(150) * 0.01, size=50)
    for accepted in (np.round(exact, 4), np.round(exact, 5), exact.astype(np.float32)):
        rows = Rows.of(accepted, np.zeros(50, dtype=int))
        assert np.array_equal(rows.probabilities, accepted)
        assert np.abs(rows.probabilities.sum(axis=1) - 1).max() < SUM_TOLERANCE


def test_a_sum_may_be_off_by_one_thousandth():
    assert METRICS["accuracy"]([[0.7, 0.3009]], [0]) == 1.0
    with pytest.raises(InputError, match=r"sums to 1.0011; allowed is 1 within 0.001"):
        METRICS["accuracy"]([[0.7, 0.3011]], [0])


def test_lists_integers_and_every_integer_type_are_accepted():
    assert METRICS["accuracy"]([[1, 0], [0, 1]], [0, 0]) == 0.5
    assert METRICS["accuracy"](GOOD, np.array([0, 1], dtype=np.uint8)) == 1.0


def test_the_input_is_not_changed():
    probabilities, labels = GOOD.copy(), np.array([0, 0])
    for metric in METRICS.values():
        metric(probabilities, labels)
    assert np.array_equal(probabilities, GOOD)
    assert np.array_equal(labels, [0, 0])


def test_edges_and_thresholds_are_compared_in_the_precision_of_the_input():
    # As float64, a float32 0.8 is 0.800000012: beyond the threshold and beyond the edge 12/15.
    for kind in (np.float64, np.float32):
        probabilities = np.array([[0.8, 0.2], [0.75, 0.25]], dtype=kind)
        assert coverage_at(probabilities, [0, 0], 0.8) == 0
        # 0.8 and 0.75 share the bin (11/15, 12/15], where their gaps of opposite sign cancel.
        assert ece(probabilities, [0, 1]) == pytest.approx(abs(0.8 + 0.75 - 1) / 2, abs=1e-6)


FIXED = ["accuracy", "ece", "nll", "brier", "aurc", "coverage_at", "accuracy_at", "intervals", "metric_estimates"]


def test_the_fixed_names_are_there_and_all_that_is_exported():
    assert all(callable(getattr(uatlite.metrics, name)) for name in FIXED)
    assert all(hasattr(uatlite.metrics, name) for name in uatlite.metrics.__all__)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_a_direction_a_docstring_and_gives_a_plain_number(name):
    metric = METRICS[name]
    at_a_threshold = name.startswith(("coverage@", "accuracy@", "count@"))  # these trade against each other
    assert SCALES[name].better in ((None,) if at_a_threshold else ("higher", "lower"))
    assert metric.__doc__
    assert type(metric(np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([0, 0]))) is float


@pytest.mark.parametrize("name", METRICS)
def test_the_direction_is_right(name):
    """A nearly certain and always right classifier is no worse than a nearly certain and mostly wrong one."""
    confidence = np.linspace(0.95, 0.99, 20)
    probabilities = np.column_stack([confidence, 1 - confidence])
    right, wrong = np.zeros(20, dtype=int), np.where(np.arange(20) < 2, 0, 1)
    good, bad = METRICS[name](probabilities, right), METRICS[name](probabilities, wrong)
    if SCALES[name].better is not None and not np.isnan(good):
        assert good >= bad if SCALES[name].better == "higher" else good <= bad


def test_the_signature_is_the_one_that_users_call():
    assert list(inspect.signature(ece).parameters) == ["probabilities", "labels", "bins"]
    assert list(inspect.signature(coverage_at).parameters) == ["probabilities", "labels", "tau"]
    assert "calibration error" in (ece.__doc__ or "")
