"""Detection of errors and of out-of-scope rows against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from uatlite.errors import InputError
from uatlite.metrics.accuracy import aupr, auroc, error_aupr, error_auroc, error_fpr95, fpr95


def scikit_fpr95(positives: np.ndarray, scores: np.ndarray) -> float:
    fpr, tpr, _ = roc_curve(positives, scores, drop_intermediate=False)
    return float(fpr[np.argmax(tpr >= 0.95 - 1e-12)])


@pytest.mark.parametrize("decimals", [1, 2, 9])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.95])
def test_detection_is_that_of_scikit_learn(decimals: int, share: float) -> None:
    generator = np.random.default_rng(decimals)
    positives = generator.random(200) < share
    scores = np.round(generator.normal(size=200) + positives, decimals)
    assert auroc(scores, positives) == pytest.approx(roc_auc_score(positives, scores), abs=1e-12)
    assert aupr(scores, positives) == pytest.approx(average_precision_score(positives, scores), abs=1e-12)
    assert fpr95(scores, positives) == pytest.approx(scikit_fpr95(positives, scores), abs=1e-12)


def test_errors_are_the_positives_and_doubt_is_the_score(case) -> None:
    probabilities, labels = case
    errors, doubt = probabilities.argmax(axis=1) != labels, -probabilities.max(axis=1)
    if errors.all() or not errors.any():
        for metric in (error_auroc, error_aupr, error_fpr95):
            assert np.isnan(metric(probabilities, labels))
        return
    assert error_auroc(*case) == pytest.approx(roc_auc_score(errors, doubt), abs=1e-12)
    assert error_aupr(*case) == pytest.approx(average_precision_score(errors, doubt), abs=1e-12)
    assert error_fpr95(*case) == pytest.approx(scikit_fpr95(errors, doubt), abs=1e-12)


def test_a_perfect_score_and_its_opposite() -> None:
    positives = np.array([0, 0, 1, 1])
    assert (auroc(positives, positives), aupr(positives, positives), fpr95(positives, positives)) == (1, 1, 0)
    assert (auroc(-positives, positives), fpr95(-positives, positives)) == (0, 1)


def test_nineteen_of_twenty_positives_are_95_percent() -> None:
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
def test_bad_input_is_refused(fault: str) -> None:
    scores, positives, message = BAD[fault]
    for metric in (auroc, aupr, fpr95):
        with pytest.raises(InputError, match=message):
            metric(scores, positives)
