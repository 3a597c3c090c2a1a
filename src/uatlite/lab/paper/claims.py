"""Whether the direction of what the paper claims held here, and whether its own numbers show it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uatlite.lab.paper.declaration import Claim, Declaration, find_cell
from uatlite.lab.paper.grid import Cell, Grid
from uatlite.lab.paper.measurement import Measurement, combine, difference
from uatlite.metrics.bootstrap import Interval

HELD, LIKELY, UNLIKELY, REVERSED, ALIKE, UNKNOWN = (
    "held",
    "same direction, within chance",
    "opposite direction, within chance",
    "reversed",
    "no difference at all",
    "not run",
)


@dataclass(frozen=True)
class Verdict:
    """One comparison of a claim."""

    says: str
    compared: str
    """'UAT-Lite < BERT-base, MNLI'"""
    outcome: str
    here: Interval | None
    """the left cell less the right one; without an interval its ends are NaN"""
    paper: float | None
    """the same difference of the paper's numbers"""
    paper_agrees: bool | None
    ours: bool

    @property
    def sentence(self) -> str:
        """The comparison, what came of it here with its interval, and what the paper's own numbers say."""
        if self.here is None:
            return f"{self.compared}: not run here."
        interval = "" if math.isnan(self.here.low) else f" ({_signed(self.here.low)} to {_signed(self.here.high)})"
        told = f"{self.compared}: {self.outcome}, {_signed(self.here.point)}{interval} here"
        if self.paper is None:
            return f"{told}."
        agrees = "" if self.paper_agrees else ", against its own claim"
        return f"{told}; {_signed(self.paper)} in the paper{agrees}."


def judge(declaration: Declaration, grids: Sequence[Grid]) -> list[Verdict]:
    """A verdict for each comparison of each claim."""
    of_panel = {grid.panel.key: grid for grid in grids}
    return [
        _verdict(claim, declaration, of_panel, left, right)
        for claim in declaration.claims
        for left, right in claim.pairs()
    ]


def _verdict(claim: Claim, declaration: Declaration, grids: dict[str, Grid], left: str, right: str | float) -> Verdict:
    one, *place = _cell(declaration, grids, left)
    if isinstance(right, str):
        other, *other_place = _cell(declaration, grids, right)
        compared = _compared(claim.relation, *place, *other_place)
    else:
        other = Cell(Measurement((right,)), right, 3)
        compared = f"{', '.join(place)} {claim.relation} {right:g}"
    paper = _printed_difference(one, other)
    here = _difference(one, other, isinstance(right, str))
    return Verdict(
        says=claim.says,
        compared=compared,
        outcome=UNKNOWN if here is None else outcome_of(claim, here),
        here=here,
        paper=paper,
        paper_agrees=None if paper is None else _agrees(claim, paper),
        ours=claim.ours,
    )


def _compared(relation: str, row: str, column: str, other_row: str, other_column: str) -> str:
    if column == other_column:
        return f"{row} {relation} {other_row}, {column}"
    if row == other_row:
        return f"{row}: {column} {relation} {other_column}"
    return f"{row}, {column} {relation} {other_row}, {other_column}"


def _printed_difference(one: Cell | None, other: Cell | None) -> float | None:
    if one is None or other is None or one.paper is None or other.paper is None:
        return None
    return one.paper - other.paper


def _cell(declaration: Declaration, grids: dict[str, Grid], address: str) -> tuple[Cell | None, str, str]:
    """A cell, and the headings of its row and column; None where a row was left out."""
    panel, row, column = find_cell(declaration, address)
    rows = {line.key: line.heading for line in panel.rows}
    columns = {line.key: line.heading for line in panel.columns}
    title = f"{panel.title}, " if len(declaration.panels) > 1 and panel.title else ""
    return grids[panel.key].cells.get((row, column)), rows[row], f"{title}{columns[column]}"


def _difference(one: Cell | None, other: Cell | None, two: bool) -> Interval | None:
    if one is None or other is None or one.measured is None or other.measured is None:
        return None
    first, second = one.measured, other.measured
    if not two and first.drawn is not None:  # a plain number has nothing to resample
        found = first.interval()
        assert found is not None
        return Interval(found.point - second.point, found.low - second.point, found.high - second.point)
    apart = combine([first, second], difference, linear=True)
    return apart.interval() or Interval(apart.point, math.nan, math.nan)


def outcome_of(claim: Claim, here: Interval) -> str:
    """How the claimed direction fared. Without an interval the point alone decides."""
    if not math.isfinite(here.point):
        return UNKNOWN
    agrees = _agrees(claim, here.point)
    low, high = (here.point if math.isnan(end) else end for end in (here.low, here.high))
    if claim.relation == "~":
        inside = -claim.tolerance <= low and high <= claim.tolerance
        outside = low > claim.tolerance or high < -claim.tolerance
        sure = inside if agrees else outside
    else:
        sure = low > 0 or high < 0 or low == high
    if claim.relation in ("<", ">") and not any(round(value, 9) for value in (here.point, low, high)):
        return ALIKE
    if agrees:
        return HELD if sure else LIKELY
    return REVERSED if sure else UNLIKELY


def _agrees(claim: Claim, apart: float) -> bool:
    # Numbers of the paper have four decimals, and a difference of two that are printed alike is 0.
    apart = round(apart, 9)
    return {
        "<": apart < 0,
        "<=": apart <= 0,
        ">": apart > 0,
        ">=": apart >= 0,
        "~": abs(apart) <= claim.tolerance + 1e-9,
    }[claim.relation]


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many of the paper's comparisons held."""
    asked = [verdict for verdict in verdicts if not verdict.ours and verdict.outcome != UNKNOWN]
    if not asked:
        return ""
    outcomes = (HELD, LIKELY, UNLIKELY, REVERSED, ALIKE)
    counts = {outcome: sum(one.outcome == outcome for one in asked) for outcome in outcomes}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"Of {len(asked)} comparisons that the paper claims: {told}."
