"""Platt, vector scaling, histogram binning and isotonic against scikit-learn and against hand counting."""

import numpy as np
import pytest
from scipy.special import expit, log_softmax, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from uatlite.errors import ConfigurationError
from uatlite.trust.calibrators import Temperature, VectorScaling
from uatlite.trust.one_vs_rest import HistogramBinning, Isotonic, Platt, log_odds


class GivenLogOdds(ClassifierMixin, BaseEstimator):
    """A "model" whose inputs already are its decision values: lets scikit-learn calibrate what we calibrate."""

    def fit(self, features, labels):
        self.classes_ = np.unique(labels)
        return self

    def decision_function(self, features):
        return features[:, 1] if len(self.classes_) == 2 else features

    def predict(self, features):
        return self.classes_[features.argmax(axis=1)]


def sklearn_calibrated(method, logits, labels):
    features = log_odds(logits)
    model = FrozenEstimator(GivenLogOdds().fit(features, labels))
    return CalibratedClassifierCV(model, method=method).fit(features, labels).predict_proba(features)


def test_log_odds_are_those_of_the_softmax(rows):
    logits, _, _ = rows(50, 4)
    np.testing.assert_allclose(log_odds(logits), logit(softmax(logits, axis=1)), rtol=1e-9)
    binary, _, _ = rows(50, 2)
    np.testing.assert_allclose(log_odds(binary)[:, 1], binary[:, 1] - binary[:, 0])
    np.testing.assert_allclose(log_odds(np.array([[1e4, -1e4], [50.0, 0.0], [0.0, 0.0]]))[:, 0], [2e4, 50.0, 0.0])


@pytest.mark.parametrize("classes", [2, 4])
def test_platt_is_scikit_learns(rows, classes):
    logits, labels, _ = rows(600, classes)
    ours = Platt().fit(logits, labels).probabilities(logits)
    np.testing.assert_allclose(ours, sklearn_calibrated("sigmoid", logits, labels), atol=2e-4)


def test_platt_has_the_logistic_regression_of_the_smoothed_targets(rows):
    """Each row twice, once as each class, weighted by its smoothed target: an unpenalised regression."""
    logits, labels, _ = rows(300, 2)
    margin = (logits[:, 1] - logits[:, 0])[:, None]
    positives = labels.sum()
    target = np.where(labels == 1, (positives + 1) / (positives + 2), 1 / (len(labels) - positives + 2))
    reference = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000).fit(
        np.concatenate([margin, margin]),
        np.repeat([1, 0], len(labels)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    fitted = Platt().fit(logits, labels)
    assert fitted.slopes_[1] == pytest.approx(reference.coef_[0, 0], rel=1e-5)
    assert fitted.offsets_[1] == pytest.approx(reference.intercept_[0], abs=1e-5)
    expected = expit(margin[:, 0] * fitted.slopes_[1] + fitted.offsets_[1])
    np.testing.assert_allclose(fitted.probabilities(logits)[:, 1], expected, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 4])
def test_isotonic_is_scikit_learns_up_to_the_ends(rows, classes):
    logits, labels, _ = rows(600, classes)
    fitted = Isotonic().fit(logits, labels)
    features = log_odds(logits)
    shares = []
    for k in range(classes):
        plain = IsotonicRegression(out_of_bounds="clip").fit(features[:, k], labels == k).predict(features[:, k])
        share = (labels == k).mean()
        shares.append(np.clip(plain, share / 601, (600 + share) / 601))
    expected = np.stack(shares, axis=1)
    np.testing.assert_allclose(fitted.probabilities(logits), expected / expected.sum(axis=1, keepdims=True))


def test_binary_isotonic_needs_no_normalising(rows):
    logits, labels, _ = rows(400, 2)
    fitted = Isotonic().fit(logits, labels)
    margin = log_odds(logits)[:, 1]
    np.testing.assert_allclose(
        fitted.probabilities(logits)[:, 1], np.interp(margin, fitted.knots_[1], fitted.values_[1]), atol=1e-12
    )


def test_histogram_by_hand():
    """Forty rows in two bins at the median margin: 3 of 20 and 16 of 20 are of class 1."""
    margin = np.arange(40) - 19.5
    logits = np.stack([np.zeros(40), margin], axis=1)
    labels = np.zeros(40, dtype=int)
    labels[[0, 5, 9]] = 1
    labels[20:36] = 1
    share = 19 / 40
    fitted = HistogramBinning(bins=2).fit(logits, labels)
    low, high = (3 + share) / 21, (16 + share) / 21
    np.testing.assert_allclose(fitted.probabilities(logits)[:, 1], np.repeat([low, high], 20))


def test_histogram_bins_hold_equal_mass(rows):
    logits, labels, _ = rows(500, 3)
    fitted = HistogramBinning(bins=10).fit(logits, labels)
    counts = np.bincount(np.searchsorted(fitted.edges_[0], log_odds(logits)[:, 0], side="right"))
    np.testing.assert_array_equal(counts, 50)


def test_one_bin_is_refused(rows):
    logits, labels, _ = rows(100, 2)
    with pytest.raises(ConfigurationError, match="bins=1"):
        HistogramBinning(bins=1).fit(logits, labels)


def test_vector_scaling_is_a_stationary_point(rows):
    """The penalised NLL has no slope at the fit, by finite differences of an objective written out afresh."""
    logits, labels, _ = rows(300, 3)
    fitted = VectorScaling(prior=0.5).fit(logits, labels)
    temperature = Temperature().fit(logits, labels).temperature_
    z = (logits - logits.mean(axis=1, keepdims=True)) / temperature

    def objective(x):
        loss = -log_softmax(z * x[:3] + x[3:], axis=1)[np.arange(300), labels].sum()
        return loss + ((x[:3] - 1) ** 2).sum() / (2 * 0.25) + (x[3:] ** 2).sum() / (2 * 0.25)

    at = np.concatenate([fitted.weights_ * temperature, fitted.biases_])
    for i in range(6):
        step = np.zeros(6)
        step[i] = 1e-4
        assert (objective(at + step) - objective(at - step)) / 2e-4 == pytest.approx(0, abs=1e-3)


def test_vector_scaling_undoes_a_bias_that_temperature_cannot(rows):
    logits, labels, _ = rows(3000, 3, overconfidence=1.0)
    biased = logits + np.array([2.0, 0.0, -1.0])

    def loss(kind):
        return -np.log(kind().fit(biased, labels).probabilities(biased)[np.arange(3000), labels]).mean()

    assert loss(VectorScaling) < loss(Temperature) - 0.1
