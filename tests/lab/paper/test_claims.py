"""Verdicts on claims; and the head of the page: claims by what became of them, our methods beside the paper's."""

import math
from itertools import product

import numpy as np
import pytest

from uatlite.lab.evaluate.cells import Cell, Grid, Learning, Line, Panel
from uatlite.lab.evaluate.comparison import Measurement, ResampledRows, Sampled, measured
from uatlite.lab.evaluate.plan import parse_contender
from uatlite.lab.paper.claims import (
    ALIKE,
    HELD,
    LIKELY,
    REVERSED,
    SINGLE,
    UNLEARNED,
    UNLIKELY,
    UNTOLD,
    Findings,
    Reproduction,
    Verdict,
    outcome_of,
)
from uatlite.lab.paper.declaration import Claim, Declaration
from uatlite.lab.paper.write import findings_markdown
from uatlite.metrics.intervals import Estimate, Interval, Resampling
from uatlite.metrics.rows import mean_of

LESS = Claim("less", "a/x", "<", "b/x")
NEAR = Claim("alike", "a/x", "~", "b/x", tolerance=0.01)
GOOD = Learning("dir/small", "sst2", 2, 200, accuracy=0.9, chance=0.5)


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
def test_an_outcome_is_the_direction_and_whether_it_is_beyond_chance(claim, here, expected):
    assert outcome_of(claim, here) == expected


def test_a_sentence_says_where_the_paper_contradicts_itself():
    verdict = Verdict("less", "a < b, x", HELD, -0.02, -0.03, -0.01, 0.0077, False, True)
    assert verdict.sentence == (
        "a < b, x: held, −0.0200 (−0.0300 to −0.0100) here; +0.0077 in the paper, against its own claim."
    )


def table_of(learning, *values):
    """A table that claims "A is less than B", where these are the values of A and of B over seeds."""
    panel = Panel((Line("a", "A", {}), Line("b", "B", {})), (Line("x", "X", {}),), {})
    a, b = (Cell(Measurement(of_seeds), None, 3, learning=learning) for of_seeds in values)
    grid = Grid(panel, {("a", "x"): a, ("b", "x"): b})
    return Reproduction(Declaration("t", "t", "t", (panel,), claims=(LESS,)), (grid,), ())


def test_a_claim_about_a_model_that_has_not_learned_its_task_is_left_out():
    weak = Learning("dir/tiny", "mnli", 1, 100, accuracy=0.38, chance=0.34)
    good = Learning("dir/tiny", "sst2", 2, 100, accuracy=0.56, chance=0.51)
    assert (weak.learned, good.learned) == (False, True)
    table = table_of((good, weak), (0.1,), (0.2,))
    (verdict,) = table.verdicts
    assert (verdict.outcome, verdict.difference) == (UNLEARNED, None)
    assert verdict.sentence == (
        "A < B, X: not learned: tiny on mnli has an accuracy of 0.380, and one answer for all 0.340."
    )
    assert table.summary == "Comparisons that the paper claims: 1, of which 1 not learned."
    more = Learning("dir/tiny", "mnli", 2, 100, 0.5, 0.34)
    assert Findings([table, table_of((more, weak), (0.1,), (0.2,))]).models == [more, good]


@pytest.mark.parametrize(("value", "outcome"), [(0.1, HELD), (0.3, REVERSED)])
def test_a_single_number_of_a_model_decides_nothing_and_one_of_cost_does(value, outcome):
    single, of_cost = (table_of(learning, (value,), (0.2,)) for learning in ((GOOD,), ()))
    assert single.verdicts[0].outcome == SINGLE[outcome]
    assert SINGLE[outcome] in UNTOLD
    assert of_cost.verdicts[0].outcome == outcome
    assert of_cost.summary == f"Comparisons that the paper claims: 1, of which 1 {outcome}."
    assert table_of((GOOD,), (value,) * 2, (0.2,) * 2).verdicts[0].outcome == outcome  # two show how a number moves


# ── findings ──

WEAK = Learning("dir/small", "mnli", 1, 200, accuracy=0.36, chance=0.34)
ROWS = {"base+ts": 0.30, "uat": 0.20, "analytic+its": 0.10}


def cell(level, learning, noise):
    values = np.random.default_rng(round(level * 100)).normal(size=200)
    sampled = Sampled([Estimate(mean_of(level + noise * (values - values.mean())))], (ResampledRows((200,), "rows"),))
    return Cell(measured({0: sampled}, Resampling(200, over_seeds=True))[0], None, 3, learning=(learning,))


@pytest.fixture(scope="module")
def found():
    """A column in which everything is told apart, one in which nothing is, and one that was not learned."""
    rows = tuple(
        Line(key, key.title(), {"contender": parse_contender(key)}, ours=key.startswith("analytic")) for key in ROWS
    )
    made = {"sst2": (GOOD, 0.01), "noisy": (GOOD, 50.0), "mnli": (WEAK, 0.01)}
    panel = Panel(rows, tuple(Line(key, f"{key} ECE ↓", {}) for key in made), {})
    compared = product((("UAT-Lite is lower.", "<"), ("UAT-Lite is higher.", ">")), made)
    claims = tuple(Claim(says, f"uat/{on}", relation, f"base+ts/{on}") for (says, relation), on in compared)
    declaration = Declaration("t", "T", "where", (panel,), claims=claims)
    grid = Grid(panel, {(row, on): cell(level, *how) for row, level in ROWS.items() for on, how in made.items()})
    return Findings([Reproduction(declaration, (grid,), ())])


def test_every_comparison_of_the_paper_stands_under_one_heading(found):
    counts = {heading: len(verdicts) for heading, verdicts in found.claims.items()}
    assert counts == {"Held": 1, "Did not hold": 1, "Could not be told": 2, "Not learned": 2}
    assert [(table, one.says) for table, one in found.claims["Held"]] == [("t", "UAT-Lite is lower.")]
    assert found.headline == (
        "Comparisons that the paper claims: 6, of which 1 held, 1 did not hold, 2 could not be told, 2 not learned."
    )


def test_our_methods_are_compared_where_the_task_was_learned(found):
    outcomes = {(one.column, one.rival): one.outcome for one in found.ours}
    columns = {"sst2 ECE ↓": "better", "noisy ECE ↓": "level"}
    assert outcomes == {(on, rival): how for on, how in columns.items() for rival in ("Base+Ts", "Uat")}


def test_the_page_begins_with_them(found):
    text = findings_markdown(found)
    assert "| sst2 | small | 0.900 | 0.500 | 200 | 2 | learned |" in text
    assert "| mnli | small | 0.360 | 0.340 | 200 | 1 | not learned |" in text
    assert text.index("| mnli |") < text.index("| sst2 |")
    assert text.index("### Held: 1") < text.index("### Did not hold") < text.index("### Could not be told")
    for rival in ("Base+Ts", "Uat"):
        assert f"| Analytic+Its | {rival} | 1 | 1 | 0 |" in text
    assert "- t: Analytic+Its is better than Uat in sst2 ECE ↓, −0.1" in text
