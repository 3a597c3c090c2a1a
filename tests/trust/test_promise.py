"""The promised risk: the search against a slow one, and the promise against the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import InputError
from uatlite.trust.promise import Start, lowest_in_sequence, plan_starts, target_risk


def tail(errors, answered, risk):
    return sum(math.comb(answered, k) * risk**k * (1 - risk) ** (answered - k) for k in range(errors + 1))


def slow_search(scores, errors, target, starts, grid):
    """The definition, over a fine grid of thresholds: level by level, from each start down to the next."""
    fallen, level = [], 0.0
    ends = [start.threshold for start in starts[1:]] + [-math.inf]
    for start, end in zip(starts, ends, strict=True):
        level += start.level
        for t in sorted({start.threshold, *(g for g in grid if end <= g <= start.threshold), end}, reverse=True):
            answered = [e for s, e in zip(scores, errors, strict=True) if s > t]
            if tail(sum(answered), len(answered), target) > level:
                level = 0.0
                break
            fallen.append(t)
    return min(fallen, default=math.inf)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 60), st.integers(3, 40), st.booleans())
def test_the_search_is_the_slow_one(seed, rows, values, two_starts):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, values, rows) / values  # many ties
    errors = rng.random(rows) < 0.5 * (1 - scores)
    first, second = sorted(rng.choice(np.arange(-1, 2 * values) / (2 * values), 2, replace=False), reverse=True)
    starts = [Start(float(first), 0.3), Start(float(second), 0.2)] if two_starts else [Start(float(first), 0.5)]
    grid = [*(np.arange(-1, 4 * values) / (4 * values)).tolist(), -math.inf]
    slow = slow_search(scores, errors, 0.4, starts, grid)
    fast = lowest_in_sequence(scores, errors, 0.4, starts)
    np.testing.assert_array_equal(scores > fast, scores > slow)


def test_a_run_that_arrives_hands_its_level_on():
    """10 rows right, then one wrong, target 0.3: p = 0.028 at ten answers, 0.113 at eleven."""
    scores, errors = np.arange(11, 0, -1) / 11, np.arange(11) == 10
    top, lower = 5.5 / 11, 1.5 / 11  # six answers: p = 0.118; ten answers
    assert tail(0, 6, 0.3) == pytest.approx(0.1176, abs=1e-4)
    assert tail(1, 11, 0.3) == pytest.approx(0.1130, abs=1e-4)
    handed_on = lowest_in_sequence(scores, errors, 0.3, [Start(top, 0.119), Start(lower, 0.001)])
    assert handed_on == -math.inf
    lost = lowest_in_sequence(scores, errors, 0.3, [Start(top, 0.110), Start(lower, 0.010)])
    assert lost == math.inf
    second_alone = lowest_in_sequence(scores, errors, 0.3, [Start(top, 0.08), Start(lower, 0.04)])
    assert second_alone == pytest.approx(1 / 11)


def test_the_starts_share_the_level_and_fall():
    pilot = np.random.default_rng(0).random(500)
    starts = plan_starts(pilot, 500, 0.1, 0.95)
    assert sum(start.level for start in starts) == pytest.approx(0.05)
    assert [start.threshold for start in starts] == sorted((start.threshold for start in starts), reverse=True)
    assert len(starts) == 2
    assert len(plan_starts(pilot, 80, 0.05, 0.95)) == 1
    assert plan_starts(pilot, 58, 0.05, 0.95) == []


def test_the_starts_do_not_read_labels_or_the_rows(sample):
    """Else the promise would be void: change every label and score, and the plan is the same."""
    rng = np.random.default_rng(1)
    pilot = rng.random(300)
    assert plan_starts(pilot, 400, 0.1, 0.95) == plan_starts(rng.permutation(pilot), 400, 0.1, 0.95)


def test_perfect_rows_are_all_answered():
    rng = np.random.default_rng(0)
    rule = target_risk(rng.random(300), np.zeros(300, dtype=bool), 0.05, pilot=rng.random(300))
    assert rule.promised
    assert rule.coverage == 1.0
    assert rule.threshold == -math.inf


def test_too_few_rows_promise_nothing_and_say_how_many_it_takes():
    rng = np.random.default_rng(0)
    rule = target_risk(rng.random(58), np.zeros(58, dtype=bool), 0.05, pilot=rng.random(58))
    assert not rule.promised
    assert not rule.answers([0.0, 1.0, 1e9]).any()
    assert "it takes 59 answered rows" in rule.reason
    assert rule.describe().startswith("Abstain on all")


def test_a_bad_model_promises_nothing():
    rng = np.random.default_rng(0)
    rule = target_risk(rng.random(500), rng.random(500) < 0.5, 0.05, pilot=rng.random(500))
    assert not rule.promised
    assert (rule.threshold, rule.coverage, rule.answered, rule.risk_bound) == (math.inf, 0.0, 0, None)
    assert "cannot promise a risk of 5.00%" in rule.reason


def test_what_is_promised_is_kept_on_the_rows_themselves(sample):
    rng = np.random.default_rng(0)
    scores, errors = sample(800, rng)
    rule = target_risk(scores, errors, 0.1, pilot=rng.random(800), confidence=0.9)
    assert rule.promised
    assert rule.rows == 800
    assert rule.errors == int((errors & rule.answers(scores)).sum())
    assert rule.risk_bound is not None
    assert rule.errors / rule.answered < rule.risk_bound <= 0.1
    assert rule.coverage_interval[0] < rule.coverage < rule.coverage_interval[1]
    assert "at most 10.00% of the answers are wrong" in rule.describe()


def test_without_a_pilot_a_tenth_is_set_aside_by_the_seed(sample):
    scores, errors = sample(500, np.random.default_rng(0))
    first, second = (target_risk(scores, errors, 0.1) for _ in range(2))
    assert first == second
    assert first.rows == 450


def test_an_empty_pilot_is_refused(sample):
    with pytest.raises(InputError, match="0 pilot scores"):
        target_risk(*sample(100, np.random.default_rng(0)), 0.1, pilot=[])


@pytest.mark.parametrize("with_pilot", [True, False], ids=["pilot", "own pilot"])
def test_the_promise_holds_at_the_stated_rate(sample, risk_of, with_pilot):
    """400 worlds: the true risk exceeds the target in at most 10 % of them, up to three standard errors.

    The observed risk at the same level of ambition (plug-in) exceeds it in about half, so the test can fail.
    """
    rng = np.random.default_rng(7)
    target, confidence, repetitions = 0.15, 0.9, 400
    broken, naive, coverage = 0, 0, 0.0
    for _ in range(repetitions):
        scores, errors = sample(400, rng)
        pilot = rng.random(400) if with_pilot else None
        rule = target_risk(scores, errors, target, confidence=confidence, pilot=pilot)
        broken += risk_of(rule.threshold) > target
        coverage += (1 - max(rule.threshold, 0.0) if rule.promised else 0.0) / repetitions
        ranked = np.argsort(-scores)
        observed = errors[ranked].cumsum() / np.arange(1, 401)
        naive += risk_of(float(scores[ranked][np.flatnonzero(observed <= target)[-1]])) > target
    error = math.sqrt(confidence * (1 - confidence) / repetitions)
    assert broken / repetitions <= 1 - confidence + 3 * error
    assert naive / repetitions > 0.35
    assert 0.3 < coverage < 0.6  # at best 0.6: a promise that is kept by abstaining on all is worth nothing


def test_where_no_threshold_is_good_a_promise_comes_at_most_at_the_stated_rate():
    """The hardest case: the risk is a hair above the target at every threshold, so each promise is false."""
    rng = np.random.default_rng(11)
    promises = 0
    for _ in range(600):
        errors = rng.random(400) < 0.1001
        promises += target_risk(rng.random(400), errors, 0.1, confidence=0.9, pilot=rng.random(400)).promised
    assert promises / 600 <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 600)
    assert promises > 0  # else the test would say nothing
