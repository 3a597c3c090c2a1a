"""The list of metrics, and the names that are fixed."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

import uatlite.metrics
from uatlite.metrics.calibration import ece
from uatlite.metrics.intervals import METRICS, SCALES
from uatlite.metrics.selective import coverage_at

FIXED = ["accuracy", "ece", "nll", "brier", "aurc", "coverage_at", "accuracy_at", "intervals", "metric_estimates"]


@pytest.mark.parametrize("name", FIXED)
def test_the_fixed_names_are_there(name: str) -> None:
    assert callable(getattr(uatlite.metrics, name))


def test_everything_exported_exists() -> None:
    assert all(hasattr(uatlite.metrics, name) for name in uatlite.metrics.__all__)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_has_a_direction_a_docstring_and_gives_a_plain_number(name: str) -> None:
    metric = METRICS[name]
    at_a_threshold = name.startswith(("coverage@", "accuracy@", "count@"))  # these trade against each other
    assert SCALES[name].better in ((None,) if at_a_threshold else ("higher", "lower"))
    assert metric.__doc__
    assert type(metric(np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([0, 0]))) is float


@pytest.mark.parametrize("name", METRICS)
def test_the_direction_is_right(name: str) -> None:
    """A nearly certain and always right classifier is no worse than a nearly certain and mostly wrong one."""
    confidence = np.linspace(0.95, 0.99, 20)
    probabilities = np.column_stack([confidence, 1 - confidence])
    right, wrong = np.zeros(20, dtype=int), np.where(np.arange(20) < 2, 0, 1)
    good, bad = METRICS[name](probabilities, right), METRICS[name](probabilities, wrong)
    if SCALES[name].better is not None and not np.isnan(good):
        assert good >= bad if SCALES[name].better == "higher" else good <= bad


def test_the_signature_is_the_one_that_users_call() -> None:
    assert list(inspect.signature(ece).parameters) == ["probabilities", "labels", "bins"]
    assert list(inspect.signature(coverage_at).parameters) == ["probabilities", "labels", "tau"]
    assert "calibration error" in (ece.__doc__ or "")


def test_metrics_and_predictive_need_nothing_but_numpy() -> None:
    code = "import sys, uatlite.metrics, uatlite.predictive; print({'torch', 'scipy', 'sklearn'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
