"""Promises for each class: the rule of each class alone, at its part of the level, and the promise of all together."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from by_hand import again, draw_scores
from reference import rule_of
from uatlite.errors import ConfigurationError, InputError
from uatlite.trust.binomial import plan_starts
from uatlite.trust.promise import Labelled

NAMES = ("no", "yes")


def of_classes(scores, wrong, predicted, target, *, reference=None, columns=None, classes=NAMES, **wanted):
    """The rule for a target risk of each class."""
    others = None if reference is None else Labelled({"confidence": reference}, kind=columns)
    return rule_of(scores, wrong, target, predicted=predicted, reference=others, classes=classes, **wanted)


@pytest.fixture
def rows():
    """Rows predicted in two classes; the first is wrong a third as often. And rows that plan."""
    rng = np.random.default_rng(0)
    scores, wrong = draw_scores(900, rng)
    predicted = rng.integers(0, 2, 900)
    wrong &= (predicted == 1) | (rng.random(900) < 0.3)
    return (scores, wrong, predicted), {"reference": rng.random(1000), "columns": rng.integers(0, 2, 1000)}


def test_each_class_has_the_rule_of_its_rows_at_half_the_level(rows):
    (scores, wrong, predicted), planning = rows
    rule = of_classes(scores, wrong, predicted, 0.1, **planning)
    for column, part in enumerate(rule.per_kind):
        of_class, others = predicted == column, planning["reference"][planning["columns"] == column]
        alone = rule_of(scores[of_class], wrong[of_class], 0.1, confidence=0.975, reference=others)
        assert (part.name, part.asked, part.promised) == (NAMES[column], True, alone.promised)
        assert (part.threshold, part.answers) == (alone.threshold, alone.answers)
        assert (part.reported, part.errors) == (alone.reported, alone.errors)
        assert part.reason.replace(" predicted yes", "") == alone.reason
    assert rule.promised
    assert tuple(rule.thresholds([0, 1])) == tuple(part.threshold for part in rule.per_kind)
    assert rule.threshold == rule.thresholds([0, 1]).min()


def test_a_row_is_answered_by_the_threshold_of_its_class(rows):
    (scores, wrong, predicted), planning = rows
    rule = of_classes(scores, wrong, predicted, 0.15, **planning)
    slow = [s > rule.per_kind[c].threshold for s, c in zip(scores, predicted, strict=True)]
    np.testing.assert_array_equal(rule.reports(scores, kind=predicted), slow)
    assert (rule.reported, rule.errors) == (sum(slow), int((np.array(slow) & wrong).sum()))
    assert rule.coverage_interval[0] < rule.coverage < rule.coverage_interval[1]
    with pytest.raises(InputError, match="pass the predicted columns"):
        rule.reports(scores)


def test_one_class_alone_has_the_whole_level_and_others_are_answered(rows):
    (scores, wrong, predicted), planning = rows
    rule = of_classes(scores, wrong, predicted, 0.1, only="yes", **planning)
    of_class, others = predicted == 1, planning["reference"][planning["columns"] == 1]
    alone = rule_of(scores[of_class], wrong[of_class], 0.1, reference=others)
    assert tuple(rule.thresholds([0, 1])) == (-math.inf, alone.threshold)
    assert [part.asked for part in rule.per_kind] == [False, True]
    assert rule.reports(scores, kind=predicted)[~of_class].all()
    assert "Nothing is promised about other answers" in rule.describe()


def test_a_class_that_cannot_be_promised_is_abstained_on_and_said(rows):
    (scores, wrong, predicted), planning = rows
    rule = of_classes(scores, wrong | (predicted == 1), predicted, 0.1, classes=(*NAMES, "never"), **planning)
    assert [part.promised for part in rule.per_kind] == [True, False, False]
    answers = rule.reports(scores, kind=predicted)
    assert answers[predicted == 0].any()
    assert not answers[predicted == 1].any()
    for told in (
        "Answer no where confidence >",
        "Never answer yes: of the",
        "Never answer never: no labelled row is predicted never.",
        "confidence 0.95, all together, 900 calibration rows",
    ):
        assert told in rule.describe()


def test_many_classes_that_cannot_be_promised_are_told_shortly():
    rng = np.random.default_rng(0)
    names = [f"class {k}" for k in range(30)]
    rule = of_classes(rng.random(300), np.zeros(300, dtype=bool), rng.integers(0, 30, 300), 0.05, classes=names)
    assert not rule.promised
    assert not rule.reports(rng.random(5), kind=[0, 1, 2, 3, 4]).any()
    assert rule.coverage_interval == (0.0, 0.0)
    assert "and 24 more, for the like reason." in rule.describe()


def test_without_a_reference_rows_are_set_aside_and_a_class_without_any_starts_at_all(rows):
    (scores, wrong, predicted), _ = rows
    assert of_classes(scores, wrong, predicted, 0.1, seed=1).texts == 810
    rare, none = np.arange(900) < 60, np.zeros(840, dtype=int)
    rule = of_classes(scores, wrong & ~rare, rare.astype(int), 0.1, reference=scores[60:], columns=none)
    assert rule.per_kind[1].threshold == -math.inf


@pytest.mark.parametrize("only", [None, "no"])
def test_it_comes_back_from_json(rows, only):
    rule = of_classes(*rows[0], 0.1, only=only)
    assert again(rule) == rule


def test_what_does_not_fit_together_is_refused(rows):
    (scores, wrong, predicted), planning = rows
    with pytest.raises(ConfigurationError, match="predicted column"):
        of_classes(scores, wrong, predicted, 0.1, reference=planning["reference"])
    with pytest.raises(ConfigurationError, match="only='maybe'"):
        of_classes(scores, wrong, predicted, 0.1, only="maybe")
    with pytest.raises(InputError, match="allowed are 0 to 1"):
        of_classes(scores, wrong, predicted + 1, 0.1)


@pytest.mark.parametrize("only", [None, "yes"])
def test_all_promises_hold_together_where_every_class_turns_bad_below_its_start(only):
    """Each class is at risk at one test, with its part of the level; any false promise counts.

    Above the start no row is wrong and in the block below it all are, up to where the risk is a hair above the target.
    Then every class breaks its promise at nearly its level, and without the division it would be twice too often.
    """
    rng = np.random.default_rng(2)
    level, target, repetitions, broken, undivided = 0.1, 0.1, 2000, 0, 0
    others = (np.arange(200) + 0.5) / 200
    for _ in range(repetitions):
        predicted, scores = rng.integers(0, 2, 1200), rng.random(1200)
        bads, wrong, tests = [], np.zeros(1200, dtype=bool), []
        for column in range(2):
            of_class = predicted == column
            part = level if only else level / 2
            start = plan_starts(others, int(of_class.sum()), target, part)[-1][0]
            bad = 1 - (1 - start) / (1 - 1.0001 * target)
            block = (scores > bad) & (scores <= start)
            wrong |= of_class & (block | ((scores <= bad) & (rng.random(1200) < 1.0001 * target)))
            bads.append(bad)
            n, k = int((of_class & (scores > bad)).sum()), int((of_class & block).sum())
            tests.append(binom.cdf(k, n, target))
        rule = of_classes(scores, wrong, predicted, target, only=only, confidence=1 - level,
            reference=np.tile(others, 2), columns=np.repeat([0, 1], 200),
        )  # fmt: skip
        asked = (1,) if only else (0, 1)
        broken += any(rule.per_kind[column].threshold <= bads[column] for column in asked)
        undivided += any(tests[column] <= (1.5 * level if only else level) for column in asked)
    error = math.sqrt(level * (1 - level) / repetitions)
    assert 0.6 * level < broken / repetitions <= level + 3 * error
    assert undivided / repetitions > level + 3 * error
