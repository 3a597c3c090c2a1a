"""Risk-coverage curves against plain loops and against every order of tied rows."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from by_hand import ranked_errors
from uatlite.errors import ConfigurationError
from uatlite.metrics.accuracy import accuracy
from uatlite.metrics.selective import accuracy_at, augrc, aurc, count_at, coverage_at, e_aurc, risk_at_coverage


def test_curves_by_the_definition(case):
    probabilities, labels = case
    errors = ranked_errors(probabilities.max(axis=1), probabilities.argmax(axis=1) != labels)
    n = len(errors)
    running = [sum(errors[:k]) for k in range(n + 1)]
    assert aurc(*case) == pytest.approx(np.mean([running[k] / k for k in range(1, n + 1)]), abs=1e-12)
    trapezoids = [(running[k - 1] + running[k]) / 2 / n / n for k in range(1, n + 1)]
    assert augrc(*case) == pytest.approx(sum(trapezoids), abs=1e-12)
    for coverage in (0.3, 0.7, 1.0):
        k = int(np.ceil(coverage * n))
        assert risk_at_coverage(*case, coverage) == pytest.approx(running[k] / k, abs=1e-12)


def test_excess_aurc_by_the_definition(case):
    best = np.sort(np.round(np.repeat([0.0, 1.0], [c := round(accuracy(*case) * len(case[1])), len(case[1]) - c])))
    ideal = np.mean(best.cumsum() / np.arange(1, len(best) + 1))
    assert e_aurc(*case) == pytest.approx(aurc(*case) - ideal, abs=1e-12)
    assert e_aurc(*case) >= -1e-12


@given(st.lists(st.tuples(st.sampled_from([0.6, 0.7, 0.9]), st.booleans()), min_size=1, max_size=6))
def test_ties_are_averaged_over_every_order(rows):
    confidence, correct = np.array([c for c, _ in rows]), np.array([r for _, r in rows])
    areas = []
    for order in permutations(range(len(rows))):
        shuffled = np.array(order)
        ranked = shuffled[np.argsort(-confidence[shuffled], kind="stable")]
        areas.append(np.mean(np.cumsum(~correct[ranked]) / np.arange(1, len(rows) + 1)))
    probabilities = np.column_stack([confidence, 1 - confidence])
    assert aurc(probabilities, 1 - correct.astype(int)) == pytest.approx(np.mean(areas), abs=1e-12)


def test_augrc_from_the_auroc_of_scikit_learn(smooth_case, tied_case):
    for probabilities, labels in (smooth_case, tied_case):
        correct = probabilities.argmax(axis=1) == labels
        a = correct.mean()
        expected = (1 - roc_auc_score(correct, probabilities.max(axis=1))) * a * (1 - a) + (1 - a) ** 2 / 2
        assert augrc(probabilities, labels) == pytest.approx(expected, abs=1e-12)


def test_coverage_rounds_up_to_whole_rows_but_not_on_an_ulp():
    confidence = np.linspace(0.9, 0.6, 100)
    correct = np.arange(100) < 55
    probabilities = np.column_stack([confidence, 1 - confidence])
    assert 0.55 * 100 > 55  # what the guard is for
    assert risk_at_coverage(probabilities, 1 - correct.astype(int), 0.55) == 0
    assert risk_at_coverage(probabilities, 1 - correct.astype(int), 0.551) == pytest.approx(1 / 56)


def test_thresholds_admit_only_what_exceeds_them():
    probabilities, labels = [[0.9, 0.1], [0.91, 0.09], [0.95, 0.05], [0.6, 0.4]], [0, 0, 1, 0]
    assert coverage_at(probabilities, labels, 0.9) == 0.5
    assert count_at(probabilities, labels, 0.9) == 2
    assert accuracy_at(probabilities, labels, 0.9) == 0.5
    assert coverage_at(probabilities, labels, tau=0.95) == 0
    assert np.isnan(accuracy_at(probabilities, labels, 0.95))


def test_a_threshold_is_a_probability_and_a_coverage_above_zero_and_at_most_one():
    for tau, coverage in ((-0.1, 0.0), (1.1, 1.5), (float("nan"), float("nan"))):
        with pytest.raises(ConfigurationError, match="tau="):
            coverage_at([[0.5, 0.5]], [0], tau)
        with pytest.raises(ConfigurationError, match="coverage="):
            risk_at_coverage([[0.5, 0.5]], [0], coverage)
