"""Temperature and input temperature against slow, independent searches and scikit-learn; the variance of a margin."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LinearRegression

from reference import draw_logits
from uatlite.errors import InputError
from uatlite.predictive import OFFSET, PassLogits, logit_features, margin_variance
from uatlite.trust.calibrators import TEMPERATURE_BOUNDS, InputTemperature, Temperature, best_share, stratified_folds
from uatlite.trust.distribution import pass_probabilities, predictive, probabilities


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


def test_temperature_is_found_to_one_in_a_million():
    """Two rows' worth of algebra: margin m right in a share s of rows gives sigmoid(m/T) = s."""
    rows, right, margin = 1000, 870, 7.0
    logits = np.tile([margin, 0.0], (rows, 1))
    labels = (np.arange(rows) >= right).astype(int)
    expected = margin / math.log(right / (rows - right))
    assert Temperature.fit(logits, labels).temperature == pytest.approx(expected, rel=1e-9)


def test_without_a_minimiser_the_bounds_hold():
    logits, _, _ = draw_logits(100, 3)
    separable = Temperature.fit(logits, logits.argmax(axis=1))
    misleading = Temperature.fit(logits, logits.argmin(axis=1))
    assert (separable.temperature, misleading.temperature) == TEMPERATURE_BOUNDS
    constant = Temperature.fit(np.zeros((100, 2)), np.arange(100) % 2)
    assert constant.temperature == 1.0


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


# --- input temperature


def binary(margin, log_odds, rng):
    """Logits (rows, 2) with these margins, and labels of which class 1 has these log-odds."""
    labels = (rng.random(len(margin)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    return np.stack([-margin / 2, margin / 2], axis=1), labels


def noisy_margins(rows, seed, widening, temperature):
    """Binary rows whose labels follow sigmoid(d / (T·sqrt(1 + a·π/8·σ²))) exactly."""
    rng = np.random.default_rng(seed)
    margin, variance = rng.normal(0, 4, rows), rng.gamma(0.7, 4.0, rows)
    return *binary(margin, margin / (temperature * np.sqrt(1 + widening * math.pi / 8 * variance)), rng), variance


def test_input_temperature_matches_a_joint_search():
    logits, labels, variance = noisy_margins(3000, 0, widening=1.5, temperature=1.3)

    def loss(x):
        scale = np.exp(x[0]) * np.sqrt(1 + np.exp(x[1]) * math.pi / 8 * variance)
        widening = np.exp(x[1]) * math.pi / 8 * variance.mean()
        return nll(logits / scale[:, None], labels) + math.log(1 + widening) / len(labels)

    joint = minimize(loss, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 4000})
    found = InputTemperature.fit(logits, labels, variance)
    assert found.temperature == pytest.approx(np.exp(joint.x[0]), rel=1e-4)
    assert found.widening == pytest.approx(np.exp(joint.x[1]), rel=1e-3)


def test_few_rows_do_not_make_the_variance_all_that_counts():
    """Labels that the variance says nothing about: without the prior a is in the thousands in many draws of 60 rows."""
    rng = np.random.default_rng(5)
    widest = []
    for _ in range(20):
        margin, variance = rng.normal(0, 3, 60), rng.gamma(0.7, 0.5, 60)
        fitted = InputTemperature.fit(*binary(margin, margin, rng), variance)
        widest.append(fitted.widening * math.pi / 8 * variance.mean())
    assert np.median(widest) < 0.5
    assert max(widest) < 20


def test_a_useless_variance_gives_temperature_scaling_to_the_bit():
    """Rows are more certain where the variance is larger, so any a > 0 hurts."""
    rng = np.random.default_rng(0)
    margin = rng.normal(0, 3, 2000)
    variance = np.abs(margin)
    logits, labels = binary(margin, margin * (1 + variance), rng)
    plain, wide = Temperature.fit(logits, labels), InputTemperature.fit(logits, labels, variance)
    assert wide.widening == 0.0
    assert wide.temperature == plain.temperature
    np.testing.assert_array_equal(wide.probabilities(logits, variance), plain.probabilities(logits))
    assert InputTemperature.fit(logits, labels, np.zeros(2000)).widening == 0.0


@pytest.mark.parametrize("variance", [None, np.ones(3), -np.ones(100), np.full(100, np.nan)])
def test_a_variance_that_is_none_is_refused(variance):
    logits, labels, _ = draw_logits(100, 2)
    with pytest.raises(InputError, match="variance"):
        InputTemperature.fit(logits, labels, variance)


def unusual(rows, seed, share):
    """Rows whose variance falls with the margin, times e^(normal); `share` of that deviation counts for the labels."""
    rng = np.random.default_rng(seed)
    margin, deviation = rng.normal(0, 4, rows), rng.normal(0, 1.5, rows)
    usual = 1.0 - 0.3 * np.abs(margin)
    log_odds = margin / np.sqrt(1 + 3.0 * math.pi / 8 * np.exp(usual + share * deviation))
    return *binary(margin, log_odds, rng), np.exp(usual + deviation)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_it_learns_how_much_of_the_unusual_counts(share):
    logits, labels, variance = unusual(20_000, 3, share)
    fitted = InputTemperature.fit(logits, labels, variance)
    assert fitted.share == pytest.approx(share, abs=0.25)
    assert fitted.widening > 0
    new, right, spread = unusual(20_000, 4, share)
    plain = Temperature.fit(logits, labels)
    assert nll(np.log(fitted.probabilities(new, spread)), right) < nll(np.log(plain.probabilities(new)), right)


def test_few_rows_count_on_what_is_usual():
    """The prior: labels that the deviation says nothing about, 150 rows."""
    shares = [InputTemperature.fit(*unusual(150, seed, 0.0)).share for seed in range(20)]
    assert np.mean(shares) < 0.5


def test_the_usual_variance_is_a_linear_regression():
    logits, labels, variance = unusual(300, 5, 0.5)
    fitted = InputTemperature.fit(logits, labels, variance)
    features, logs = logit_features(logits), np.log(variance + OFFSET)
    expected = LinearRegression().fit(features, logs).predict(features)
    np.testing.assert_allclose(features @ fitted.usual[:-1] + fitted.usual[-1], expected, atol=1e-8)
    mixed = np.clip(expected + 0.25 * (logs - expected), logs.min(), logs.max())
    fitted = replace(fitted, share=0.25)
    np.testing.assert_allclose(np.log(fitted.effective_variance(logits, variance) + OFFSET), mixed, atol=1e-8)
    wide = fitted.temperature * np.sqrt(1 + fitted.widening * math.pi / 8 * (np.exp(mixed) - OFFSET))
    expected = np.exp(log_softmax(logits / wide[:, None], axis=1))
    np.testing.assert_allclose(fitted.probabilities(logits, variance), expected, rtol=1e-6)


def test_of_equal_shares_the_smaller_is_taken():
    logits, labels, variance = unusual(200, 6, 1.0)
    assert best_share(logits, labels, lambda share: variance) == 0.0
    assert best_share(logits, labels, lambda share: np.zeros(200)) == 0.0


def test_new_variances_keep_to_the_range_of_the_validation_rows():
    logits, labels, variance = unusual(500, 7, 1.0)
    fitted = InputTemperature.fit(logits, labels, variance)
    for factor in (1e-9, 1e9):
        found = fitted.effective_variance(logits, variance * factor)
        assert found.min() >= variance.min() * (1 - 1e-6)
        assert found.max() <= variance.max() * (1 + 1e-6)


def test_all_passes_of_a_row_have_its_temperature():
    logits, labels, variance = unusual(400, 8, 0.5)
    fitted = replace(InputTemperature.fit(logits, labels, variance), share=0.5)  # so that the logits matter
    rng = np.random.default_rng(0)
    passes = PassLogits(logits[None] + rng.normal(0, 1, (6, 400, 2)))
    effective = fitted.effective_variance(passes.mean_logits, passes.margin_variance)
    wide = fitted.temperature * np.sqrt(1 + fitted.widening * math.pi / 8 * effective)
    found = pass_probabilities(passes, fitted)
    np.testing.assert_allclose(found, np.exp(log_softmax(passes.logits / wide[:, None], axis=2)), rtol=1e-9)
    np.testing.assert_allclose(
        probabilities(passes, fitted), fitted.probabilities(passes.mean_logits, passes.margin_variance), rtol=1e-12
    )
    given = PassLogits(logits[None], variance[:, None])
    gaussian = predictive(given, fitted)
    np.testing.assert_allclose(gaussian.probabilities, fitted.probabilities(logits, variance), rtol=1e-12)
    assert (gaussian.mutual_information > 0).all()
