"""Abstention rules: the scores, the bounds against scipy's and against sums written out, the thresholds by hand."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.stats import binomtest

from by_hand import again, binomial_tail
from reference import rule_of
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.predictive import predict
from uatlite.trust.binomial import allowed_errors, coverage_interval, risk_upper_bound
from uatlite.trust.rule import SCORES, trust

SURE = [[5.0, 0.0, 0.0], [5.1, 0.0, 0.0], [4.9, 0.0, 0.0]]
UNSURE = [[0.5, 0.0, 0.0], [2.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
PREDICTIVE = predict(np.stack([SURE, UNSURE], axis=1))  # (passes, rows, classes)


def test_of_every_score_higher_is_more_trustworthy():
    assert set(SCORES) == {"confidence", "logit-margin", "entropy", "mutual-information", "margin", "variance"}
    for name in SCORES:
        sure, unsure = trust(name, PREDICTIVE)
        assert sure > unsure, name
    with pytest.raises(ConfigurationError, match="Did you mean 'confidence'"):
        trust("confidense", PREDICTIVE)


@pytest.mark.parametrize("errors, answered", [(0, 1), (0, 59), (3, 100), (17, 40), (39, 40), (5, 5)])
def test_the_bound_is_clopper_pearson(errors, answered):
    bound = risk_upper_bound(errors, answered, 0.95)
    reference = binomtest(errors, answered, alternative="less").proportion_ci(0.95, method="exact").high
    assert bound == pytest.approx(reference, rel=1e-9)
    assert binomial_tail(errors, answered, bound) == pytest.approx(1.0 if errors == answered else 0.05, rel=1e-9)


@pytest.mark.parametrize("target", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_the_allowed_errors_are_those_whose_bound_keeps_the_target(target, confidence):
    for answered, allowed in enumerate(allowed_errors(np.arange(120), target, confidence)):
        if allowed >= 0:
            assert binomial_tail(allowed, answered, target) <= 1 - confidence
            assert risk_upper_bound(allowed, answered, confidence) <= target + 1e-12
        assert binomial_tail(allowed + 1, answered, target) > 1 - confidence


def test_the_coverage_interval_by_hand():
    assert coverage_interval(60, 100, 0.95) == pytest.approx((0.6 - 0.13581, 0.6 + 0.13581), abs=1e-5)
    assert coverage_interval(100, 100, 0.95)[1] == 1.0
    assert coverage_interval(0, 100, 0.95)[0] == 0.0


VALUES = np.array([0.9, 0.8, 0.8, 0.7, 0.6])
ERRORS = np.array([False, False, True, True, False])


def test_a_given_threshold_by_hand():
    rule = rule_of(VALUES, ERRORS, 0.7, "threshold")
    assert (rule.reported, rule.errors, rule.coverage, rule.texts) == (3, 1, 0.6, 5)
    assert rule.risk_bound == risk_upper_bound(1, 3, 0.95)
    np.testing.assert_array_equal(rule.reports(VALUES), [True, True, True, False, False])
    at_the_threshold = rule_of(VALUES, ERRORS, 0.8, "threshold").reports([0.8, np.nextafter(0.8, 1)])
    np.testing.assert_array_equal(at_the_threshold, [False, True])


@pytest.mark.parametrize("target, answered", [(0.1, 1), (0.3, 3), (0.34, 3), (0.5, 3), (0.6, 4), (0.8, 5), (0.9, 5)])
def test_a_target_coverage_by_hand(target, answered):
    """j = ceil(6·target); the two rows that tie at 0.8 come together."""
    assert rule_of(VALUES, ERRORS, target, "coverage").reported == answered


def test_a_coverage_beyond_what_n_rows_can_say_answers_all():
    rule = rule_of(VALUES, ERRORS, 0.9, "coverage")  # ceil(6·0.9) = 6 > 5
    assert (rule.threshold, rule.coverage_interval) == (-math.inf, (1.0, 1.0))
    assert "Answer all" in rule.describe()
    assert str(rule) == rule.describe()


@pytest.mark.parametrize("target", [0.31, 0.5, 0.77])
def test_the_expected_coverage_is_at_least_the_target_and_hardly_more(target):
    rng = np.random.default_rng(0)
    rows, repetitions, right = 30, 4000, np.zeros(30, dtype=bool)
    true = [1 - rule_of(rng.random(rows), right, target, "coverage").threshold for _ in range(repetitions)]
    expected = math.ceil(target * (rows + 1)) / (rows + 1)
    assert target <= expected
    assert np.mean(true) == pytest.approx(expected, abs=4 * np.std(true) / math.sqrt(repetitions))


TEXTS = {"text": np.repeat(np.arange(60), 5), "texts": 60}
RULES = {
    "given": rule_of(VALUES, ERRORS, 0.7, "threshold"),
    "none answered": rule_of(VALUES, ERRORS, math.inf, "threshold"),
    "all answered": rule_of(VALUES, ERRORS, 0.9, "coverage", score="margin"),
    "no promise": rule_of(VALUES, ERRORS, 0.05),
    "each class": rule_of(VALUES, ERRORS, 0.9, predicted=np.array([0, 1, 1, 0, 0]), classes=("no", "yes")),
    "one class": rule_of(VALUES, ERRORS, 0.9, predicted=np.array([0, 1, 1, 0, 0]), classes=("a", "b"), only="a"),
    "texts": rule_of(np.tile(VALUES, 60), np.zeros(300, bool), 0.2, "precision", **TEXTS),
    "no promise of texts": rule_of(np.tile(VALUES, 60), np.tile(~ERRORS, 60), 0.06, "per-text", **TEXTS),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_comes_back_from_json(rule):
    assert again(rule) == rule


ALLOWED = {
    "given": RULES["given"].risk_bound, "none answered": None, "all answered": RULES["all answered"].risk_bound,
    "no promise": None, "each class": 0.9, "one class": None, "texts": 0.2, "no promise of texts": None,
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_allows_of_new_answers(name):
    assert RULES[name].allowed(100, 50) == ALLOWED[name]


def test_wrong_answers_a_text_are_a_share_of_the_answers_there_are():
    rule = rule_of(np.tile(VALUES, 60), np.zeros(300, bool), 0.2, "per-text", **TEXTS)
    assert rule.allowed(100, 50) == pytest.approx(0.4)


TWO, NO = [0.1, 0.2], np.zeros(0, dtype=bool)


@pytest.mark.parametrize("name", ["threshold", "coverage", "risk"])
def test_what_cannot_be_used_is_refused(name):
    rule = partial(rule_of, target=0.5, kind=name)
    for scores, wrong, change, error, message in (
        ([0.1, np.nan], np.zeros(2, dtype=bool), {}, InputError, "NaN"),
        (TWO, [0, 1], {}, InputError, "predicted != label"),
        (TWO, np.zeros(3, dtype=bool), {}, InputError, "shape"),
        ([], NO, {}, CalibrationError, "no calibration rows"),
        (VALUES, ERRORS, {"confidence": 95}, ConfigurationError, "confidence=95"),
        (VALUES, ERRORS, {"score": "magic"}, ConfigurationError, "score="),
    ):
        with pytest.raises(error, match=message):
            rule(scores, wrong, **change)


@pytest.mark.parametrize("name", ["coverage", "risk"])
def test_a_target_is_a_share_and_a_score_tells_rows_apart(name):
    with pytest.raises(ConfigurationError, match=r"five percent is 0\.05"):
        rule_of(VALUES, ERRORS, 5, name)
    with pytest.raises(CalibrationError, match="two passes or more"):
        rule_of(np.zeros(5), ERRORS, 0.5, name, score="variance")
    with pytest.raises(ConfigurationError, match="nan"):
        rule_of(VALUES, ERRORS, math.nan, "threshold")
