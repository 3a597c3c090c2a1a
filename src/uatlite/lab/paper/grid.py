"""Every measure by name.

From a declaration to its cells: each measured, derived, or left empty with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from uatlite.errors import (
    CalibrationError,
    ConfigurationError,
    DataError,
    InputError,
    MissingDependency,
    ModelError,
    nearest,
)
from uatlite.lab.paper import probes, scores
from uatlite.lab.paper import probes as attention
from uatlite.lab.paper import probes as cost
from uatlite.lab.paper import probes as layers
from uatlite.lab.paper import probes as tokens
from uatlite.lab.paper import scores as pairs
from uatlite.lab.paper import scores as thresholds
from uatlite.lab.paper.declaration import Ask, Declaration, Line, Panel
from uatlite.lab.paper.measurement import DERIVATIONS, Measure, Measurement, combine, no_jobs
from uatlite.lab.paper.models import Workshop
from uatlite.metrics.bootstrap import METRICS
from uatlite.metrics.calibration import SHIFT

MEASURES: dict[str, Measure] = {
    **{name: Measure(scores.score) for name in METRICS},
    **{name: Measure(scores.score, decimals=0) for name in METRICS if name.startswith("count@")},
    **{name: Measure(scores.shift_score, scores.shift_jobs) for name in SHIFT},
    **{name: Measure(pairs.change, pairs.change_jobs) for name in pairs.CHANGES},
    **{
        f"{kind}@{target}": Measure(thresholds.at_selected, thresholds.selected_jobs)
        for kind in thresholds.KINDS
        for target in thresholds.TARGETS
    },
    "rank-stability": Measure(tokens.rank_stability, no_jobs),
    "attention-cosine": Measure(attention.cosine, no_jobs),
    **{name: Measure(attention.received, no_jobs, decimals=4) for name in attention.WEIGHTS},
    "layer-share": Measure(layers.layer_share, no_jobs),
    **{name: Measure(probes.probe, no_jobs) for name in probes.PROBES},
    "parameters": Measure(cost.parameters, no_jobs, decimals=1),
    "latency": Measure(cost.latency, cost.latency_jobs, decimals=1),
    "latency-ratio": Measure(cost.latency_ratio, cost.latency_jobs, decimals=2),
}
CORRELATIONS = Measure(tokens.correlation, no_jobs)
"""'pearson:', 'spearman:' and 'partial:' take the names of signals after the colon."""


def measure_of(name: str) -> Measure:
    """The measure of that name."""
    if name.partition(":")[0] in ("pearson", "spearman", "partial"):
        return CORRELATIONS
    if name not in MEASURES:
        raise ConfigurationError(f"measure={name!r} is not one of: {', '.join(MEASURES)}.{nearest(name, MEASURES)}")
    return MEASURES[name]


CANNOT = (CalibrationError, DataError, InputError, MissingDependency, ModelError)
"""What keeps a cell empty: data, a package or a model that is not there. Anything else is a fault and is raised."""

Reasons = Mapping[Ask, str]


@dataclass(frozen=True)
class Cell:
    """One number, here and in the paper."""

    measured: Measurement | None
    paper: float | None
    decimals: int
    reason: str | None = None
    """why it is empty"""

    @property
    def difference(self) -> float | None:
        """Here less the paper's; none of a count, which goes with the number of rows."""
        if self.measured is None or self.paper is None or self.decimals == 0:
            return None
        return self.measured.point - self.paper


@dataclass(frozen=True)
class Grid:
    """A panel and its cells, by row and column."""

    panel: Panel
    cells: Mapping[tuple[str, str], Cell]

    @property
    def reasons(self) -> list[str]:
        """Why cells are empty, each reason once."""
        return list(dict.fromkeys(cell.reason for cell in self.cells.values() if cell.reason is not None))

    @property
    def empty(self) -> bool:
        return all(cell.measured is None for cell in self.cells.values())


def fill(declaration: Declaration, workshop: Workshop, reasons: Reasons) -> list[Grid]:
    """Every panel's cells. `reasons` says of some asks why they cannot be had."""
    grids = []
    for panel in declaration.panels:
        cells: dict[tuple[str, str], Cell] = {}
        for row in panel.rows:
            for column in panel.columns:
                if row.derive is None and column.derive is None:
                    ask = declaration.ask(panel, row, column)
                    cells[row.key, column.key] = _measure(ask, workshop, reasons)
        _derive_columns(panel, cells)
        _derive_rows(panel, cells)
        grids.append(Grid(panel, {key: replace(cell, paper=panel.printed(*key)) for key, cell in cells.items()}))
    return grids


def _measure(ask: Ask, workshop: Workshop, reasons: Reasons) -> Cell:
    measure = measure_of(ask.measure)
    if ask in reasons:
        return Cell(None, None, measure.decimals, reasons[ask])
    try:
        return Cell(measure.compute(ask, workshop), None, measure.decimals)
    except CANNOT as error:
        return Cell(None, None, measure.decimals, str(error))


def _derive_columns(panel: Panel, cells: dict[tuple[str, str], Cell]) -> None:
    """Cells that follow from others of their row; 'row/column' in `of` reaches into another one."""
    for column in panel.columns:
        if column.derive is not None:
            for row in panel.rows:
                if row.derive is None:
                    places = [_address(one, row.key) for one in column.of]
                    cells[row.key, column.key] = _derived(column, [cells[place] for place in places])


def _address(text: str, row: str) -> tuple[str, str]:
    other, slash, column = text.rpartition("/")
    return (other, column) if slash else (row, column)


def _derive_rows(panel: Panel, cells: dict[tuple[str, str], Cell]) -> None:
    """Cells that follow from the others of their column: of all rows, or of those that `of` names."""
    measured = [row.key for row in panel.rows if row.derive is None]
    for row in panel.rows:
        if row.derive is not None:
            for column in panel.columns:
                cells[row.key, column.key] = _derived(row, [cells[key, column.key] for key in row.of or measured])


def _derived(line: Line, parts: list[Cell]) -> Cell:
    assert line.derive is not None
    decimals = max(part.decimals for part in parts)
    known = [part.measured for part in parts if part.measured is not None]
    if len(known) < len(parts):
        reason = next((part.reason for part in parts if part.reason is not None), None)
        return Cell(None, None, decimals, reason)
    function, linear = DERIVATIONS[line.derive]
    return Cell(combine(known, function, linear=linear), None, decimals)
