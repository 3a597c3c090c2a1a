"""Verdicts on claims, and the arithmetic of measured numbers that they rest on."""

import math

import numpy as np
import pytest

from uatlite.lab.paper.claims import ALIKE, HELD, LIKELY, REVERSED, UNLIKELY, Verdict, outcome_of, summary
from uatlite.lab.paper.declaration import Claim
from uatlite.lab.paper.measurement import Measurement, combine, difference, mean, reduction, resampled
from uatlite.metrics.bootstrap import Interval

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
    assert summary([verdict]) == "Of 1 comparisons that the paper claims: 1 held."


def test_numbers_on_the_same_rows_are_paired() -> None:
    """Two statistics that differ by a constant on every row differ by it on every resample."""
    values = np.random.default_rng(0).normal(size=50)
    one, other = (
        resampled([lambda counts, v=v: counts @ v / counts.sum(axis=1)], 50, over="rows", resamples=30)
        for v in (values, values + 1)
    )
    apart = combine([other, one], difference, linear=True)
    assert apart.mean == pytest.approx(1)
    assert apart.drawn == pytest.approx(np.ones(30))
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
    part = Measurement((0.1,), drawn=drawn, truth=0.15, lowest=0.0)
    found = combine([part, part], mean, linear=True).interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.0, 0.25 - 0.205))
