"""Temperature and input temperature against slow, independent searches."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from uatlite.errors import InputError
from uatlite.predictive import margin_variance
from uatlite.trust.calibrators import TEMPERATURE_BOUNDS, InputTemperature, Temperature


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
def test_temperature_is_the_minimiser(rows, classes, overconfidence):
    logits, labels, _ = rows(400, classes, overconfidence=overconfidence)
    found = Temperature().fit(logits, labels).temperature_
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
    assert Temperature().fit(logits, labels).temperature_ == pytest.approx(expected, rel=1e-9)


def test_the_true_temperature_is_recovered(rows):
    logits, labels, _ = rows(20_000, 3, overconfidence=2.5)
    assert Temperature().fit(logits, labels).temperature_ == pytest.approx(2.5, rel=0.03)


def test_without_a_minimiser_the_bounds_hold(rows):
    logits, _, _ = rows(100, 3)
    separable = Temperature().fit(logits, logits.argmax(axis=1))
    misleading = Temperature().fit(logits, logits.argmin(axis=1))
    assert (separable.temperature_, misleading.temperature_) == TEMPERATURE_BOUNDS
    constant = Temperature().fit(np.zeros((100, 2)), np.arange(100) % 2)
    assert constant.temperature_ == 1.0


def noisy_margins(rows, seed, widening, temperature):
    """Binary rows whose labels follow sigmoid(d / (T·sqrt(1 + a·π/8·σ²))) exactly."""
    rng = np.random.default_rng(seed)
    margin, variance = rng.normal(0, 4, rows), rng.gamma(0.7, 4.0, rows)
    chance = 1 / (1 + np.exp(-margin / (temperature * np.sqrt(1 + widening * math.pi / 8 * variance))))
    labels = (rng.random(rows) < chance).astype(int)
    return np.stack([-margin / 2, margin / 2], axis=1), labels, variance


def test_input_temperature_matches_a_joint_search(rows):
    logits, labels, variance = noisy_margins(3000, 0, widening=1.5, temperature=1.3)

    def loss(x):
        scale = np.exp(x[0]) * np.sqrt(1 + np.exp(x[1]) * math.pi / 8 * variance)
        widening = np.exp(x[1]) * math.pi / 8 * variance.mean()
        return nll(logits / scale[:, None], labels) + math.log(1 + widening) / len(labels)

    joint = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000})
    found = InputTemperature().fit(logits, labels, variance)
    assert found.temperature_ == pytest.approx(np.exp(joint.x[0]), rel=1e-4)
    assert found.widening_ == pytest.approx(np.exp(joint.x[1]), rel=1e-3)


def test_input_temperature_recovers_what_made_the_labels():
    fitted = InputTemperature().fit(*noisy_margins(40_000, 1, widening=1.5, temperature=1.3))
    assert fitted.temperature_ == pytest.approx(1.3, rel=0.1)
    assert fitted.widening_ == pytest.approx(1.5, rel=0.25)


def test_few_rows_do_not_make_the_variance_all_that_counts():
    """Labels that the variance says nothing about: without the prior a is in the thousands in many draws of 60 rows."""
    rng = np.random.default_rng(5)
    widest = []
    for _ in range(20):
        margin, variance = rng.normal(0, 3, 60), rng.gamma(0.7, 0.5, 60)
        labels = (rng.random(60) < 1 / (1 + np.exp(-margin))).astype(int)
        logits = np.stack([-margin / 2, margin / 2], axis=1)
        fitted = InputTemperature().fit(logits, labels, variance)
        widest.append(fitted.widening_ * math.pi / 8 * variance.mean())
    assert np.median(widest) < 0.5
    assert max(widest) < 20


def test_a_useless_variance_gives_temperature_scaling_to_the_bit():
    """Rows are more certain where the variance is larger, so any a > 0 hurts."""
    rng = np.random.default_rng(0)
    margin = rng.normal(0, 3, 2000)
    variance = np.abs(margin)
    labels = (rng.random(2000) < 1 / (1 + np.exp(-margin * (1 + variance)))).astype(int)
    logits = np.stack([-margin / 2, margin / 2], axis=1)
    plain, wide = Temperature().fit(logits, labels), InputTemperature().fit(logits, labels, variance)
    assert wide.widening_ == 0.0
    assert wide.temperature_ == plain.temperature_
    np.testing.assert_array_equal(wide.probabilities(logits, variance), plain.probabilities(logits))


def test_no_variance_at_all_is_a_of_zero(rows):
    logits, labels, _ = rows(200, 3)
    assert InputTemperature().fit(logits, labels, np.zeros(200)).widening_ == 0.0


def test_the_equation_of_the_docstring(rows):
    logits, labels, variance = noisy_margins(500, 2, widening=2.0, temperature=0.8)
    fitted = InputTemperature().fit(logits, labels, variance)
    assert fitted.widening_ > 0
    wide = fitted.temperature_ * np.sqrt(1 + fitted.widening_ * math.pi / 8 * variance)
    expected = np.exp(log_softmax(logits / wide[:, None], axis=1))
    np.testing.assert_allclose(fitted.probabilities(logits, variance), expected, rtol=1e-12)


@pytest.mark.parametrize("variance", [None, np.ones(3), -np.ones(100), np.full(100, np.nan)])
def test_a_variance_that_is_none_is_refused(rows, variance):
    logits, labels, _ = rows(100, 2)
    with pytest.raises(InputError, match="variance"):
        InputTemperature().fit(logits, labels, variance)


def test_margin_variance_by_hand():
    one_row = [[[3.0, 1.0, 0.0]], [[1.0, 2.0, 9.0]], [[5.0, 3.0, -9.0]]]  # mean 3, 2, 0: margins 2, -1, 2
    np.testing.assert_allclose(margin_variance(one_row), [np.var([2, -1, 2], ddof=1)])


def test_margin_variance_needs_two_passes():
    with pytest.raises(InputError, match="at least 2 passes"):
        margin_variance(np.zeros((1, 4, 3)))
