"""Promises with texts as the unit: kept in worlds of every dependence, the search against a slow one, and its words."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from reference import rule_of
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.bets import GRID, bet, error_chances, learned_chances, plan_text_starts, threshold_grid
from uatlite.trust.planners import RISKS, TextScores, TextsPlanner, most_answers
from uatlite.trust.promise import PILOT_TEXTS, Labelled, decide, pilot_rows
from uatlite.trust.rule import Wanted

HUGE = 40_000


def draw(texts, rng, mean=1.2, together=0.0, tail=False, trap=0.0):
    """Answers with a probability to be right that is their score, but wrong together in a text.

    With `tail`, one text in twenty has most answers. A share `trap` of the texts, with the surest answers of all, has
    nothing but errors.
    """
    counts = np.where(rng.random(texts) < 0.05, rng.poisson(12, texts), rng.poisson(0.6, texts)) if tail else None
    counts = rng.poisson(mean, texts) if counts is None else counts
    text = np.repeat(np.arange(texts), counts)
    scores = rng.beta(4, 1, len(text))
    luck = np.where(rng.random(len(text)) < together, rng.random(texts)[text], rng.random(len(text)))
    wrong = luck > scores
    trapped = (rng.random(texts) < trap)[text]
    return TextScores(np.where(trapped, 0.999, scores), text, texts, wrong | trapped)


def rule_for(sample, target, kind="precision", **wanted):
    """The rule by labelled answers; without a reference a tenth of the texts plans."""
    return rule_of(sample.scores, sample.wrong, target, kind, text=sample.text, texts=sample.texts, **wanted)


WORLDS = {
    "independent": {},
    "wrong together": {"together": 1.0},
    "many answers in few texts": {"tail": True, "together": 0.7},
    "surely wrong texts": {"trap": 0.03},
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize("kind, target", [("precision", 0.15), ("per-text", 0.12)])
def test_the_promise_is_broken_no_more_often_than_stated(world, kind, target):
    """80 samples of 250 texts at the confidence 0.8, with and without a reference, against a huge sample."""
    truth = draw(HUGE, np.random.default_rng(99), **world)
    broken, promised, repetitions = 0, 0, 80
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        sample, reference = draw(250, rng, **world), draw(300, rng, **world)
        wanted = Wanted(kind=kind, target=target, confidence=0.8, seed=repetition)
        rule = TextsPlanner(wanted, sample, reference, most_answers(reference)).searched(target)
        reported = truth.shown(rule.threshold, rule.most)
        shown, errors = reported.sum(), (reported & truth.wrong).sum()
        promised += rule.promised
        broken += errors > target * (shown if kind == "precision" else HUGE)
    assert broken <= binom.ppf(0.999, repetitions, 0.2)
    assert promised > 10 or "trap" in world


def test_recall_is_promised_no_more_often_wrongly_than_stated():
    """Texts with up to eight gold answers, of which five count, found together or not, as often as their score says."""

    def texts(count, rng):
        scores, gold = rng.beta(5, 1, count), rng.binomial(8, 0.2, count)
        together = gold * (rng.random(count) > scores)
        return scores, np.where(rng.random(count) < 0.5, together, rng.binomial(gold, 1 - scores)), gold

    s, missed, gold = texts(HUGE, np.random.default_rng(99))
    broken, covered = 0, []
    for repetition in range(80):
        rng = np.random.default_rng(repetition)
        sample, found = texts(300, rng), texts(300, rng)[0]
        labelled = TextScores(sample[0], np.arange(300), 300, sample[1], gold=sample[2])
        others = TextScores(found, np.arange(300), 300)
        rule = TextsPlanner(Wanted(kind="recall", target=0.12, confidence=0.8), labelled, others, 5).searched(0.12)
        answered = rule.reports(s)
        scale = np.minimum(1, 5 / np.maximum(gold, 1))[answered]
        broken += (missed[answered] * scale).sum() > 0.12 * (gold[answered] * scale).sum()
        covered.append(answered.mean())
    assert broken <= binom.ppf(0.999, 80, 0.2)
    assert np.mean(covered) > 0.3


def test_recall_sets_texts_aside_that_plan():
    rng = np.random.default_rng(0)
    scores, gold = rng.random(500), rng.binomial(5, 0.3, 500)
    missed = rng.binomial(gold, 0.3 * (1 - scores))
    wanted = Wanted(kind="recall", target=0.15)

    def rule(missed, gold=gold):
        return decide(Labelled({"confidence": scores}, gold=gold, missed=missed, answers=gold), wanted).rule

    found = rule(missed)
    assert (found.texts, found.promised, found.kind) == (450, True, "recall")
    assert "at least 85.00% of their gold answers are found" in found.describe()
    assert found.reports(scores).mean() == pytest.approx(found.coverage, abs=0.05)
    hopeless = rule(gold)
    assert (hopeless.promised, hopeless.threshold) == (False, math.inf)
    assert hopeless.describe().startswith("Answer no text: of the gold answers of 450 texts 100.0% are missed")
    with pytest.raises(InputError, match="0 ≤ missed ≤ gold"):
        rule(gold + 1)
    with pytest.raises(CalibrationError, match="0 gold answers"):
        rule(0 * gold, 0 * gold)


def test_of_texts_out_of_scope_none_decides_about_recall_but_some_plan():
    rng = np.random.default_rng(1)
    scores, gold, inside = rng.random(500), rng.binomial(5, 0.3, 500), rng.random(500) < 0.9
    rows = Labelled({"confidence": scores}, gold=gold, missed=rng.binomial(gold, 0.1), answers=gold)
    rule = decide(rows, Wanted(kind="recall", target=0.2), inside=inside).rule
    aside = pilot_rows(500, 0, PILOT_TEXTS)
    assert rule.texts == (inside & ~aside).sum()
    assert rule.answers == gold[inside & ~aside].sum()


def planned(others, texts, target, level, most):
    return TextsPlanner(Wanted(confidence=1 - level), others, others, most).plan(target, texts)


@pytest.mark.parametrize("seed", range(25))
def test_with_one_answer_a_text_the_tests_are_the_exact_ones(seed):
    rng = np.random.default_rng(seed)
    scores, wrong, levels = rng.random(120), rng.random(120) < 0.15, np.array([0.05, 0.2, 0.5])
    plan = planned(TextScores(rng.random(60), np.arange(60), 60), 120, 0.3, 0.2, 1)
    counts = (scores[:, None] > plan.thresholds).astype(float)
    errors = counts * wrong[:, None]
    exact = [binom.cdf(k, n, 0.3) <= levels for k, n in zip(errors.sum(axis=0), counts.sum(axis=0), strict=True)]
    test = bet(plan.most, plan.expected, counts, errors, 0.3, kind="precision", seed=0)
    for begin in (0, 7):
        np.testing.assert_array_equal(test(slice(begin, 40), levels), exact[begin:40])


def test_the_plan_reads_nothing_but_the_reference():
    others = draw(400, np.random.default_rng(1), tail=True)
    plan = planned(others, 300, 0.1, 0.05, 6)
    assert len(plan.thresholds) <= GRID + 1
    assert plan.thresholds[-1] == -math.inf
    assert (np.diff(plan.thresholds) < 0).all()
    assert (np.diff(plan.most) >= 0).all()
    assert plan.most.min() >= 1
    assert plan.most.max() <= 6
    assert sum(part for _, part in plan.starts) == pytest.approx(0.05)
    more = planned(others, 30_000, 0.1, 0.05, 6)
    assert more.most.sum() > plan.most.sum()  # with many texts a bet can bear many answers of one


def test_a_search_begins_where_it_is_likeliest_to_succeed():
    """By simulation of the errors: no place has a clearly higher chance to pass the exact test than the start."""
    answers = np.arange(10.0, 510.0, 10.0)
    errors = 1.15 * np.cumsum(np.linspace(0.0, 2.5, 50))
    starts = plan_text_starts(answers, errors / 1.15, np.ones(50), 0.9 * np.ones(50), 0.1, 0.05)
    rng, allowed = np.random.default_rng(0), binom.ppf(0.05 * 0.75, answers.astype(int), 0.1) - 1
    chances = (rng.poisson(errors, (4000, 50)) <= allowed).mean(axis=0)
    assert max(chances[begin] for begin, _ in starts) > chances.max() - 0.1
    assert 0 < starts[0][1] <= 0.05
    assert 0 <= starts[0][0] < 50


def test_scores_that_are_no_probabilities_give_ranks():
    assert error_chances(np.array([0.25, 1.0]), 0.1).tolist() == [0.75, 0.0]
    assert error_chances(np.array([3.0, -2.0, 5.0, 0.5]), 0.1) == pytest.approx([0.1, 0.3, 0.0, 0.2])
    assert threshold_grid(np.array([0.5, 0.5, 0.2])).tolist() == [0.5, 0.2, -math.inf]


def test_the_rule_reports_the_surest_of_each_text():
    sample = draw(1000, np.random.default_rng(2), together=0.3)
    rule = rule_for(sample, 0.15, most=2)
    assert (rule.promised, rule.texts) == (True, 900)
    assert rule.most <= 2
    shown = rule.reports(sample.scores, sample.text)
    assert (sample.scores[shown] > rule.threshold).all()
    assert sample.tally(shown).max() <= rule.most
    low, high = rule.coverage_interval
    assert low < rule.coverage < high
    assert shown.mean() == pytest.approx(rule.coverage, abs=0.05)
    assert "at most 15.00% of them are wrong" in rule.describe()
    wrongly = f"{rule.errors} of {rule.reported} reported are wrong (confidence 0.95, {rule.counted})"
    assert wrongly in rule.describe()
    assert "at most 0.2 wrong answers a text on average" in rule_for(sample, 0.2, "per-text").describe()


def test_what_cannot_be_promised_says_what_can_and_how_many_texts_it_takes():
    sample = draw(500, np.random.default_rng(3))
    rule = rule_for(sample, 0.01)
    assert (rule.promised, rule.threshold, rule.reported, rule.coverage) == (False, math.inf, 0, 0.0)
    assert rule.describe().startswith("Report nothing: 450 texts with")
    assert "they do promise" in rule.reason
    assert "more labelled texts" in rule.reason
    assert not rule.reports(sample.scores, sample.text).any()
    everything = rule_for(replace(sample, wrong=np.ones(len(sample.scores), dtype=bool)), 0.1)
    assert "they promise no risk up to 50%" in everything.reason
    assert "no number of labelled texts is likely to do" in everything.reason


def test_the_texts_that_a_promise_would_take_are_about_right():
    """The estimate from 200 texts, where 0.06 cannot be promised, is enough in most samples of that size."""
    rng = np.random.default_rng(4)
    planner = TextsPlanner(Wanted(), draw(200, rng), draw(2000, rng), 3)
    needed = planner.needed(0.06)
    assert 200 < needed.low < needed.high < 10_000
    samples = [draw(needed.high, np.random.default_rng(repetition)) for repetition in range(20)]
    assert sum(replace(planner, sample=sample).searched(0.06).promised for sample in samples) >= 10


def test_the_menu_has_the_rule_of_each_risk():
    sample = draw(600, np.random.default_rng(5))
    rows = Labelled({"confidence": sample.scores}, sample.wrong, sample.text, 600)
    menu = decide(rows, Wanted(), menu=True).menu
    assert [line.target for line in menu.lines] == list(RISKS)
    assert menu.rule(0.2) == rule_for(sample, 0.2)
    assert menu.rule(0.02) is None
    assert [line.needed is None for line in menu.lines] == [line.rule is not None for line in menu.lines]
    assert (menu.texts, menu.unit) == (540, "texts")
    lines = menu.describe()
    counted = "540 of 600 labelled texts decide, 60 say where to begin"
    assert lines[0] == f"risk  promise (confidence 0.95, by confidence, {counted})"
    assert "more labelled texts" in lines[2]
    assert "of answers reported" in lines[-2]


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"wrong": [0, 1, 1]}, InputError, "allowed is bool"),
        ({"text": [0, 2, 1]}, InputError, "not ascending"),
        ({"texts": 2}, InputError, "allowed are 0 to 1"),
        ({"target": 0.0}, ConfigurationError, "between 0 and 1"),
        ({"confidence": 95}, ConfigurationError, "between 0 and 1"),
        ({"most": 0}, ConfigurationError, "1 or more"),
        ({"kind": "recal"}, ConfigurationError, "precision, per-text"),
        ({"scores": [], "wrong": np.zeros(0, bool), "text": np.zeros(0, int)}, CalibrationError, "0 labelled answers"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(change, error, message):
    given = {"scores": [0.1, 0.5, 0.9], "wrong": [True, False, False], "text": [0, 1, 2], "texts": 40, "target": 0.1,
             "kind": "precision"}  # fmt: skip
    given["reference"] = Labelled({"confidence": np.ones(1)}, None, np.zeros(1, int), 1)
    with pytest.raises(error, match=message):
        rule_of(**{**given, **change})


def test_texts_set_aside_teach_the_plan_how_often_a_score_is_wrong():
    rng = np.random.default_rng(6)
    scores = rng.normal(size=4000)
    wrong = rng.random(4000) < 1 / (1 + np.exp(2 * scores + 1))
    chances = learned_chances(scores, wrong)
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(2 * scores + 1)), atol=0.05)
    assert learned_chances(np.ones(5), np.zeros(5, dtype=bool)).max() < 0.1
    sample = draw(800, rng)
    odds = np.log(sample.scores / (1 - sample.scores))
    promised = [rule_for(replace(sample, scores=scale * odds), 0.15) for scale in (1.0, 3.0)]
    assert all(rule.promised for rule in promised)
    assert promised[0].reported == pytest.approx(promised[1].reported, rel=0.1)
