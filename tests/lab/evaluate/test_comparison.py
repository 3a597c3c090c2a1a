"""Numbers over seeds and resampled rows: paired intervals, the mark of the best, and the verdict."""

import math
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from reference import compare, made_score
from uatlite.lab.evaluate.comparison import (
    DERIVATIONS,
    Measurement,
    ResampledRows,
    Sampled,
    combine,
    counts_of,
    measured,
    over_seeds,
    relation,
)
from uatlite.lab.evaluate.results import COSTS, verdict_metric, verdict_of
from uatlite.metrics.intervals import METRICS, Estimate, Interval, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows, mean_of

ROWS = 300


def simulate(skill, seed, labels):
    """Probabilities of three classes that lean to the right one by `skill`."""
    logits = np.random.default_rng(seed).normal(size=(ROWS, 3)) + skill * np.eye(3)[labels]
    return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


@pytest.fixture
def labels():
    return np.random.default_rng(0).integers(3, size=ROWS)


def estimates(seeds, labels, metrics):
    return [metric_estimates(Rows.of(probabilities, labels), metrics) for probabilities in seeds]


METRIC = ("accuracy", "nll", "ece")
BETTER = {"accuracy": "higher", "nll": "lower", "ece": "lower"}


def test_one_seed_is_the_plain_and_the_paired_bootstrap(labels):
    a, b = simulate(1.0, 1, labels), simulate(2.0, 2, labels)
    runs = {"a": estimates([a], labels, METRIC), "b": estimates([b], labels, METRIC)}
    scores = compare(runs, BETTER, (ROWS,), Resampling(200))
    for name, probabilities in (("a", a), ("b", b)):
        plain = intervals(metric_estimates(Rows.of(probabilities, labels), METRIC), Resampling(200))
        for metric in METRIC:
            score = scores[name][metric]
            assert (score.mean, score.low, score.high) == (plain[metric].point, plain[metric].low, plain[metric].high)
            assert score.deviation is None
    paired = intervals(
        metric_estimates(Rows.of(b, labels), METRIC) - metric_estimates(Rows.of(a, labels), METRIC), Resampling(200)
    )
    assert {metric: scores["b"][metric].differences["a"] for metric in METRIC} == paired
    for metric in METRIC:
        assert list(scores["a"][metric].differences) == ["b"]
        apart, back = scores["a"][metric].differences["b"], paired[metric]
        assert (apart.point, apart.low, apart.high) == (-back.point, -back.high, -back.low)


def test_seeds_are_averaged_on_the_same_resamples(labels):
    seeds = [simulate(1.0, seed, labels) for seed in range(3)]
    score = compare({"a": estimates(seeds, labels, ("nll",))}, {"nll": "lower"}, (ROWS,), Resampling(200))["a"]["nll"]
    each = [METRICS["nll"](one, labels) for one in seeds]
    assert score.values == pytest.approx(each)
    assert score.mean == pytest.approx(np.mean(each))
    assert score.deviation == pytest.approx(np.std(each, ddof=1))
    # The mean NLL over seeds is the NLL of rows whose loss is averaged over seeds: a reference by hand.
    losses = np.mean([-np.log(one[np.arange(ROWS), labels]) for one in seeds], axis=0)
    rng = np.random.default_rng(0)
    means = [losses[rng.integers(ROWS, size=ROWS)].mean() for _ in range(200)]
    assert (score.low, score.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def best(scores, metric):
    return {name for name in scores if scores[name][metric].best}


def test_only_one_that_beats_every_other_beyond_chance_is_marked(labels):
    weak, middle, strong = (simulate(skill, seed, labels) for seed, skill in enumerate((0.2, 1.0, 3.0)))
    nudged = strong * 0.999 + 0.001 / 3
    runs = {"weak": [weak], "middle": [middle], "strong": [strong]}
    clear = compare({k: estimates(v, labels, METRIC) for k, v in runs.items()}, BETTER, (ROWS,), Resampling(300))
    assert best(clear, "nll") == best(clear, "accuracy") == {"strong"}
    # a rival that differs by less than chance: nobody is marked, though one mean is lower
    runs |= {"rival": [simulate(3.0, 9, labels)]}
    close = compare({k: estimates(v, labels, METRIC) for k, v in runs.items()}, BETTER, (ROWS,), Resampling(300))
    assert best(close, "accuracy") == set()
    # the same predictions under another temperature: equal in accuracy on every resample, so both are marked
    runs = {"weak": [weak], "strong": [strong], "nudged": [nudged]}
    tied = compare({k: estimates(v, labels, METRIC) for k, v in runs.items()}, BETTER, (ROWS,), Resampling(300))
    assert best(tied, "accuracy") == {"strong", "nudged"}


def test_without_a_direction_or_a_rival_nothing_is_marked(labels):
    runs = {name: estimates([simulate(s, 1, labels)], labels, ("nll",)) for name, s in (("a", 0.1), ("b", 4.0))}
    assert best(compare(runs, {"nll": None}, (ROWS,), Resampling(50)), "nll") == set()
    assert best(compare({"b": runs["b"]}, {"nll": "lower"}, (ROWS,), Resampling(50)), "nll") == set()


def test_an_undefined_metric_is_neither_marked_nor_an_error(labels):
    flat = np.full((ROWS, 3), 1 / 3)
    runs = {"a": estimates([flat], labels, ("accuracy@0.9",)), "b": estimates([flat], labels, ("accuracy@0.9",))}
    scores = compare(runs, {"accuracy@0.9": "higher"}, (ROWS,), Resampling(50))
    assert np.isnan(scores["a"]["accuracy@0.9"].mean)
    assert best(scores, "accuracy@0.9") == set()


def test_progress_adds_up_to_one(labels, monkeypatch):
    # by sys.modules: the package has a function of the same name
    monkeypatch.setattr(sys.modules["uatlite.metrics.intervals"], "CHUNK", 7 * ROWS)
    runs = {name: estimates([simulate(1.0, 1, labels)], labels, ("nll",)) for name in "abc"}
    shares = []
    compare(runs, {"nll": "lower"}, (ROWS,), Resampling(50), tick=shares.append)
    assert sum(shares) == pytest.approx(1.0)


# ── rows and seeds ─────────────────────────────────────────────────────────────────────────────────────────────────

PAPER = Resampling(15, over_seeds=True)


def over(statistics, rows, name, resamples):
    """A statistic of each seed on rows of this name, resampled with the seeds."""
    sampled = Sampled([Estimate(statistic) for statistic in statistics], (ResampledRows((rows,), name),))
    return measured({0: sampled}, replace(PAPER, resamples=resamples))[0]


def test_two_sets_are_drawn_as_each_is_alone():
    one, two = ResampledRows((5,), "one"), ResampledRows((3, 4), "two")
    (both,) = counts_of([one, two], PAPER)
    alone = [np.concatenate(list(counts_of([rows], PAPER))) for rows in (one, two)]
    assert both.tolist() == np.hstack(alone).tolist()


def test_numbers_on_the_same_rows_are_paired():
    """Two statistics that differ by a constant on every row differ by it on every resample."""
    values = np.random.default_rng(0).normal(size=50)
    one, other = (over([mean_of(v)], 50, "rows", 30) for v in (values, values + 1))
    apart = combine([other, one], np.subtract, linear=True)
    assert apart.mean == pytest.approx(1)
    assert apart.drawn == pytest.approx(np.ones((1, 30)))
    assert one.drawn is not None
    assert one.drawn.std() > 0.05


def test_seeds_are_combined_one_by_one_or_by_their_means():
    two, one = Measurement((0.1, 0.3)), Measurement((0.5,))
    assert combine([two, Measurement((0.2, 0.2))], np.subtract, linear=True).values == pytest.approx((-0.1, 0.1))
    assert combine([two, one], DERIVATIONS["mean"][0], linear=True).values == pytest.approx((0.35,))
    assert combine([one, two], DERIVATIONS["reduction"][0], linear=False).values == pytest.approx((0.6,))


def test_a_biased_statistic_has_its_interval_about_the_truth():
    """The mean of two pivotal numbers is pivotal and stays above the lowest value of its parts."""
    drawn = np.linspace(0.2, 0.4, 101)
    part = Measurement((0.1,), drawn=drawn[None], truth=0.15, lowest=0.0)
    found = combine([part, part], DERIVATIONS["mean"][0], linear=True).interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.0, 0.25 - 0.205))


def test_a_resample_of_rows_and_seeds_is_the_one_that_a_loop_draws():
    """Against rows literally repeated, seed by seed, resample by resample."""
    values = np.random.default_rng(1).normal(size=(3, 20))
    found = over([mean_of(one) for one in values], 20, "rows", PAPER.resamples).resampled()
    chosen = np.random.default_rng(3).integers(3, size=(PAPER.resamples, 3))
    expected = []
    for draw, counts in enumerate(np.concatenate(list(counts_of([ResampledRows((20,), "rows")], PAPER)))):
        rows = [row for row, count in enumerate(counts) for _ in range(int(count))]
        of_seed = [sum(seed[row] for row in rows) / len(rows) for seed in values]
        middle = sum(of_seed) / 3
        of_chosen = sum(of_seed[seed] for seed in chosen[draw]) / 3
        expected.append(middle + math.sqrt(3 / 2) * (of_chosen - middle))
    assert found == pytest.approx(np.array(expected))


def test_the_interval_over_rows_and_seeds_covers_what_one_over_rows_does_not():
    """Four fine-tunings whose true difference varies, 80 rows: how often the population's mean is inside."""
    generator, inside = np.random.default_rng(0), np.zeros(2)
    for repetition in range(300):
        seeds = generator.normal(scale=0.2, size=(4, 1)) + generator.normal(size=80) + np.zeros((4, 80))
        drawn = over([mean_of(one) for one in seeds], 80, f"rows {repetition}", 200).drawn
        assert drawn is not None
        for place, values in enumerate((over_seeds(drawn), drawn.mean(axis=0))):
            low, high = np.quantile(values, (0.025, 0.975))
            inside[place] += low <= 0 <= high
    both, rows_only = inside / 300
    assert 0.90 <= both <= 0.97  # normal quantiles for four seeds: a little short of 0.95
    assert rows_only < both - 0.05


def test_a_number_without_rows_has_an_interval_over_its_seeds():
    found = Measurement((0.0, 1.0)).interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.5 - math.sqrt(0.5), 0.5 + math.sqrt(0.5)))
    assert Measurement((0.3,)).interval() is None


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────────────────


def scores_of(values, width=0.05, metric="nll"):
    """Contenders with these means; every paired interval reaches `width` to both sides of the difference."""

    def score(name):
        apart = {other: values[name] - value for other, value in values.items() if other != name}
        differences = {other: Interval(value, value - width, value + width) for other, value in apart.items()}
        return made_score((values[name],), values[name] - width, values[name] + width, differences)

    return {name: {metric: score(name)} for name in values}


def verdict(values, costs, width=0.05, shifted=None):
    sets = [("in/test", scores_of(values, width))] + ([("out/test", scores_of(shifted, width))] if shifted else [])
    found = verdict_of(sets, costs, ["accuracy", "nll"])
    assert found is not None
    return found


def test_one_that_nothing_beats_is_used_at_every_cost():
    found = verdict({"base": 0.4, "base+ts": 0.3, "uat": 0.29}, {"base": 1, "base+ts": 1, "uat": 10})
    assert [choice.passes for choice in found.choices] == list(COSTS)
    assert found.distinct == ("base+ts",)
    assert (found.choices[0].level, found.choices[0].beaten) == ((), ("base",))
    assert (found.choices[-1].level, found.choices[-1].beaten) == (("uat",), ("base",))
    assert found.recommended == "base+ts"


def test_a_dearer_one_is_used_from_the_cost_on_at_which_it_beats_the_cheap_one():
    costs = {"base": 1, "analytic": 2, "fast": 2.8, "uat": 10, "more": 20}
    found = verdict({"base": 0.4, "analytic": 0.34, "fast": 0.33, "uat": 0.3, "more": 0.31}, costs, width=0.035)
    assert {choice.passes: choice.contender for choice in found.choices} == {
        1: "base", 2: "analytic", 5: "analytic", 10: "fast", 20: "fast"
    }  # fmt: skip
    assert found.choices[2].level == ("fast",)
    assert found.distinct == ("base", "analytic", "fast")


def test_a_cost_that_none_meets_has_no_choice():
    found = verdict({"mc": 0.4, "uat": 0.3}, {"mc": 10, "uat": 10})
    assert [(choice.passes, choice.contender) for choice in found.choices] == [(10, "uat")]


def test_of_equal_cost_the_better_mean_is_used_and_the_other_is_level():
    found = verdict({"a": 0.31, "b": 0.3}, {"a": 1, "b": 1})
    assert (found.recommended, found.choices[0].level) == ("b", ("a",))


def test_those_that_beat_it_under_shift_are_named():
    found = verdict({"a": 0.3, "b": 0.4}, {"a": 1, "b": 1}, shifted={"a": 0.5, "b": 0.4})
    assert found.beaten_by == {"out/test": {"a": ("b",)}}
    level = verdict({"a": 0.3, "b": 0.4}, {"a": 1, "b": 1}, shifted={"a": 0.4, "b": 0.4})
    assert level.beaten_by == {"out/test": {"a": ()}}


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_words_say(seed):
    generator = np.random.default_rng(seed)
    values = {f"m{place}": float(value) for place, value in enumerate(generator.uniform(0.2, 0.5, size=6))}
    costs = {name: float(generator.choice([1, 1, 2, 2.5, 5, 10])) for name in values}
    found = verdict(values, costs)
    for choice in found.choices:
        within = [name for name in values if costs[name] <= choice.passes]
        beaten = {b for a, b in product(within, within) if values[a] + 0.05 < values[b]}
        cheapest = min(costs[name] for name in within if name not in beaten)
        candidates = [name for name in within if name not in beaten and costs[name] == cheapest]
        assert values[choice.contender] == min(values[name] for name in candidates)
        others = set(within) - {choice.contender}
        assert set(choice.level) == {name for name in others if abs(values[name] - values[choice.contender]) <= 0.05}
        assert set(choice.beaten) == {name for name in others if values[name] > values[choice.contender] + 0.05}


def test_relations_follow_the_direction_of_the_metric():
    below, across, unknown = Interval(-1, -2, -0.5), Interval(-1, -2, 0.5), Interval(np.nan, np.nan, np.nan)
    assert [relation(below, "lower"), relation(below, "higher")] == ["better", "worse"]
    assert relation(across, "lower") == relation(unknown, "lower") == "level"


def test_the_metric_is_nll_or_the_first_with_a_direction():
    assert verdict_metric(["accuracy", "nll"]) == "nll"
    assert verdict_metric(["coverage@0.9", "aurc", "ece"]) == "aurc"
    assert verdict_metric(["coverage@0.9"]) is None
    higher = verdict_of([("a", scores_of({"x": 0.9, "y": 0.8}, metric="accuracy"))], {"x": 1, "y": 1}, ["accuracy"])
    assert higher is not None
    assert higher.recommended == "x"


def test_without_a_choice_there_is_no_verdict():
    assert verdict_of([("a", scores_of({"x": 0.3}))], {"x": 1}, ["nll"]) is None
    undirected = scores_of({"x": 1, "y": 1}, metric="coverage@0.9")
    assert verdict_of([("a", undirected)], {"x": 1, "y": 1}, ["coverage@0.9"]) is None
