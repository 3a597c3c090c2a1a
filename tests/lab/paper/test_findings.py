"""The head of the page: claims by what became of them, and our own methods beside the paper's."""

import numpy as np
import pytest

from uatlite.lab.evaluate.cells import Cell, Grid, Learning, Line, Panel
from uatlite.lab.evaluate.comparison import ResampledRows, Sampled, measured
from uatlite.lab.evaluate.plan import parse_contender
from uatlite.lab.paper.claims import Findings, Reproduction, findings_of, judge
from uatlite.lab.paper.declaration import Claim, Declaration
from uatlite.lab.paper.write import findings_markdown
from uatlite.metrics.intervals import Estimate, Resampling
from uatlite.metrics.rows import mean_of

GOOD = Learning("dir/small", "sst2", 2, 200, accuracy=0.9, chance=0.5)
WEAK = Learning("dir/small", "mnli", 1, 200, accuracy=0.36, chance=0.34)
ROWS = {"base+ts": 0.30, "uat": 0.20, "analytic+its": 0.10}


def cell(level: float, learning: Learning, noise: float = 0.01) -> Cell:
    values = np.random.default_rng(round(level * 100)).normal(size=200)
    sampled = Sampled([Estimate(mean_of(level + noise * (values - values.mean())))], (ResampledRows((200,), "rows"),))
    return Cell(measured({0: sampled}, Resampling(200, over_seeds=True))[0], None, 3, learning=(learning,))


@pytest.fixture(scope="module")
def found() -> Findings:
    """A column in which everything is told apart, one in which nothing is, and one that was not learned."""
    rows = tuple(
        Line(key, key.title(), {"contender": parse_contender(key)}, ours=key.startswith("analytic")) for key in ROWS
    )
    columns = tuple(Line(key, f"{key} ECE ↓", {}) for key in ("sst2", "noisy", "mnli"))
    compared = {"UAT-Lite is lower.": "<", "UAT-Lite is higher.": ">"}
    claims = tuple(
        Claim(says, f"uat/{column}", relation, f"base+ts/{column}")
        for says, relation in compared.items()
        for column in ("sst2", "noisy", "mnli")
    )
    panel = Panel(rows, columns, {})
    declaration = Declaration("t", "T", "where", (panel,), claims=claims)
    cells = {(row, "sst2"): cell(level, GOOD) for row, level in ROWS.items()}
    cells |= {(row, "noisy"): cell(level, GOOD, noise=50.0) for row, level in ROWS.items()}
    cells |= {(row, "mnli"): cell(level, WEAK) for row, level in ROWS.items()}
    grid = Grid(panel, cells)
    return findings_of([Reproduction(declaration, (grid,), tuple(judge(declaration, [grid])), ())])


def test_every_comparison_of_the_paper_stands_under_one_heading(found: Findings) -> None:
    counts = {heading: len(verdicts) for heading, verdicts in found.claims.items()}
    assert counts == {"Held": 1, "Did not hold": 1, "Could not be told": 2, "Not learned": 2}
    assert [(table, one.says) for table, one in found.claims["Held"]] == [("t", "UAT-Lite is lower.")]
    assert found.headline == (
        "Comparisons that the paper claims: 6, of which 1 held, 1 did not hold, 2 could not be told, 2 not learned."
    )


def test_our_methods_are_compared_where_the_task_was_learned(found: Findings) -> None:
    outcomes = {(one.column, one.rival): one.outcome for one in found.ours}
    assert outcomes == {
        ("sst2 ECE ↓", "Base+Ts"): "better",
        ("sst2 ECE ↓", "Uat"): "better",
        ("noisy ECE ↓", "Base+Ts"): "level",
        ("noisy ECE ↓", "Uat"): "level",
    }
    assert list(found.of_ours()) == [
        ("Analytic+Its", "Base+Ts", {"better": 1, "level": 1, "worse": 0}),
        ("Analytic+Its", "Uat", {"better": 1, "level": 1, "worse": 0}),
    ]


def test_the_page_begins_with_them(found: Findings) -> None:
    text = findings_markdown(found)
    assert "| sst2 | small | 0.900 | 0.500 | 200 | 2 | learned |" in text
    assert "| mnli | small | 0.360 | 0.340 | 200 | 1 | not learned |" in text
    assert text.index("| mnli |") < text.index("| sst2 |")
    assert text.index("### Held: 1") < text.index("### Did not hold") < text.index("### Could not be told")
    assert "- t: Analytic+Its is better than Uat in sst2 ECE ↓, −0.1" in text
