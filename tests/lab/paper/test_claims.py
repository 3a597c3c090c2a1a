"""Verdicts on claims."""

import math

import pytest

from uatlite.lab.evaluate.cells import Cell, Grid, Learning, Line, Panel, most_seeds
from uatlite.lab.evaluate.comparison import Measurement
from uatlite.lab.paper.claims import (
    ALIKE,
    HELD,
    LIKELY,
    REVERSED,
    SINGLE,
    UNLEARNED,
    UNLIKELY,
    UNTOLD,
    Reproduction,
    Verdict,
    judge,
    outcome_of,
)
from uatlite.lab.paper.declaration import Claim, Declaration
from uatlite.metrics.intervals import Interval

LESS = Claim("less", "a/x", "<", "b/x")
NEAR = Claim("alike", "a/x", "~", "b/x", tolerance=0.01)


def summary(verdict: Verdict) -> str:
    return Reproduction(Declaration("t", "t", "t", ()), (), (verdict,), ()).summary


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
    verdict = Verdict("less", "a < b, x", HELD, -0.02, -0.03, -0.01, 0.0077, False, True)
    assert verdict.sentence == (
        "a < b, x: held, −0.0200 (−0.0300 to −0.0100) here; +0.0077 in the paper, against its own claim."
    )
    assert summary(verdict) == "Comparisons that the paper claims: 1, of which 1 held."


def table(left: Cell, right: Cell) -> tuple[Declaration, Grid]:
    rows = (Line("a", "A", {}), Line("b", "B", {}))
    panel = Panel(rows, (Line("x", "X", {}),), {})
    return Declaration("t", "t", "t", (panel,), claims=(LESS,)), Grid(panel, {("a", "x"): left, ("b", "x"): right})


def test_a_claim_about_a_model_that_has_not_learned_its_task_is_left_out() -> None:
    weak = Learning("dir/tiny", "mnli", 1, 100, accuracy=0.38, chance=0.34)
    good = Learning("dir/tiny", "sst2", 2, 100, accuracy=0.56, chance=0.51)
    assert (weak.learned, good.learned) == (False, True)
    cell, other = (Cell(Measurement((value,)), None, 3, learning=(good, weak)) for value in (0.1, 0.2))
    declaration, grid = table(cell, other)
    (verdict,) = judge(declaration, [grid])
    assert (verdict.outcome, verdict.difference) == (UNLEARNED, None)
    assert verdict.sentence == (
        "A < B, X: not learned: tiny on mnli has an accuracy of 0.380, and one answer for all 0.340."
    )
    assert summary(verdict) == "Comparisons that the paper claims: 1, of which 1 not learned."
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
