"""Verdicts on claims, and the arithmetic of measured numbers that they rest on."""

import math
from dataclasses import replace

import numpy as np
import pytest

from uatlite.lab.paper.claims import (
    ALIKE,
    HELD,
    LIKELY,
    REVERSED,
    SINGLE,
    UNLEARNED,
    UNLIKELY,
    UNTOLD,
    Verdict,
    judge,
    outcome_of,
    summary,
)
from uatlite.lab.paper.declaration import Claim, Declaration, Line, Panel
from uatlite.lab.paper.grid import Cell, Grid
from uatlite.lab.paper.measurement import (
    Measurement,
    combine,
    difference,
    draws,
    mean,
    over_seeds,
    reduction,
    resampled,
)
from uatlite.lab.paper.scores import Learning, most_seeds
from uatlite.metrics.bootstrap import Interval
from uatlite.metrics.metric import Statistic

LESS = Claim("less", "a/x", "<", "b/x")
NEAR = Claim("alike", "a/x", "~", "b/x", tolerance=0.01)


@pytest.mark.parametrize(
    ("claim", "here", "expected"),
    [
        (LESS, Interval(-0.02, -0.03, -0.01), HELD),
        (LESS, Interval(-0.02, -0.05, 0.01), LIKELY),
        (LESS, Interval(0.02, -0.01, 0.05), UNLIKELY),
        (LESS, Interval(0.02, 0.01, 0.05), REVERSED),
        (LESS, Interval(-0.02, math.nan, math.nan), HELD),
        (LESS, Interval(0.0, 0.0, 0.0), ALIKE),
        (LESS, Interval(0.0, -0.01, 0.01), UNLIKELY),
        (LESS, Interval(0.0, math.nan, math.nan), ALIKE),
        (NEAR, Interval(0.002, -0.004, 0.008), HELD),
        (NEAR, Interval(0.002, -0.02, 0.03), LIKELY),
        (NEAR, Interval(0.03, 0.005, 0.05), UNLIKELY),
        (NEAR, Interval(0.03, 0.02, 0.05), REVERSED),
        (NEAR, Interval(0.0, 0.0, 0.0), HELD),
    ],
)
def test_an_outcome_is_the_direction_and_whether_it_is_beyond_chance(
    claim: Claim, here: Interval, expected: str
) -> None:
    assert outcome_of(claim, here) == expected


def test_a_sentence_says_where_the_paper_contradicts_itself() -> None:
    verdict = Verdict("less", "a < b, x", HELD, Interval(-0.02, -0.03, -0.01), 0.0077, False, False)
    assert verdict.sentence == (
        "a < b, x: held, −0.0200 (−0.0300 to −0.0100) here; +0.0077 in the paper, against its own claim."
    )
    assert summary([verdict]) == "Comparisons that the paper claims: 1, of which 1 held."


def test_numbers_on_the_same_rows_are_paired() -> None:
    """Two statistics that differ by a constant on every row differ by it on every resample."""
    values = np.random.default_rng(0).normal(size=50)
    one, other = (
        resampled([lambda counts, v=v: counts @ v / counts.sum(axis=1)], 50, over="rows", resamples=30)
        for v in (values, values + 1)
    )
    apart = combine([other, one], difference, linear=True)
    assert apart.mean == pytest.approx(1)
    assert apart.drawn == pytest.approx(np.ones((1, 30)))
    assert one.drawn is not None
    assert one.drawn.std() > 0.05


def test_seeds_are_combined_one_by_one_or_by_their_means() -> None:
    two, one = Measurement((0.1, 0.3)), Measurement((0.5,))
    assert combine([two, Measurement((0.2, 0.2))], difference, linear=True).values == pytest.approx((-0.1, 0.1))
    assert combine([two, one], mean, linear=True).values == pytest.approx((0.35,))
    assert combine([one, two], reduction, linear=False).values == pytest.approx((0.6,))


def test_a_biased_statistic_has_its_interval_about_the_truth() -> None:
    """The mean of two pivotal numbers is pivotal and stays above the lowest value of its parts."""
    drawn = np.linspace(0.2, 0.4, 101)
    part = Measurement((0.1,), drawn=drawn[None], truth=0.15, lowest=0.0)
    found = combine([part, part], mean, linear=True).interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.0, 0.25 - 0.205))


# ── rows and seeds ──


def row_mean(values: np.ndarray) -> Statistic:
    return lambda counts: counts @ values / counts.sum(axis=1)


def test_a_resample_of_rows_and_seeds_is_the_one_that_a_loop_draws() -> None:
    """Against rows literally repeated, seed by seed, resample by resample."""
    values = np.random.default_rng(1).normal(size=(3, 20))
    found = resampled([row_mean(one) for one in values], 20, over="rows", resamples=15).resampled()
    chosen = np.random.default_rng(3).integers(3, size=(15, 3))
    expected = []
    for draw, counts in enumerate(np.concatenate(list(draws((20,), "rows", 15)))):
        rows = [row for row, count in enumerate(counts) for _ in range(int(count))]
        of_seed = [sum(seed[row] for row in rows) / len(rows) for seed in values]
        middle = sum(of_seed) / 3
        of_chosen = sum(of_seed[seed] for seed in chosen[draw]) / 3
        expected.append(middle + math.sqrt(3 / 2) * (of_chosen - middle))
    assert found == pytest.approx(np.array(expected))


def test_the_interval_over_rows_and_seeds_covers_what_one_over_rows_does_not() -> None:
    """Four fine-tunings whose true difference varies, 80 rows: how often the population's mean is inside."""
    generator, inside = np.random.default_rng(0), np.zeros(2)
    for repetition in range(300):
        seeds = generator.normal(scale=0.2, size=(4, 1)) + generator.normal(size=80) + np.zeros((4, 80))
        drawn = resampled([row_mean(one) for one in seeds], 80, over=f"rows {repetition}", resamples=200).drawn
        assert drawn is not None
        for place, values in enumerate((over_seeds(drawn), drawn.mean(axis=0))):
            low, high = np.quantile(values, (0.025, 0.975))
            inside[place] += low <= 0 <= high
    both, rows_only = inside / 300
    assert 0.90 <= both <= 0.97  # normal quantiles for four seeds: a little short of 0.95
    assert rows_only < both - 0.05


def test_a_number_without_rows_has_an_interval_over_its_seeds() -> None:
    found = Measurement((0.0, 1.0)).interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.5 - math.sqrt(0.5), 0.5 + math.sqrt(0.5)))
    assert Measurement((0.3,)).interval() is None


def test_rows_to_tell_is_the_usual_sample_size() -> None:
    values = np.random.default_rng(2).normal(0.1, 1.0, size=400)
    found = resampled([row_mean(values)], 400, over="rows", resamples=4000)
    usual = ((1.959964 + 0.841621) * values.std() / 0.1) ** 2
    assert found.rows_to_tell(0.1) == pytest.approx(usual, rel=0.1)
    assert found.rows_to_tell(0.0) is None
    assert Measurement((0.1, 0.3)).rows_to_tell(0.1) is None
    apart = resampled([row_mean(values), row_mean(values + 1)], 400, over="rows", resamples=50)
    assert apart.rows_to_tell(0.1) == math.inf  # the seeds differ by 1


def table(left: Cell, right: Cell) -> tuple[Declaration, Grid]:
    rows = (Line("a", "A", {}), Line("b", "B", {}))
    panel = Panel(rows, (Line("x", "X", {}),), {})
    return Declaration("t", "t", "t", (panel,), {}, claims=(LESS,)), Grid(panel, {("a", "x"): left, ("b", "x"): right})


def test_a_claim_about_a_model_that_has_not_learned_its_task_is_left_out() -> None:
    weak = Learning("dir/tiny", "mnli", 1, 100, accuracy=0.38, chance=0.34)
    good = Learning("dir/tiny", "sst2", 2, 100, accuracy=0.56, chance=0.51)
    assert (weak.learned, good.learned) == (False, True)
    cell, other = (Cell(Measurement((value,)), None, 3, learning=(good, weak)) for value in (0.1, 0.2))
    declaration, grid = table(cell, other)
    (verdict,) = judge(declaration, [grid])
    assert (verdict.outcome, verdict.here) == (UNLEARNED, None)
    assert verdict.sentence == (
        "A < B, X: not learned: tiny on mnli has an accuracy of 0.380, and one answer for all 0.340."
    )
    assert summary([verdict]) == "Comparisons that the paper claims: 1, of which 1 not learned."
    assert most_seeds([weak, good, Learning("dir/tiny", "mnli", 2, 100, 0.5, 0.34)])[0].seeds == 2


@pytest.mark.parametrize(("value", "outcome"), [(0.1, HELD), (0.3, REVERSED)])
def test_a_single_number_of_a_model_decides_nothing_and_one_of_cost_does(value: float, outcome: str) -> None:
    good = Learning("dir/tiny", "sst2", 1, 100, accuracy=0.9, chance=0.5)
    outcomes = []
    for learning in ((good,), ()):
        cells = (Cell(Measurement((one,)), None, 3, learning=learning) for one in (value, 0.2))
        declaration, grid = table(*cells)
        (verdict,) = judge(declaration, [grid])
        outcomes.append(verdict.outcome)
    assert outcomes == [SINGLE[outcome], outcome]
    assert outcomes[0] in UNTOLD
    two = (Cell(Measurement((one, one)), None, 3, learning=(good,)) for one in (value, 0.2))
    declaration, grid = table(*two)
    assert judge(declaration, [grid])[0].outcome == outcome  # two seeds show how a number moves


def test_a_verdict_within_chance_says_how_many_rows_could_tell() -> None:
    generator = np.random.default_rng(5)
    one, two = (resampled([row_mean(generator.normal(size=50))], 50, over="r", resamples=400) for _ in range(2))
    declaration, grid = table(Cell(one, None, 3), Cell(two, None, 3))
    (verdict,) = judge(declaration, [grid])
    apart = combine([one, two], difference, linear=True)
    assert verdict.outcome in (LIKELY, UNLIKELY)
    assert verdict.rows_to_tell == pytest.approx(apart.rows_to_tell(apart.mean))
    assert "(of 50 rows; about " in verdict.sentence
    assert verdict.sentence.index("could tell") > 0
    assert "(of 50 rows; a million could not tell)" in replace(verdict, rows_to_tell=3e6).sentence
