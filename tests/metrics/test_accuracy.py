"""Accuracy, proper scores and detection against scikit-learn; the split of the Brier score against its definition."""

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    f1_score,
    log_loss,
    roc_auc_score,
    roc_curve,
)

from by_hand import bins_of
from uatlite.errors import InputError
from uatlite.metrics.accuracy import (
    accuracy,
    aupr,
    auroc,
    brier,
    error_aupr,
    error_auroc,
    error_fpr95,
    fpr95,
    macro_f1,
    nll,
)
from uatlite.metrics.calibration import brier_calibration, brier_refinement


def test_accuracy_and_macro_f1_are_those_of_scikit_learn(case):
    probabilities, labels = case
    predicted = probabilities.argmax(axis=1)
    assert accuracy(probabilities, labels) == pytest.approx(accuracy_score(labels, predicted), abs=1e-12)
    expected = f1_score(labels, predicted, average="macro", zero_division=0)
    assert macro_f1(probabilities, labels) == pytest.approx(expected, abs=1e-12)


def test_nll_and_brier_are_those_of_scikit_learn(case):
    probabilities, labels = case
    classes = np.arange(probabilities.shape[1])
    if len(classes) == 1:
        pytest.skip("scikit-learn scores no task of one class")
    assert nll(*case) == pytest.approx(log_loss(labels, probabilities, labels=classes), abs=1e-9)
    expected = brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)
    assert brier(*case) == pytest.approx(expected, abs=1e-12)


def test_one_class_is_never_wrong():
    assert nll(np.ones((3, 1)), [0, 0, 0]) == brier(np.ones((3, 1)), [0, 0, 0]) == 0


def test_a_probability_of_zero_costs_36_nats_and_not_infinity():
    assert nll([[1.0, 0.0]], [1]) == pytest.approx(-np.log(2.0**-52))


def test_the_two_parts_of_the_brier_score(case):
    probabilities, labels = case
    calibration = refinement = 0.0
    for c, p in enumerate(probabilities.T):
        for gaps in bins_of(p, p - (labels == c)):
            calibration += len(gaps) * gaps.mean() ** 2 / len(labels)
            refinement += len(gaps) * gaps.var() / len(labels)
    assert brier_calibration(*case) == pytest.approx(calibration, abs=1e-12)
    assert brier_refinement(*case) == pytest.approx(refinement, abs=1e-12)
    assert brier_calibration(*case) + brier_refinement(*case) == pytest.approx(brier(*case), abs=1e-12)


def scikit_fpr95(positives, scores):
    fpr, tpr, _ = roc_curve(positives, scores, drop_intermediate=False)
    return float(fpr[np.argmax(tpr >= 0.95 - 1e-12)])


@pytest.mark.parametrize("decimals", [1, 2, 9])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.95])
def test_detection_is_that_of_scikit_learn(decimals, share):
    generator = np.random.default_rng(decimals)
    positives = generator.random(200) < share
    scores = np.round(generator.normal(size=200) + positives, decimals)
    assert auroc(scores, positives) == pytest.approx(roc_auc_score(positives, scores), abs=1e-12)
    assert aupr(scores, positives) == pytest.approx(average_precision_score(positives, scores), abs=1e-12)
    assert fpr95(scores, positives) == pytest.approx(scikit_fpr95(positives, scores), abs=1e-12)


def test_errors_are_the_positives_and_doubt_is_the_score(case):
    probabilities, labels = case
    errors, doubt = probabilities.argmax(axis=1) != labels, -probabilities.max(axis=1)
    if errors.all() or not errors.any():
        for metric in (error_auroc, error_aupr, error_fpr95):
            assert np.isnan(metric(probabilities, labels))
        return
    assert error_auroc(*case) == pytest.approx(roc_auc_score(errors, doubt), abs=1e-12)
    assert error_aupr(*case) == pytest.approx(average_precision_score(errors, doubt), abs=1e-12)
    assert error_fpr95(*case) == pytest.approx(scikit_fpr95(errors, doubt), abs=1e-12)


def test_nineteen_of_twenty_positives_are_95_percent():
    scores, positives = np.append(np.arange(20, 0, -1), [0.5, 1.5]), np.append(np.ones(20), [0, 0])
    assert 19 / 20 < 0.95000001
    assert fpr95(scores, positives) == 0


BAD = {
    "shapes": ([0.1, 0.2], [True], r"positives have shape \(1,\); allowed is \(2,\)"),
    "empty": ([], [], r"shape \(0,\); allowed is \(rows,\), rows ≥ 1"),
    "nan": ([0.1, np.nan], [True, False], r"scores\[1\] is nan"),
    "labels": ([0.1, 0.2], [0, 2], r"positives\[1\] is .*2.*; allowed are True and False"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_is_refused(fault):
    scores, positives, message = BAD[fault]
    for metric in (auroc, aupr, fpr95):
        with pytest.raises(InputError, match=message):
            metric(scores, positives)
