"""Verdicts on the paper's claims, and what a reader wants first of all tables: the findings.

A verdict says whether a comparison held here, and whether the paper's own numbers show it. The findings are the claims
by what became of them on models that learned their task, and our own methods beside the paper's. All of it is read
off the filled tables; nothing is computed from predictions.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from uatlite.lab.evaluate.cells import Grid, Learning, Line, most_seeds
from uatlite.lab.evaluate.comparison import Measurement, Relation, relation
from uatlite.lab.paper.declaration import Claim, Declaration, find_cell
from uatlite.metrics.intervals import Better, Interval

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
_GROUPS = {
    "Held": (HELD,),
    "Did not hold": (REVERSED, ALIKE),
    "Could not be told": UNTOLD,
    "Not learned": (UNLEARNED,),
}
"""heading -> the outcomes under it"""
OWN_METHODS = ("analytic", "distilled")
RIVALS = ("uat", "uat+ts", "base+ts")
"""Rows that our own methods are compared with, where a table has them."""
ARROWS: Mapping[str, Better] = {"↓": "lower", "↑": "higher"}
"""The last character of a column's heading -> which direction is better."""


# ── verdicts ───────────────────────────────────────────────────────────────────────────────────────────────────────


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

    @property
    def sentence(self) -> str:
        """The comparison, its outcome here with the interval, and what the paper's own numbers say."""
        if self.unlearned:
            return f"{self.compared}: not learned: {'; '.join(self.unlearned)}."
        if self.here is None:
            return f"{self.compared}: not run here."
        interval = "" if math.isnan(self.here.low) else f" ({_signed(self.here.low)} to {_signed(self.here.high)})"
        text = f"{self.compared}: {self.outcome}, {_signed(self.here.point)}{interval} here"
        if self.paper is None:
            return f"{text}."
        agrees = "" if self.paper_agrees else ", against its own claim"
        return f"{text}; {_signed(self.paper)} in the paper{agrees}."


def judge(declaration: Declaration, grids: Sequence[Grid]) -> list[Verdict]:
    """A verdict for each comparison of each claim."""
    of_panel = {grid.panel.key: grid for grid in grids}
    return [
        _verdict(claim, declaration, of_panel, left, right)
        for claim in declaration.claims
        for left, right in claim.pairs()
    ]


@dataclass(frozen=True)
class _Side:
    """One side of a comparison: a cell and its headings, or a plain number."""

    measurement: Measurement | float | None
    printed: float | None
    row: str = ""
    column: str = ""
    learning: tuple[Learning, ...] = ()


def _side(declaration: Declaration, grids: Mapping[str, Grid], address: str | float) -> _Side:
    if not isinstance(address, str):
        return _Side(address, address)
    panel, row, column = find_cell(declaration, address)
    title = f"{panel.title}, " if len(declaration.panels) > 1 and panel.title else ""
    cell = grids[panel.key].cells[row.key, column.key]
    return _Side(cell.measurement, cell.paper, row.heading, f"{title}{column.heading}", cell.learning)


def _verdict(
    claim: Claim, declaration: Declaration, grids: Mapping[str, Grid], left: str, right: str | float
) -> Verdict:
    one, other = _side(declaration, grids, left), _side(declaration, grids, right)
    learning = (*one.learning, *other.learning)
    paper = None if one.printed is None or other.printed is None else one.printed - other.printed
    unlearned = tuple(dict.fromkeys(model.sentence for model in learning if not model.learned))
    apart = None
    if isinstance(one.measurement, Measurement) and other.measurement is not None and not unlearned:
        apart = one.measurement.minus(other.measurement)
    here = None if apart is None else apart.interval_or_point()
    outcome = UNLEARNED if unlearned else UNKNOWN if here is None else outcome_of(claim, here)
    if here is not None and math.isnan(here.low) and learning:  # cost needs no interval
        outcome = SINGLE.get(outcome, outcome)
    return Verdict(
        says=claim.says,
        compared=_compared(claim, one, other),
        outcome=outcome,
        here=here,
        paper=paper,
        paper_agrees=None if paper is None else _agrees(claim, paper),
        ours=claim.ours,
        unlearned=unlearned,
        rows=0 if apart is None else apart.rows,
    )


def _compared(claim: Claim, one: _Side, other: _Side) -> str:
    """'UAT-Lite < BERT-base, MNLI': what is the same on both sides is said once."""
    if isinstance(other.measurement, float | int):
        return f"{one.row}, {one.column} {claim.relation} {other.measurement:g}"
    if one.column == other.column:
        return f"{one.row} {claim.relation} {other.row}, {one.column}"
    if one.row == other.row:
        return f"{one.row}: {one.column} {claim.relation} {other.column}"
    return f"{one.row}, {one.column} {claim.relation} {other.row}, {other.column}"


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


# ── findings ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reproduction:
    """One table or figure with its cells and verdicts."""

    declaration: Declaration
    grids: tuple[Grid, ...]
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]

    @property
    def reasons(self) -> list[str]:
        """Why cells are empty."""
        return list(dict.fromkeys(reason for grid in self.grids for reason in grid.reasons))

    @property
    def skipped(self) -> bool:
        """Whether all cells are empty."""
        return not any(grid.filled for grid in self.grids)

    @property
    def shown(self) -> list[Grid]:
        """The panels that have something to show."""
        return [grid for grid in self.grids if not grid.blank]

    @property
    def answered(self) -> list[Verdict]:
        """What the paper claims, and those questions of ours that were run."""
        return [verdict for verdict in self.verdicts if not (verdict.ours and verdict.outcome == UNKNOWN)]


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
    outcome: Relation


@dataclass(frozen=True)
class Findings:
    """What stands at the head of the page."""

    models: tuple[Learning, ...]
    claims: dict[str, tuple[Finding, ...]]
    """heading -> the paper's claims under it"""
    ours: tuple[OwnResult, ...]

    def count(self, heading: str) -> int:
        """How many comparisons stand under a heading."""
        return sum(len(finding.verdicts) for finding in self.claims[heading])

    @property
    def headline(self) -> str:
        """'Comparisons that the paper claims: 120, of which 20 held, 9 did not hold, …'."""
        total = sum(map(self.count, _GROUPS))
        counts = ", ".join(f"{self.count(heading)} {heading.lower()}" for heading in _GROUPS)
        return f"Comparisons that the paper claims: {total}, of which {counts}."

    def of_ours(self) -> Iterator[tuple[str, str, dict[str, int]]]:
        """Each of our methods and a rival, and how often it is better, level and worse."""

        def pair(result: OwnResult) -> tuple[str, str]:
            return result.method, result.rival

        for (method, rival), group in groupby(sorted(self.ours, key=pair), key=pair):
            outcomes = [result.outcome for result in group]
            yield method, rival, {name: outcomes.count(name) for name in ("better", "level", "worse")}


def findings_of(tables: Sequence[Reproduction]) -> Findings:
    """The findings of filled tables."""
    cells = [cell for table in tables for grid in table.grids for cell in grid.cells.values()]
    models = most_seeds(learning for cell in cells for learning in cell.learning)
    return Findings(
        models=tuple(sorted(models, key=lambda model: (model.task, model.accuracy))),
        claims={
            heading: tuple(finding for table in tables for finding in _claims(table, outcomes))
            for heading, outcomes in _GROUPS.items()
        },
        ours=tuple(result for table in tables for grid in table.grids for result in _own(table, grid)),
    )


def _claims(table: Reproduction, outcomes: Sequence[str]) -> Iterator[Finding]:
    chosen = [verdict for verdict in table.verdicts if not verdict.ours and verdict.outcome in outcomes]
    for says, verdicts in groupby(chosen, key=lambda verdict: verdict.says):
        yield Finding(table.declaration.name, says, tuple(verdicts))


def _own(table: Reproduction, grid: Grid) -> Iterator[OwnResult]:
    """Our methods against their rivals in the measured columns with an arrow, where the task was learned."""
    rows = [row for row in grid.panel.rows if row.derive is None]
    ours = [row for row in rows if row.ours and _method(row) in OWN_METHODS]
    rivals = [row for row in rows if row.key in RIVALS]
    title = f"{grid.panel.title}, " if grid.panel.title else ""
    for column in (column for column in grid.panel.columns if column.derive is None):
        better = ARROWS.get(column.heading[-1:])
        for row, rival in ((row, rival) for row in ours for rival in rivals):
            one, other = (grid.cells[line.key, column.key] for line in (row, rival))
            if better is None or one.unlearned or other.unlearned:
                continue
            if one.measurement is None or other.measurement is None:
                continue
            apart = one.measurement.minus(other.measurement).interval_or_point()
            heading, stands = f"{title}{column.heading}", relation(apart, better)
            yield OwnResult(table.declaration.name, heading, row.heading, rival.heading, apart, stands)


def _method(row: Line) -> str:
    contender = row.coordinates.get("contender")
    return "base" if contender is None else contender.method.key
