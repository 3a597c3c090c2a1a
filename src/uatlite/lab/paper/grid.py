"""The measures by name, and the cells of a table: each measured, derived from others, or empty with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from uatlite.errors import check_choice
from uatlite.lab.evaluate.comparison import DERIVATIONS, Measurement, combine
from uatlite.lab.paper import probes, scores
from uatlite.lab.paper.artifacts import UNAVAILABLE, Artifacts
from uatlite.lab.paper.declaration import CellSpec, Declaration, Line, Panel
from uatlite.lab.paper.measurement import Measure, no_jobs
from uatlite.lab.paper.scores import Learning, learning_of
from uatlite.metrics.calibration import SHIFT
from uatlite.metrics.intervals import METRICS, Interval

MEASURES: dict[str, Measure] = {
    **{name: Measure(scores.score, decimals=0 if name.startswith("count@") else 3) for name in METRICS},
    **{name: Measure(scores.shift_score, scores.shift_jobs) for name in SHIFT},
    **{name: Measure(scores.change, scores.change_jobs) for name in scores.CHANGES},
    **{
        f"{kind}@{target}": Measure(scores.at_selected, scores.selected_jobs)
        for kind in scores.THRESHOLD_METRICS
        for target in scores.TARGETS
    },
    **{
        f"{kind}@{target}": Measure(scores.at_promised, scores.selected_jobs)
        for kind in scores.PROMISES
        for target in scores.RISKS
    },
    **{name: Measure(scores.outside_score) for name in scores.OUTSIDE},
    "rank-stability": Measure(probes.rank_stability, no_jobs),
    "attention-cosine": Measure(probes.attention_cosine, no_jobs),
    **{name: Measure(probes.word_attention, no_jobs, decimals=4) for name in probes.ATTENTION},
    "layer-share": Measure(probes.layer_share, no_jobs),
    **{name: Measure(probes.probe, no_jobs) for name in probes.PROBES},
    "parameters": Measure(probes.parameters, no_jobs, decimals=1, of_learning=False),
    "latency": Measure(probes.latency, no_jobs, decimals=1, of_learning=False),
    "latency-ratio": Measure(probes.latency_ratio, no_jobs, decimals=2, of_learning=False),
}
CORRELATIONS = ("pearson", "spearman", "partial")
"""Measures that name their signals after a colon, as in 'spearman:U,entropy'."""

Reasons = Mapping[CellSpec, str | Learning]
"""cell -> why it is not computed: a sentence, or the model that has not learned its task"""


def measure_of(name: str) -> Measure:
    """The measure of this name."""
    if name.partition(":")[0] in CORRELATIONS:
        return Measure(probes.correlation, no_jobs)
    check_choice("measure", name, MEASURES)
    return MEASURES[name]


@dataclass(frozen=True)
class Cell:
    """One number, here and in the paper."""

    measurement: Measurement | None
    paper: float | None
    decimals: int
    reason: str | None = None
    """why it is empty"""
    learning: tuple[Learning, ...] = ()
    """of the models that it rests on; none for a measure that does not depend on it"""

    @property
    def unlearned(self) -> list[Learning]:
        """The models that it rests on and that have not learned their task."""
        return [one for one in self.learning if not one.learned]

    @property
    def difference(self) -> float | None:
        """Here minus the paper's; None for a count, which depends on the number of rows."""
        if self.measurement is None or self.paper is None or self.decimals == 0:
            return None
        return self.measurement.mean - self.paper

    @property
    def interval(self) -> Interval | None:
        """The interval over rows and seeds; None where the cell is empty or nothing was resampled."""
        return None if self.measurement is None else self.measurement.interval()


Cells = dict[tuple[str, str], Cell]
"""(row, column) -> the cell"""


@dataclass(frozen=True)
class Grid:
    """A panel and its cells."""

    panel: Panel
    cells: Cells

    @property
    def reasons(self) -> list[str]:
        """Why cells are empty, each reason once."""
        return list(dict.fromkeys(cell.reason for cell in self.cells.values() if cell.reason is not None))

    @property
    def filled(self) -> int:
        """How many cells have a number."""
        return sum(cell.measurement is not None for cell in self.cells.values())

    @property
    def blank(self) -> bool:
        """Whether it has no number at all, neither measured nor published."""
        return self.filled == 0 and all(cell.paper is None for cell in self.cells.values())


def fill(declaration: Declaration, artifacts: Artifacts, reasons: Reasons) -> list[Grid]:
    """Compute the cells of every panel, except those that have a reason why they cannot be computed."""
    grids = []
    for panel in declaration.panels:
        cells = {
            (row.key, column.key): _measure(declaration.spec(panel, row, column), artifacts, reasons)
            for row, column in panel.measured()
        }
        _derive(panel, cells)
        grids.append(Grid(panel, {key: replace(cell, paper=panel.printed(*key)) for key, cell in cells.items()}))
    return grids


def _measure(spec: CellSpec, artifacts: Artifacts, reasons: Reasons) -> Cell:
    measure = measure_of(spec.measure)
    if spec in reasons:
        reason = reasons[spec]
        if isinstance(reason, Learning):
            return Cell(None, None, measure.decimals, f"not computed: {reason.sentence}", (reason,))
        return Cell(None, None, measure.decimals, reason)
    try:
        learning = (learning_of(spec, artifacts),) if measure.of_learning else ()
        return Cell(measure.compute(spec, artifacts), None, measure.decimals, learning=learning)
    except UNAVAILABLE as error:
        return Cell(None, None, measure.decimals, str(error))


def _derive(panel: Panel, cells: Cells) -> None:
    """Add the derived columns, then the derived rows: of the rows that `of` names, or of all measured ones."""
    measured = [row.key for row in panel.rows if row.derive is None]
    for column in panel.columns:
        if column.derive is not None:
            for row in measured:
                places = [one.rpartition("/") for one in column.of]  # 'row/column' is a cell of another row
                cells[row, column.key] = _derived(column, [cells[other or row, key] for other, _, key in places])
    for line in panel.rows:
        if line.derive is not None:
            for column in panel.columns:
                cells[line.key, column.key] = _derived(line, [cells[row, column.key] for row in line.of or measured])


def _derived(line: Line, parts: list[Cell]) -> Cell:
    assert line.derive is not None
    decimals = max(part.decimals for part in parts)
    known = [part.measurement for part in parts if part.measurement is not None]
    learning = tuple(dict.fromkeys(one for part in parts for one in part.learning))
    if len(known) < len(parts):
        reason = next((part.reason for part in parts if part.reason is not None), None)
        return Cell(None, None, decimals, reason, learning)
    function, linear = DERIVATIONS[line.derive]
    return Cell(combine(known, function, linear=linear), None, decimals, learning=learning)
