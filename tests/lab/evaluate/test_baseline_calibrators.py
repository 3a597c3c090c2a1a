"""Platt, vector scaling, histogram binning and isotonic against scikit-learn and against hand counting; `auto`."""

import numpy as np
import pytest
from scipy.special import expit, log_softmax, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression

from reference import draw_logits
from uatlite.lab.evaluate.baseline_calibrators import (
    EVALUATED,
    OneVsRest,
    VectorScaling,
    fit_auto,
    fit_bins,
    fit_sigmoid,
    odds_of,
)
from uatlite.trust.calibrators import CALIBRATORS, Temperature


class GivenLogOdds(ClassifierMixin, BaseEstimator):
    """A "model" whose inputs already are its decision values: lets scikit-learn calibrate what we calibrate."""

    def fit(self, features, labels):
        self.classes_ = np.unique(labels)
        return self

    def decision_function(self, features):
        return features[:, 1] if len(self.classes_) == 2 else features

    def predict(self, features):
        return self.classes_[features.argmax(axis=1)]


def test_log_odds_are_those_of_the_softmax():
    logits, _, _ = draw_logits(50, 4)
    np.testing.assert_allclose(odds_of(logits), logit(softmax(logits, axis=1)), rtol=1e-9)
    binary, _, _ = draw_logits(50, 2)
    np.testing.assert_allclose(odds_of(binary)[:, 1], binary[:, 1] - binary[:, 0])
    np.testing.assert_allclose(odds_of(np.array([[1e4, -1e4], [50.0, 0.0], [0.0, 0.0]]))[:, 0], [2e4, 50.0, 0.0])


@pytest.mark.parametrize("classes", [2, 4])
def test_platt_is_scikit_learns(classes):
    logits, labels, _ = draw_logits(600, classes)
    features = odds_of(logits)
    model = FrozenEstimator(GivenLogOdds().fit(features, labels))
    theirs = CalibratedClassifierCV(model, method="sigmoid").fit(features, labels).predict_proba(features)
    np.testing.assert_allclose(EVALUATED["platt"](logits, labels, None).probabilities(logits), theirs, atol=2e-4)


def test_platt_has_no_slope_at_the_smoothed_targets():
    logits, labels, _ = draw_logits(300, 2)
    margin, positives = logits[:, 1] - logits[:, 0], labels.sum()
    targets = np.where(labels == 1, (positives + 1) / (positives + 2), 1 / (len(labels) - positives + 2))
    (slope,), (offset,) = fit_sigmoid(margin, labels.astype(float))
    excess = expit(slope * margin + offset) - targets
    np.testing.assert_allclose([excess.sum(), (excess * margin).sum()], 0.0, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
def test_isotonic_is_scikit_learns_up_to_the_ends(classes):
    logits, labels, _ = draw_logits(600, classes)
    features, shares = odds_of(logits), []
    for k in range(classes):
        plain = IsotonicRegression(out_of_bounds="clip").fit(features[:, k], labels == k).predict(features[:, k])
        share = (labels == k).mean()
        shares.append(np.clip(plain, share / 601, (600 + share) / 601))
    expected = np.stack(shares, axis=1)
    probs = EVALUATED["isotonic"](logits, labels, None).probabilities(logits)
    np.testing.assert_allclose(probs, expected / expected.sum(axis=1, keepdims=True))


def test_histogram_by_hand():
    """Two hundred rows in ten bins: of the lowest twenty 3, of the highest twenty 16 are of the class."""
    feature, positive = np.arange(200.0), np.zeros(200)
    positive[[0, 5, 9]] = positive[180:196] = 1
    edges, frequencies = fit_bins(feature, positive)
    np.testing.assert_array_equal(np.bincount(np.searchsorted(edges, feature, side="right")), 20)
    share = 19 / 200
    np.testing.assert_allclose(frequencies[[0, 1, 9]], [(3 + share) / 21, share / 21, (16 + share) / 21])
    logits = np.stack([np.zeros(200), feature - 99.5], axis=1)
    probs = EVALUATED["histogram"](logits, positive.astype(int), None).probabilities(logits)
    np.testing.assert_allclose(probs[-1, 1], (16 + share) / 21)  # the two classes mirror each other


def test_vector_scaling_is_a_stationary_point():
    """The penalised NLL has no slope at the fit, by finite differences of an objective written out afresh."""
    logits, labels, _ = draw_logits(300, 3)
    fitted, temperature = VectorScaling.fit(logits, labels), Temperature.fit(logits, labels).temperature
    z = (logits - logits.mean(axis=1, keepdims=True)) / temperature

    def objective(x):
        loss = -log_softmax(z * x[:3] + x[3:], axis=1)[np.arange(300), labels].sum()
        return loss + ((x[:3] - 1) ** 2).sum() / 2 + (x[3:] ** 2).sum() / 2

    at = np.concatenate([fitted.weights * temperature, fitted.biases])
    for step in 1e-4 * np.eye(6):
        assert (objective(at + step) - objective(at - step)) / 2e-4 == pytest.approx(0, abs=1e-3)


def test_vector_scaling_undoes_a_bias_that_temperature_cannot():
    logits, labels, _ = draw_logits(3000, 3, overconfidence=1.0)
    biased = logits + np.array([2.0, 0.0, -1.0])

    def loss(kind):
        return -np.log(kind.fit(biased, labels).probabilities(biased)[np.arange(3000), labels]).mean()

    assert loss(VectorScaling) < loss(Temperature) - 0.1


def telling_variance():
    rng = np.random.default_rng(0)
    margin, variance = rng.normal(0, 5, 3000), rng.choice([0.0, 60.0], 3000)
    labels = (rng.random(3000) < expit(margin / np.sqrt(1 + np.pi / 8 * variance))).astype(int)
    return np.stack([0 * margin, margin], axis=1), labels, variance


def one_class_without_rows():
    logits, labels, _ = draw_logits(200, 3)
    return logits, np.minimum(labels, 1), None


def biased_classes():
    logits, labels, variance = draw_logits(2000, 3, overconfidence=1.0)
    return logits + np.array([3.0, 0.0, -2.0]), labels, variance


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        (draw_logits(3000, 3, overconfidence=1.0), {"none"}),
        (
            draw_logits(500, 3, overconfidence=3.0),
            {"input-temperature"},
        ),  # by its prior near a temperature
        ((*draw_logits(500, 3, overconfidence=3.0)[:2], None), {"temperature"}),
        (biased_classes(), {"VectorScaling", "platt"}),
        (telling_variance(), {"input-temperature"}),
        (one_class_without_rows(), {"none", "temperature"}),
    ],
)
def test_auto_takes_the_simplest_that_will_do(rows, chosen):
    fitted = fit_auto(*rows)
    names = {kind: name for name, kind in CALIBRATORS.items()}
    name = fitted.form if isinstance(fitted, OneVsRest) else names.get(type(fitted), type(fitted).__name__)
    assert name in chosen
