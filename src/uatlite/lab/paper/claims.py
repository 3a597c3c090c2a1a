"""Verdicts on the paper's claims, and what a reader wants first of all tables: the findings.

A verdict says whether a comparison held here, and whether the paper's own numbers show it. The findings are the claims
by what became of them on models that learned their task, and our own methods beside the paper's. All of it is read
off the filled tables; nothing is computed from predictions.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from uatlite.lab.evaluate.cells import Cell, Grid, Learning
from uatlite.lab.evaluate.comparison import Relation, relation
from uatlite.lab.paper.declaration import Claim, Declaration
from uatlite.lab.report.tables import signed
from uatlite.metrics.intervals import Better, Interval

HELD, REVERSED, ALIKE = "held", "reversed", "no difference at all"
LIKELY, UNLIKELY = "same direction, within chance", "opposite direction, within chance"
UNLEARNED, UNKNOWN = "not learned", "not run"
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


@dataclass(frozen=True)
class Verdict:
    """One comparison of a claim, with the fields that are written to JSON."""

    says: str
    compared: str
    """'UAT-Lite < BERT-base, MNLI'"""
    outcome: str
    difference: float | None
    """the left cell minus the right one; None where it was not run"""
    low: float | None
    high: float | None
    paper: float | None
    """the same difference of the paper's numbers"""
    paper_agrees: bool | None
    claimed_by_the_paper: bool
    rows: int = 0
    unlearned: tuple[str, ...] = ()
    """the models behind it that have not learned their task, in words"""

    @property
    def sentence(self) -> str:
        """The comparison, its outcome here with the interval, and what the paper's own numbers say."""
        if self.unlearned:
            return f"{self.compared}: not learned: {'; '.join(self.unlearned)}."
        if self.difference is None:
            return f"{self.compared}: not run here."
        ends = [end for end in (self.low, self.high) if end is not None]
        interval = f" ({' to '.join(map(_signed, ends))})" if ends else ""
        text = f"{self.compared}: {self.outcome}, {_signed(self.difference)}{interval} here"
        if self.paper is None:
            return f"{text}."
        agrees = "" if self.paper_agrees else ", against its own claim"
        return f"{text}; {_signed(self.paper)} in the paper{agrees}."


def _signed(value: float) -> str:
    """Unlike in a table a zero keeps its sign, which tells the direction."""
    return f"{value:+.4f}".replace("-", "−")


def verdict_of(claim: Claim, declaration: Declaration, cells: Mapping[str, Cell]) -> Verdict:
    """The verdict on a claim; `cells` are those of the declaration by their addresses."""
    of_claim = [cells[address] for address in claim.addresses]
    left, right = of_claim[0], of_claim[1] if isinstance(claim.right, str) else Cell(None, claim.right, 0)
    paper = None if left.paper is None or right.paper is None else left.paper - right.paper
    unlearned = tuple(dict.fromkeys(model.sentence for cell in of_claim for model in cell.unlearned))
    other = right.measurement if isinstance(claim.right, str) else claim.right
    apart = None
    if left.measurement is not None and other is not None and not unlearned:
        apart = left.measurement.minus(other)
    here = None if apart is None else apart.interval_or_point()
    outcome = UNLEARNED if unlearned else UNKNOWN if here is None else outcome_of(claim, here)
    if here is not None and math.isnan(here.low) and any(cell.learning for cell in of_claim):  # cost needs no interval
        outcome = SINGLE.get(outcome, outcome)
    return Verdict(
        says=claim.says,
        compared=_compared(claim, declaration),
        outcome=outcome,
        difference=None if here is None else here.point,
        low=None if here is None or math.isnan(here.low) else here.low,
        high=None if here is None or math.isnan(here.high) else here.high,
        paper=paper,
        paper_agrees=None if paper is None else claim.agrees(paper),
        claimed_by_the_paper=not claim.ours,
        rows=0 if apart is None else apart.rows,
        unlearned=unlearned,
    )


def _compared(claim: Claim, declaration: Declaration) -> str:
    """'UAT-Lite < BERT-base, MNLI': what is the same on both sides is said once; of several panels also which."""
    rows, columns = [], []
    for panel, row, column in (declaration.lines[address] for address in claim.addresses):
        title = f"{panel.title}, " if len(declaration.panels) > 1 and panel.title else ""
        rows.append(row.heading)
        columns.append(f"{title}{column.heading}")
    if not isinstance(claim.right, str):
        return f"{rows[0]}, {columns[0]} {claim.relation} {claim.right:g}"
    if columns[0] == columns[1]:
        return f"{rows[0]} {claim.relation} {rows[1]}, {columns[0]}"
    if rows[0] == rows[1]:
        return f"{rows[0]}: {columns[0]} {claim.relation} {columns[1]}"
    return f"{rows[0]}, {columns[0]} {claim.relation} {rows[1]}, {columns[1]}"


def outcome_of(claim: Claim, here: Interval) -> str:
    """Whether the claimed direction held. Without an interval the point alone decides."""
    if not math.isfinite(here.point):
        return UNKNOWN
    agrees = claim.agrees(here.point)
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


# ── findings ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reproduction:
    """One table or figure with its cells."""

    declaration: Declaration
    grids: tuple[Grid, ...]
    notes: tuple[str, ...]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """A verdict for each claim."""
        grids = {grid.panel.key: grid.cells for grid in self.grids}
        lines = self.declaration.lines.items()
        cells = {address: grids[panel.key][row.key, column.key] for address, (panel, row, column) in lines}
        return [verdict_of(claim, self.declaration, cells) for claim in self.declaration.claims]

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
    def summary(self) -> str:
        """How many of the paper's comparisons held; empty where none was run."""
        counts = Counter(verdict.outcome for verdict in self.verdicts if verdict.claimed_by_the_paper)
        del counts[UNKNOWN]
        outcomes = (HELD, *UNTOLD, REVERSED, ALIKE, UNLEARNED)
        text = ", ".join(f"{counts[outcome]} {outcome}" for outcome in outcomes if counts[outcome])
        return f"Comparisons that the paper claims: {counts.total()}, of which {text}." if text else ""

    @property
    def answered(self) -> list[Verdict]:
        """What the paper claims, and those questions of ours that were run."""
        return [verdict for verdict in self.verdicts if verdict.claimed_by_the_paper or verdict.outcome != UNKNOWN]

    def own_results(self) -> "Iterator[OwnResult]":
        """Our methods against their rivals in the measured columns with an arrow, where the task was learned."""
        for grid in self.grids:
            rows = [row for row in grid.panel.rows if row.derive is None]
            ours = [row for row in rows if row.ours and "contender" in row.coordinates]
            ours = [row for row in ours if row.coordinates["contender"].method.key in OWN_METHODS]
            rivals = [row for row in rows if row.key in RIVALS]
            title = f"{grid.panel.title}, " if grid.panel.title else ""
            columns = [line for line in grid.panel.columns if line.heading[-1:] in ARROWS and line.derive is None]
            for column, row, rival in product(columns, ours, rivals):
                cells = [grid.cells[line.key, column.key] for line in (row, rival)]
                left, right = (None if cell.unlearned else cell.measurement for cell in cells)
                if left is not None and right is not None:
                    apart = left.minus(right).interval_or_point()
                    names = self.declaration.name, f"{title}{column.heading}", row.heading, rival.heading
                    yield OwnResult(*names, apart, relation(apart, ARROWS[column.heading[-1]]))


@dataclass(frozen=True)
class OwnResult:
    """One of our methods less another one, in a cell of the paper."""

    table: str
    column: str
    method: str
    rival: str
    apart: Interval
    outcome: Relation

    @property
    def sentence(self) -> str:
        """'shift: Analytic+ITS is better than UAT-Lite in OOD ECE ↓, −0.012 (−0.020 to −0.004)'."""
        point, low, high = (signed(value, 4) for value in (self.apart.point, self.apart.low, self.apart.high))
        stands = f"{self.method} is {self.outcome} than {self.rival} in {self.column}"
        return f"{self.table}: {stands}, {point} ({low} to {high})"


@dataclass(frozen=True)
class Findings:
    """What stands at the head of the page of some tables."""

    tables: Sequence[Reproduction]

    @cached_property
    def models(self) -> list[Learning]:
        """Each model on each task over the most seeds, by task and accuracy."""
        cells = [cell for table in self.tables for grid in table.grids for cell in grid.cells.values()]
        by_seeds = sorted((model for cell in cells for model in cell.learning), key=lambda model: model.seeds)
        models = {(model.task, model.backbone): model for model in by_seeds}
        return sorted(models.values(), key=lambda model: (model.task, model.accuracy))

    @cached_property
    def claims(self) -> dict[str, list[tuple[str, Verdict]]]:
        """Heading -> the comparisons of the paper under it, each after the name of its table."""
        verdicts = [(table.declaration.name, verdict) for table in self.tables for verdict in table.verdicts]
        return {
            heading: [pair for pair in verdicts if pair[1].claimed_by_the_paper and pair[1].outcome in outcomes]
            for heading, outcomes in _GROUPS.items()
        }

    @cached_property
    def ours(self) -> list[OwnResult]:
        """Our own methods beside their rivals."""
        return [result for table in self.tables for result in table.own_results()]

    @property
    def headline(self) -> str:
        """'Comparisons that the paper claims: 120, of which 20 held, 9 did not hold, …'."""
        counts = ", ".join(f"{len(verdicts)} {heading.lower()}" for heading, verdicts in self.claims.items())
        return f"Comparisons that the paper claims: {sum(map(len, self.claims.values()))}, of which {counts}."

    @property
    def told(self) -> str:
        """Where one of our methods is better or worse, as Markdown."""
        return "\n".join(f"- {result.sentence}" for result in self.ours if result.outcome != "level")
