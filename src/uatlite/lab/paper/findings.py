"""What a reader wants first: which claims held on models that learned their task, which did not, and our own methods.

All of it is read off the filled tables; nothing is computed from predictions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from uatlite.lab.evaluate.plan import parse_contender
from uatlite.lab.paper.claims import (
    ALIKE,
    HELD,
    REVERSED,
    UNLEARNED,
    UNTOLD,
    Verdict,
    interval_or_point,
)
from uatlite.lab.paper.grid import Grid
from uatlite.lab.paper.measurement import combine, difference
from uatlite.lab.paper.reproduction import Reproduction
from uatlite.lab.paper.scores import Learning, most_seeds
from uatlite.metrics.bootstrap import Interval

GROUPS = {
    "Held": (HELD,),
    "Did not hold": (REVERSED, ALIKE),
    "Could not be told": UNTOLD,
    "Not learned": (UNLEARNED,),
}
"""heading -> the outcomes under it"""
OWN_METHODS = ("analytic", "distilled")
RIVALS = ("uat", "uat+ts", "base+ts")
"""Rows that our own methods are compared with, where a table has them."""
ARROWS = {"↓": -1, "↑": 1}
"""The last character of a column's heading -> which sign of a difference is better."""


@dataclass(frozen=True)
class Finding:
    """The comparisons of one claim with one kind of outcome."""

    table: str
    says: str
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class OwnResult:
    """One of our methods less another one, in a cell of the paper."""

    table: str
    column: str
    method: str
    rival: str
    apart: Interval
    outcome: str
    """'better', 'worse' or 'level'"""


@dataclass(frozen=True)
class Findings:
    """What stands at the head of the page."""

    models: tuple[Learning, ...]
    claims: dict[str, tuple[Finding, ...]]
    """heading -> the paper's claims under it"""
    ours: tuple[OwnResult, ...]

    def count(self, heading: str) -> int:
        """How many comparisons stand under a heading."""
        return sum(len(one.verdicts) for one in self.claims[heading])

    @property
    def headline(self) -> str:
        """'Comparisons that the paper claims: 120, of which 20 held, 9 did not hold, …'."""
        total = sum(map(self.count, GROUPS))
        counts = ", ".join(f"{self.count(heading)} {heading.lower()}" for heading in GROUPS)
        return f"Comparisons that the paper claims: {total}, of which {counts}."

    def of_ours(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        """Each of our methods and a rival, and how often it is better, level and worse."""
        key = sorted(self.ours, key=lambda one: (one.method, one.rival))
        for (method, rival), group in groupby(key, key=lambda one: (one.method, one.rival)):
            outcomes = [one.outcome for one in group]
            yield method, rival, {name: outcomes.count(name) for name in ("better", "level", "worse")}


def findings_of(tables: Sequence[Reproduction]) -> Findings:
    """The findings of filled tables."""
    cells = [cell for table in tables for grid in table.grids for cell in grid.cells.values()]
    models = most_seeds(one for cell in cells for one in cell.learning)
    return Findings(
        models=tuple(sorted(models, key=lambda one: (one.task, one.accuracy))),
        claims={
            heading: tuple(finding for table in tables for finding in _claims(table, outcomes))
            for heading, outcomes in GROUPS.items()
        },
        ours=tuple(result for table in tables for grid in table.grids for result in _own(table, grid)),
    )


def _claims(table: Reproduction, outcomes: Sequence[str]) -> Iterator[Finding]:
    found = [one for one in table.verdicts if not one.ours and one.outcome in outcomes]
    for says, verdicts in groupby(found, key=lambda verdict: verdict.says):
        yield Finding(table.declaration.name, says, tuple(verdicts))


def _own(table: Reproduction, grid: Grid) -> Iterator[OwnResult]:
    """Our methods against their rivals in the measured columns with an arrow, where the task was learned."""
    rows = [row for row in grid.panel.rows if row.derive is None]
    ours = [row for row in rows if row.ours and _method(row.coordinates.get("contender", "base")) in OWN_METHODS]
    rivals = [row for row in rows if row.key in RIVALS]
    title = f"{grid.panel.title}, " if grid.panel.title else ""
    for column in grid.panel.columns:
        better = ARROWS.get(column.heading[-1:])
        for row, rival in ((row, rival) for row in ours for rival in rivals):
            one, other = (grid.cells[line.key, column.key] for line in (row, rival))
            if better is None or column.derive is not None or one.unlearned or other.unlearned:
                continue
            if one.measurement is None or other.measurement is None:
                continue
            apart = interval_or_point(combine([one.measurement, other.measurement], difference, linear=True))
            yield OwnResult(
                table.declaration.name,
                f"{title}{column.heading}",
                row.heading,
                rival.heading,
                apart,
                _outcome(apart, better),
            )


def _method(contender: str) -> str:
    return str(parse_contender(contender).method.to_dict()["method"])


def _outcome(apart: Interval, better: int) -> str:
    """'level' unless the interval excludes 0; without an interval too."""
    if math.isnan(apart.low) or not apart.excludes(0.0):
        return "level"
    return "better" if apart.point * better > 0 else "worse"
