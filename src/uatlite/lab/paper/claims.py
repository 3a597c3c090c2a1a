"""Verdicts on the paper's claims: whether each comparison held here, and whether the paper's own numbers show it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uatlite.lab.paper.declaration import Claim, Declaration, find_cell
from uatlite.lab.paper.grid import Cell, Grid
from uatlite.lab.paper.measurement import Measurement, combine, difference
from uatlite.metrics.bootstrap import Interval

HELD, LIKELY, UNLIKELY, REVERSED, ALIKE, UNLEARNED, UNKNOWN = (
    "held",
    "same direction, within chance",
    "opposite direction, within chance",
    "reversed",
    "no difference at all",
    "not learned",
    "not run",
)
SINGLE = {
    HELD: "same direction, a single number",
    REVERSED: "opposite direction, a single number",
}
"""What is said in place of an outcome that rests on one sentence and one seed: nothing shows how chance moves it."""
UNTOLD = (LIKELY, UNLIKELY, *SINGLE.values())
MOST_ROWS = 1_000_000
"""Nobody labels more than this to tell two methods apart."""


@dataclass(frozen=True)
class Verdict:
    """One comparison of a claim."""

    says: str
    compared: str
    """'UAT-Lite < BERT-base, MNLI'"""
    outcome: str
    here: Interval | None
    """the left cell minus the right one; without an interval its ends are NaN"""
    paper: float | None
    """the same difference of the paper's numbers"""
    paper_agrees: bool | None
    ours: bool
    unlearned: tuple[str, ...] = ()
    """the models behind it that have not learned their task, in words"""
    rows: int = 0
    rows_to_tell: float | None = None
    """where chance decides: how many rows could tell, if the difference is as large as here; infinite: more seeds"""

    @property
    def sentence(self) -> str:
        """The comparison, its outcome here with the interval, and what the paper's own numbers say."""
        if self.unlearned:
            return f"{self.compared}: not learned: {'; '.join(self.unlearned)}."
        if self.here is None:
            return f"{self.compared}: not run here."
        interval = "" if math.isnan(self.here.low) else f" ({_signed(self.here.low)} to {_signed(self.here.high)})"
        text = f"{self.compared}: {self.outcome}, {_signed(self.here.point)}{interval} here{self.remedy}"
        if self.paper is None:
            return f"{text}."
        agrees = "" if self.paper_agrees else ", against its own claim"
        return f"{text}; {_signed(self.paper)} in the paper{agrees}."

    @property
    def remedy(self) -> str:
        """How many rows could tell, in words; nothing where it was told."""
        if self.rows_to_tell is None:
            return ""
        if math.isinf(self.rows_to_tell):
            return f" (of {self.rows:,} rows; no number of rows could tell, more seeds could)"
        if self.rows_to_tell > MOST_ROWS:
            return f" (of {self.rows:,} rows; a million could not tell)"
        digits = max(0, len(str(int(self.rows_to_tell))) - 2)
        return f" (of {self.rows:,} rows; about {int(round(self.rows_to_tell, -digits)):,} could tell)"


def judge(declaration: Declaration, grids: Sequence[Grid]) -> list[Verdict]:
    """A verdict for each comparison of each claim."""
    of_panel = {grid.panel.key: grid for grid in grids}
    return [
        _verdict(claim, declaration, of_panel, left, right)
        for claim in declaration.claims
        for left, right in claim.pairs()
    ]


def _verdict(claim: Claim, declaration: Declaration, grids: dict[str, Grid], left: str, right: str | float) -> Verdict:
    one, row, column = _cell(declaration, grids, left)
    cells = [one]
    other: Measurement | float | None
    if isinstance(right, str):
        cell, other_row, other_column = _cell(declaration, grids, right)
        cells.append(cell)
        other, printed = cell.measurement, cell.paper
        if column == other_column:
            compared = f"{row} {claim.relation} {other_row}, {column}"
        elif row == other_row:
            compared = f"{row}: {column} {claim.relation} {other_column}"
        else:
            compared = f"{row}, {column} {claim.relation} {other_row}, {other_column}"
    else:
        other = printed = right
        compared = f"{row}, {column} {claim.relation} {right:g}"
    paper = None if one.paper is None or printed is None else one.paper - printed
    unlearned = tuple(dict.fromkeys(model.sentence for cell in cells for model in cell.unlearned))
    difference = None if unlearned else _difference(one.measurement, other)
    here = None if difference is None else interval_or_point(difference)
    outcome = UNLEARNED if unlearned else UNKNOWN if here is None else outcome_of(claim, here)
    if here is not None and math.isnan(here.low) and any(cell.learning for cell in cells):  # cost needs no interval
        outcome = SINGLE.get(outcome, outcome)
    unsure = difference is not None and here is not None and outcome in (LIKELY, UNLIKELY)
    return Verdict(
        says=claim.says,
        compared=compared,
        outcome=outcome,
        here=here,
        paper=paper,
        paper_agrees=None if paper is None else _agrees(claim, paper),
        ours=claim.ours,
        unlearned=unlearned,
        rows=0 if difference is None else difference.rows,
        rows_to_tell=difference.rows_to_tell(_apart(claim, here.point)) if unsure and difference and here else None,
    )


def _apart(claim: Claim, point: float) -> float:
    """How far a difference lies from the nearest value with another verdict."""
    return abs(abs(point) - claim.tolerance) if claim.relation == "~" else abs(point)


def _cell(declaration: Declaration, grids: dict[str, Grid], address: str) -> tuple[Cell, str, str]:
    """A cell and the headings of its row and column."""
    panel, row, column = find_cell(declaration, address)
    title = f"{panel.title}, " if len(declaration.panels) > 1 and panel.title else ""
    return grids[panel.key].cells[row.key, column.key], row.heading, f"{title}{column.heading}"


def _difference(first: Measurement | None, second: Measurement | float | None) -> Measurement | None:
    """The first minus the second, on the same resamples; a plain number shifts the first."""
    if first is None or second is None:
        return None
    if isinstance(second, float | int):
        second = Measurement(
            values=tuple(float(second) for _ in first.values),
            rows=first.rows,
            drawn=None if first.drawn is None else np.full_like(first.drawn, second),
            truth=None if first.truth is None else float(second),
        )
    return combine([first, second], difference, linear=True)


def interval_or_point(measurement: Measurement) -> Interval:
    """The interval of a number; where nothing was resampled its ends are NaN."""
    return measurement.interval() or Interval(measurement.mean, math.nan, math.nan)


def outcome_of(claim: Claim, here: Interval) -> str:
    """Whether the claimed direction held. Without an interval the point alone decides."""
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
    # The paper's numbers have four decimals; the difference of two equal ones must be 0.
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
    found = [verdict.outcome for verdict in verdicts if not verdict.ours and verdict.outcome != UNKNOWN]
    counts = {outcome: found.count(outcome) for outcome in (HELD, *UNTOLD, REVERSED, ALIKE, UNLEARNED)}
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"Comparisons that the paper claims: {len(found)}, of which {text}." if found else ""
