"""Accuracy, proper scores and detection against scikit-learn; the split of the Brier score against its definition."""

import numpy as np
import pytest
from sklearn import metrics as sklearn

from by_hand import bins_of
from uatlite import metrics
from uatlite.errors import InputError
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.intervals import METRICS


def test_scores_of_the_probabilities_are_those_of_scikit_learn(case):
    probabilities, labels = case
    predicted, classes = probabilities.argmax(axis=1), np.arange(probabilities.shape[1])
    expected = {
        "accuracy": sklearn.accuracy_score(labels, predicted),
        "macro_f1": sklearn.f1_score(labels, predicted, average="macro", zero_division=0),
    }
    if len(classes) > 1:  # scikit-learn scores no task of one class
        expected["nll"] = sklearn.log_loss(labels, probabilities, labels=classes)
        expected["brier"] = sklearn.brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)
    assert {name: METRICS[name](*case) for name in expected} == pytest.approx(expected, abs=1e-9)


def test_one_class_is_never_wrong():
    assert metrics.nll(np.ones((3, 1)), [0, 0, 0]) == metrics.brier(np.ones((3, 1)), [0, 0, 0]) == 0


def test_a_probability_of_zero_costs_36_nats_and_not_infinity():
    assert metrics.nll([[1.0, 0.0]], [1]) == pytest.approx(-np.log(2.0**-52))


def test_the_two_parts_of_the_brier_score(case):
    probabilities, labels = case
    calibration = refinement = 0.0
    for c, p in enumerate(probabilities.T):
        for gaps in bins_of(p, p - (labels == c)):
            calibration += len(gaps) * gaps.mean() ** 2 / len(labels)
            refinement += len(gaps) * gaps.var() / len(labels)
    found = metrics.brier_calibration(*case), metrics.brier_refinement(*case)
    assert found == pytest.approx((calibration, refinement), abs=1e-12)
    assert sum(found) == pytest.approx(metrics.brier(*case), abs=1e-12)


def scikit_fpr95(positives, scores):
    fpr, tpr, _ = sklearn.roc_curve(positives, scores, drop_intermediate=False)
    return float(fpr[np.argmax(tpr >= 0.95 - 1e-12)])


def detection_of_scikit_learn(positives, scores):
    return {
        "auroc": sklearn.roc_auc_score(positives, scores),
        "aupr": sklearn.average_precision_score(positives, scores),
        "fpr95": scikit_fpr95(positives, scores),
    }


@pytest.mark.parametrize("decimals", [1, 2, 9])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.95])
def test_detection_is_that_of_scikit_learn(decimals, share):
    generator = np.random.default_rng(decimals)
    positives = generator.random(200) < share
    scores = np.round(generator.normal(size=200) + positives, decimals)
    found = {name: getattr(metrics, name)(scores, positives) for name in DETECTION}
    assert found == pytest.approx(detection_of_scikit_learn(positives, scores), abs=1e-12)


def test_errors_are_the_positives_and_doubt_is_the_score(case):
    probabilities, labels = case
    errors, doubt = probabilities.argmax(axis=1) != labels, -probabilities.max(axis=1)
    found = {name: METRICS[f"error_{name}"](*case) for name in DETECTION}
    expected = dict.fromkeys(DETECTION, np.nan) if len(set(errors)) == 1 else detection_of_scikit_learn(errors, doubt)
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_nineteen_of_twenty_positives_are_95_percent():
    scores, positives = np.append(np.arange(20, 0, -1), [0.5, 1.5]), np.append(np.ones(20), [0, 0])
    assert 19 / 20 < 0.95000001
    assert metrics.fpr95(scores, positives) == 0


BAD = {
    "shapes": ([0.1, 0.2], [True], r"positives have shape \(1,\); allowed is \(2,\)"),
    "empty": ([], [], r"shape \(0,\); allowed is \(rows,\), rows ≥ 1"),
    "nan": ([0.1, np.nan], [True, False], r"scores\[1\] is nan"),
    "labels": ([0.1, 0.2], [0, 2], r"positives\[1\] is .*2.*; allowed are True and False"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_refused(fault):
    scores, positives, message = BAD[fault]
    for metric in (metrics.auroc, metrics.aupr, metrics.fpr95):
        with pytest.raises(InputError, match=message):
            metric(scores, positives)
