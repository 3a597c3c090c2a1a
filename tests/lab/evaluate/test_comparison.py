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
from uatlite.lab.evaluate.results import COSTS, verdict_of
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


BETTER = {"accuracy": "higher", "nll": "lower", "ece": "lower"}


def estimates(probabilities, labels, metrics=BETTER):
    return metric_estimates(Rows.of(probabilities, labels), list(metrics))


def scores_of(runs, labels, better=BETTER, resamples=200, **options):
    """Scores by contender and metric; `runs` are the probabilities of each contender and seed."""
    made = {name: [estimates(seed, labels, better) for seed in seeds] for name, seeds in runs.items()}
    return compare(made, better, (ROWS,), Resampling(resamples), **options)


def best(scores, metric):
    return {name for name in scores if scores[name][metric].best}


def test_one_seed_is_the_plain_and_the_paired_bootstrap(labels):
    runs, how = {"a": simulate(1.0, 1, labels), "b": simulate(2.0, 2, labels)}, Resampling(200)
    scores = scores_of({name: [probabilities] for name, probabilities in runs.items()}, labels)
    a, b = (estimates(probabilities, labels) for probabilities in runs.values())
    for name, plain in (("a", intervals(a, how)), ("b", intervals(b, how))):
        for metric, score in scores[name].items():
            assert (score.mean, score.low, score.high) == (plain[metric].point, plain[metric].low, plain[metric].high)
            assert score.deviation is None
    for metric, back in intervals(b - a, how).items():
        assert scores["b"][metric].differences == {"a": back}
        apart = scores["a"][metric].differences["b"]
        assert (apart.point, apart.low, apart.high) == (-back.point, -back.high, -back.low)


def test_seeds_are_averaged_on_the_same_resamples(labels):
    seeds = [simulate(1.0, seed, labels) for seed in range(3)]
    score = scores_of({"a": seeds}, labels, {"nll": "lower"})["a"]["nll"]
    each = [METRICS["nll"](one, labels) for one in seeds]
    assert score.values == pytest.approx(each)
    assert score.mean == pytest.approx(np.mean(each))
    assert score.deviation == pytest.approx(np.std(each, ddof=1))
    # The mean NLL over seeds is the NLL of rows whose loss is averaged over seeds: a reference by hand.
    losses = np.mean([-np.log(one[np.arange(ROWS), labels]) for one in seeds], axis=0)
    rng = np.random.default_rng(0)
    means = [losses[rng.integers(ROWS, size=ROWS)].mean() for _ in range(200)]
    assert (score.low, score.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_only_one_that_beats_every_other_beyond_chance_is_marked(labels):
    weak, middle, strong = ([simulate(skill, seed, labels)] for seed, skill in enumerate((0.2, 1.0, 3.0)))
    runs = {"weak": weak, "middle": middle, "strong": strong}
    clear = scores_of(runs, labels)
    assert best(clear, "nll") == best(clear, "accuracy") == {"strong"}
    # a rival that differs by less than chance: nobody is marked, though one mean is lower
    assert best(scores_of(runs | {"rival": [simulate(3.0, 9, labels)]}, labels), "accuracy") == set()
    # the same predictions under another temperature: equal in accuracy on every resample, so both are marked
    tied = scores_of({"weak": weak, "strong": strong, "nudged": [strong[0] * 0.999 + 0.001 / 3]}, labels)
    assert best(tied, "accuracy") == {"strong", "nudged"}
    # without a direction, or a rival
    assert best(scores_of({"weak": weak, "strong": strong}, labels, {"nll": None}), "nll") == set()
    assert best(scores_of({"strong": strong}, labels, {"nll": "lower"}), "nll") == set()


def test_an_undefined_metric_is_neither_marked_nor_an_error(labels):
    flat = [np.full((ROWS, 3), 1 / 3)]
    scores = scores_of({"a": flat, "b": flat}, labels, {"accuracy@0.9": "higher"}, 50)
    assert np.isnan(scores["a"]["accuracy@0.9"].mean)
    assert best(scores, "accuracy@0.9") == set()


def test_progress_adds_up_to_one(labels, monkeypatch):
    # by sys.modules: the package has a function of the same name
    monkeypatch.setattr(sys.modules["uatlite.metrics.intervals"], "CHUNK", 7 * ROWS)
    shares, seeds = [], [simulate(1.0, 1, labels)]
    scores_of(dict.fromkeys("abc", seeds), labels, {"nll": "lower"}, 50, tick=shares.append)
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
    assert (found.low, found.high) == pytest.approx((0.5 - math.sqrt(0.5), 0.5 + math.sqrt(0.5)))
    assert Measurement((0.3,)).interval() is None


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────────────────


WIDTH = 0.05


def means(values, metric="nll"):
    """Contenders with these means; every paired interval reaches `WIDTH` to both sides of the difference."""

    def score(name):
        apart = {other: values[name] - value for other, value in values.items() if other != name}
        differences = {other: Interval(value, value - WIDTH, value + WIDTH) for other, value in apart.items()}
        return made_score((values[name],), values[name] - WIDTH, values[name] + WIDTH, differences)

    return {name: {metric: score(name)} for name in values}


@pytest.mark.parametrize("seed", range(40))
def test_it_is_what_the_words_say(seed):
    generator = np.random.default_rng(seed)
    values, shifted = ({f"m{i}": float(v) for i, v in enumerate(generator.uniform(0.2, 0.5, size=6))} for _ in "ab")
    costs = {name: float(generator.choice([[1, 1, 2, 2.5, 5, 10], [2, 5, 10, 20]][seed % 2])) for name in values}
    found = verdict_of([("in/test", means(values)), ("out/test", means(shifted))], costs, ["accuracy", "nll"])
    dearest = [20] if 20 in costs.values() else []
    assert [choice.passes for choice in found.choices] == [p for p in (*COSTS, *dearest) if p >= min(costs.values())]
    for choice in found.choices:
        within = [name for name in values if costs[name] <= choice.passes]
        beaten = {b for a, b in product(within, within) if values[a] + WIDTH < values[b]}
        cheapest = min(costs[name] for name in within if name not in beaten)
        candidates = [name for name in within if name not in beaten and costs[name] == cheapest]
        assert values[choice.contender] == min(values[name] for name in candidates)
        others = set(within) - {choice.contender}
        assert set(choice.level) == {name for name in others if abs(values[name] - values[choice.contender]) <= WIDTH}
        assert set(choice.beaten) == {name for name in others if values[name] > values[choice.contender] + WIDTH}
    used = list(dict.fromkeys(choice.contender for choice in found.choices))
    assert list(found.distinct) == used
    assert found.recommended == found.choices[-1].contender
    better = {use: tuple(name for name in shifted if shifted[name] < shifted[use] - WIDTH) for use in used}
    assert found.beaten_by == {"out/test": better}


def test_relations_follow_the_direction_of_the_metric():
    below, across, unknown = Interval(-1, -2, -0.5), Interval(-1, -2, 0.5), Interval(np.nan, np.nan, np.nan)
    assert [relation(below, "lower"), relation(below, "higher")] == ["better", "worse"]
    assert relation(across, "lower") == relation(unknown, "lower") == "level"


def test_the_metric_is_nll_or_the_first_with_a_direction_and_without_a_choice_there_is_no_verdict():
    for metrics, metric, better in ((["accuracy", "nll"], "nll", "y"), (["coverage@0.9", "accuracy"], "accuracy", "x")):
        verdict = verdict_of([("a", means({"x": 0.9, "y": 0.8}, metric))], {"x": 1, "y": 1}, metrics)
        assert (verdict.metric, verdict.recommended) == (metric, better)
    assert verdict_of([("a", means({"x": 0.3}))], {"x": 1}, ["nll"]) is None
    undirected = means({"x": 1, "y": 1}, "coverage@0.9")
    assert verdict_of([("a", undirected)], {"x": 1, "y": 1}, ["coverage@0.9"]) is None
