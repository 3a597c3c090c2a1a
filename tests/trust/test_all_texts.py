"""Promises about all texts: the test of errors by hand and against the truth in every branch, and a share to review."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from by_hand import again, binomial_tail, draw_scores
from reference import rule_of
from uatlite.errors import CalibrationError
from uatlite.trust.all_texts import REVIEW_SHARE, REVIEW_SHARES, LabelledScores, reviews_rule
from uatlite.trust.binomial import least_answers
from uatlite.trust.planners import RISKS
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import Wanted

NAMES = ("no", "yes")


def errors_rule(scores, wrong, target=0.05, **wanted):
    """The rule for a share of all texts that are answered wrongly."""
    return rule_of(scores, wrong, target, "errors", **wanted)


def slow_threshold(scores, wrong, target, level):
    """The definition: from the highest score down, all rows are counted, until the test does not reject."""
    last = math.inf
    for t in sorted({*scores, -math.inf}, reverse=True):
        errors = sum(e for s, e in zip(scores, wrong, strict=True) if s > t)
        if binomial_tail(errors, len(scores), target) > level:
            break
        last = t
    return last if any(s > last for s in scores) else math.inf


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(8, 70), st.integers(2, 30), st.sampled_from([0.1, 0.3]))
def test_the_threshold_is_the_slow_one(seed, rows, values, target):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, values, rows) / values  # many ties
    scores[0] = 1.0
    wrong = rng.random(rows) < 0.6 * (1 - scores)
    if binomial_tail(0, rows, target) > 0.2:
        with pytest.raises(CalibrationError, match="labelled texts without an error"):
            errors_rule(scores, wrong, target, confidence=0.8)
        return
    slow = slow_threshold(scores.tolist(), wrong.tolist(), target, 0.2)
    assert errors_rule(scores, wrong, target, confidence=0.8).threshold == slow


def test_the_threshold_by_hand():
    """100 rows allow one error at 5 %: P(Binomial(100, 0.05) ≤ 1) = 0.037, ≤ 2: 0.118. Rows that tie come together."""
    scores, wrong = np.arange(100, 0, -1) / 100, np.isin(np.arange(100), [10, 40, 60])
    rule = errors_rule(scores, wrong)
    assert (rule.threshold, rule.reported, rule.errors, rule.texts) == (scores[40], 40, 1, 100)
    scores[39] = scores[40]
    assert errors_rule(scores, wrong).reported == 39
    told = rule.describe()
    assert "Answer where confidence > 0.6: at most 5.00% of all texts are answered wrongly; 40.0% of rows" in told
    assert "1 of 100 wrongly (confidence 0.95, 100 calibration rows)" in told
    assert again(rule) == rule
    assert rule.allowed(1000, 400) == pytest.approx(0.125)  # 50 wrong answers in 1,000 texts


def test_59_rows_without_an_error_are_enough_and_58_say_so():
    scores = np.random.default_rng(0).random(59)
    rule = errors_rule(scores, np.zeros(59, dtype=bool))
    assert (rule.threshold, rule.coverage, rule.promised) == (-math.inf, 1.0, True)
    one = errors_rule(scores, scores == np.sort(scores)[30])
    assert one.reported == 28  # those above it
    message = r"5\.00% of all texts .* takes 59 labelled texts without an error, and 58 can decide; label 1 more, or"
    with pytest.raises(CalibrationError, match=message):
        errors_rule(scores[1:], np.zeros(58, dtype=bool))
    with pytest.raises(CalibrationError, match=r"or allow 5\.1%"):
        errors_rule(scores[1:], np.zeros(58, dtype=bool))
    assert errors_rule(scores[1:], np.zeros(58, dtype=bool), 0.051).promised


def test_where_the_surest_is_wrong_nothing_is_answered_and_it_says_why():
    scores = np.linspace(0, 1, 70)
    rule = errors_rule(scores, scores == 1)
    assert (rule.promised, rule.threshold, rule.reported) == (False, math.inf, 0)
    assert (
        "of the 1 that are surest 1 are wrong; allow more: they do promise 8.00%, with 100.0% answered" in rule.reason
    )
    assert rule.reason.endswith("for 5.00% it takes 23 more labelled rows, all of them right.")
    assert binomial_tail(1, 93, 0.05) <= 0.05 < binomial_tail(1, 92, 0.05)
    with pytest.raises(CalibrationError, match="no threshold can tell them apart"):
        errors_rule(np.ones(100), np.zeros(100, dtype=bool))


def exact_world(target, rows, rng, ties=False):
    """Scores that are uniform, and P(wrong and score > t) = target exactly at t = 0.4; below that all are wrong.

    With `ties` scores have ten values, and the first share above the target is that of 0.3.
    """
    scores = rng.random(rows)
    if ties:
        scores = np.floor(10 * scores) / 10
    wrong = rng.random(rows) < np.where(scores > 0.4, 1.0001 * target / (0.5 if ties else 0.6), 1.0)
    return scores, wrong


RATES = [(59, 0.05, 0.05), (100, 0.05, 0.05), (200, 0.05, 0.1), (400, 0.1, 0.05), (60, 0.2, 0.1)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("rows, target, level", RATES)
def test_the_level_is_kept_where_the_errors_are_a_hair_above_the_target(rows, target, level, ties):
    """The case in which it is broken most often: a threshold of 0.4 or less is reached just if few of its answers are
    wrong, with the probability P(Binomial(rows, target) ≤ allowed). So a level of one and a half times as much, one row
    too many or < for ≤ in the count of errors would be told.
    """
    rng, repetitions = np.random.default_rng(rows), 2000
    broken = 0
    for _ in range(repetitions):
        rule = errors_rule(*exact_world(target, rows, rng, ties), target, confidence=1 - level)
        broken += rule.threshold <= 0.4
    allowed = int(binom.ppf(level, rows, target))
    allowed -= binom.cdf(allowed, rows, target) > level
    rate = float(binom.cdf(allowed, rows, target))
    error = math.sqrt(rate * (1 - rate) / repetitions)
    assert rate <= level
    assert abs(broken / repetitions - rate) < 3.5 * error
    assert binom.cdf(allowed + 1, rows, target) > level  # one error more would break it too often


@pytest.mark.parametrize("rows", [59, 100, 400])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_all_right_all_wrong_and_between(rows, share):
    """Scores that say nothing: P(wrong and answered) is the share of wrong rows times the coverage."""
    rng, broken, repetitions = np.random.default_rng(rows), 0, 400
    for _ in range(repetitions):
        scores, wrong = rng.random(rows), rng.random(rows) < share
        rule = errors_rule(scores, wrong)
        answered = 0.0 if rule.threshold == math.inf else 1 - max(rule.threshold, 0.0)
        broken += share * answered > 0.05
    assert broken / repetitions <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / repetitions)
    if share == 0.0:
        assert rule.threshold == -math.inf


def test_where_it_answers_and_the_risk_alone_does_not():
    """R(t) = (1 - t)/4 is at most 5 % above 0.8; P(wrong and score > t) = (1 - t)²/4 above 0.553."""
    rng, shares = np.random.default_rng(5), []
    for _ in range(200):
        scores, wrong = draw_scores(200, rng)
        rule, risk = errors_rule(scores, wrong), rule_of(scores, wrong, 0.05)
        shares.append((1 - rule.threshold, rule.promised, risk.promised))
    coverage, promised, by_risk = np.mean(shares, axis=0)
    assert 0.25 < coverage < 0.447
    assert (promised, by_risk < 0.1) == (1.0, True)


def test_each_class_has_its_rows_at_its_part_of_the_level():
    rng = np.random.default_rng(0)
    scores, wrong = draw_scores(900, rng)
    predicted = (rng.random(900) < 0.4).astype(int)
    rule = errors_rule(scores, wrong, 0.08, predicted=predicted, classes=NAMES)
    for column, promise in enumerate(rule.per_kind):
        alone = errors_rule(scores[predicted == column], wrong[predicted == column], 0.08, confidence=0.975)
        assert (promise.threshold, promise.answers, promise.errors) == (alone.threshold, alone.texts, alone.errors)
    assert rule.texts == 900  # all of them decide
    assert "at most 8.00% of the texts of each class are answered wrongly" in rule.describe()


def test_a_class_that_is_missing_or_has_few_rows_is_not_answered():
    rng = np.random.default_rng(0)
    scores, wrong = draw_scores(300, rng)
    predicted = np.where(np.arange(300) < 40, 1, 0)
    rule = errors_rule(scores, wrong, 0.08, predicted=predicted, classes=(*NAMES, "never"))
    assert [promise.promised for promise in rule.per_kind] == [True, False, False]
    assert [promise.threshold for promise in rule.per_kind[1:]] == [math.inf, math.inf]
    for told in ("Never answer yes: 40 rows predicted yes cannot promise", "no labelled row is predicted never."):
        assert told in rule.describe()


@pytest.mark.parametrize("seed", range(3))
def test_the_promises_of_classes_hold_together(seed):
    """Two classes whose errors are a hair above the target below 0.4: either is broken in at most the level."""
    rng, broken, repetitions = np.random.default_rng(seed), 0, 500
    for _ in range(repetitions):
        scores, wrong = exact_world(0.1, 300, rng)
        rule = errors_rule(scores, wrong, 0.1, predicted=rng.integers(0, 2, 300), classes=NAMES, confidence=0.8)
        broken += any(promise.threshold <= 0.4 for promise in rule.per_kind)
    assert broken / repetitions <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / repetitions)


def test_rows_out_of_scope_do_not_decide():
    rng = np.random.default_rng(0)
    scores, wrong = draw_scores(300, rng)
    inside = rng.random(300) > 0.1
    rows = Labelled({"confidence": scores}, wrong | ~inside)
    rule = decide(rows, Wanted(kind="errors", target=0.05), inside=inside).rule
    assert rule.threshold == errors_rule(scores[inside], wrong[inside]).threshold
    assert rule.among == (300, int((~inside).sum()))


# --- wrong answers a text


def test_wrong_answers_a_text_need_as_many_texts():
    text, right = np.repeat(np.arange(60), 2), np.zeros(120, dtype=bool)
    with pytest.raises(CalibrationError, match="takes 59 labelled texts without an error, and 54 can decide"):
        rule_of(np.random.default_rng(0).random(120), right, 0.05, "per-text", text=text, texts=60)
    text = np.repeat(np.arange(66), 2)  # of which 7 plan
    rule = rule_of(
        np.random.default_rng(0).random(132), np.zeros(132, dtype=bool), 0.05, "per-text", text=text, texts=66
    )
    assert (rule.texts, rule.promised) == (59, True)


# --- a share to review


def test_the_share_to_review_and_the_bound_of_the_others_by_hand():
    """99 rows, 20 % to review: the 80th largest score of 99. The row there counts only if it is wrong."""
    scores, wrong = np.arange(99, 0, -1) / 100, np.isin(np.arange(99), [30, 70, 90])
    rule = rule_of(scores, wrong, 0.8, "coverage")
    assert (rule.reported, rule.errors) == (80, 2)
    bound = binomtest(2, 79, alternative="less").proportion_ci(0.95, method="exact").high
    assert rule.risk_bound == pytest.approx(bound)
    assert rule.allowed(1000, 800) == rule.risk_bound
    assert "about 192 of 1,000 texts to review" in rule.describe()
    assert f"at most {bound:.2%} of them wrongly (2 of 80 here)" in rule.describe()


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_the_bound_at_a_share_holds_and_is_not_too_wide(level):
    """The true risk of answering scores above t is (1 - t)/4; the threshold is chosen by scores alone."""
    rng, above, narrower, repetitions = np.random.default_rng(0), 0, 0, 3000
    for _ in range(repetitions):
        scores, wrong = draw_scores(120, rng)
        rule = reviews_rule(scores, wrong, 120, Wanted(kind="coverage", target=0.7, confidence=1 - level))
        above += (1 - rule.threshold) / 4 > rule.risk_bound
        other = reviews_rule(scores, wrong, 120, Wanted(kind="coverage", target=0.7, confidence=1 - 1.5 * level))
        narrower += (1 - other.threshold) / 4 > other.risk_bound
    error = math.sqrt(level * (1 - level) / repetitions)
    assert above / repetitions <= level + 2 * error
    assert narrower / repetitions > 1.15 * above / repetitions > 0.3 * level


def test_texts_out_of_scope_are_left_to_review_first():
    scores, wrong = np.arange(100, 0, -1) / 100, np.zeros(100, dtype=bool)
    inside = np.arange(100) % 2 == 0
    rows, wanted = Labelled({"confidence": scores}, wrong | ~inside), Wanted(kind="coverage", target=0.3)
    rule = decide(rows, wanted, inside=inside).rule
    assert (rule.reported, rule.errors, rule.coverage, rule.texts) == (31, 0, 0.31, 100)
    rule = decide(rows, Wanted(kind="coverage", target=0.8), inside=inside).rule
    assert (rule.threshold, rule.reported, rule.coverage) == (-math.inf, 50, 0.5)
    assert rule.coverage_interval[0] < 0.5 < rule.coverage_interval[1]


def test_a_threshold_of_other_texts_has_an_exact_bound():
    scores, wrong = draw_scores(200, np.random.default_rng(0))
    rule = LabelledScores("logit-margin", 0.9, scores, wrong).at(0.6)
    above = scores > 0.6
    bound = binomtest(int(wrong[above].sum()), int(above.sum()), alternative="less").proportion_ci(0.9, "exact").high
    assert (rule.kind, rule.score, rule.reported) == ("threshold", "logit-margin", above.sum())
    assert rule.risk_bound == pytest.approx(bound)


# --- all three side by side


def test_what_cannot_be_promised_comes_with_what_can():
    rng = np.random.default_rng(0)
    scores, wrong = draw_scores(200, rng)
    rows = Labelled({"confidence": scores}, wrong)
    decision = decide(rows, Wanted(kind="risk", target=0.03))
    assert not decision.rule.promised
    nearest, errors, review = decision.instead
    target = next(risk for risk in RISKS if risk > 0.03 and rule_of(scores, wrong, risk).promised)
    assert replace(nearest, among=(200, 0)) == rule_of(scores, wrong, target)
    assert errors.threshold == errors_rule(scores, wrong, 0.03).threshold
    assert (review.kind, review.reported) == ("coverage", math.ceil((1 - REVIEW_SHARE) * 201))
    assert decide(rows, Wanted(kind="risk", target=0.2)).instead == ()
    few = decide(rows.of(np.arange(200) < 30), Wanted(kind="risk", target=0.01)).instead
    assert [rule.kind for rule in few][-1] == "coverage"


def test_the_menu_has_all_three():
    rng = np.random.default_rng(1)
    scores, wrong = draw_scores(400, rng)
    menu = decide(Labelled({"margin": scores}, wrong), Wanted(), menu=True).menu
    for target, line in zip(RISKS, menu.errors, strict=True):
        assert line.rule == errors_rule(scores, wrong, target, score="margin") or not line.rule
        assert (line.rule is None) == (least_answers(0, target, 0.05) > 400)
    assert [line.target for line in menu.reviews] == list(REVIEW_SHARES)
    for line in menu.reviews:
        assert replace(line.rule, among=(400, 0)) == rule_of(scores, wrong, 1 - line.target, "coverage", score="margin")
    lines = menu.describe()
    assert "of all texts, at most so many are answered wrongly:" in lines
    assert lines[-2].startswith(" 50%  at most")
    assert again(menu) == menu


def test_few_rows_on_a_menu_say_how_many_it_takes():
    rng = np.random.default_rng(1)
    menu = decide(Labelled({"margin": rng.random(70)}, np.zeros(70, dtype=bool)), Wanted(), menu=True).menu
    assert menu.errors[0].describe() == "  1%  no promise; it takes 229 more labelled rows, all of them right"
    assert menu.errors[3].rule.coverage == 1.0
