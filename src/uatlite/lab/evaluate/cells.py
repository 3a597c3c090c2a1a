"""Cells: numbers of an experiment by what is measured, of which contender, on which rows; and panels of them.

`uatlite evaluate` makes a panel for each set, contenders down and metrics across. The paper's tables are panels that
are declared in TOML. Both are filled by the same measures.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.evaluate.comparison import DERIVATIONS, Measurement, combine
from uatlite.lab.evaluate.plan import TEST, Contender
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Interval
from uatlite.text.perturb import buckets_of
from uatlite.text.tasks import sample
from uatlite.values import Dataset, Example

_PLAIN = Contender(BASE)


@dataclass(frozen=True, kw_only=True)
class CellSpec:
    """The coordinates of one cell: what is measured, of which contender, on which rows."""

    measure: str
    contender: Contender = _PLAIN
    task: str = "mnli"
    """the task that the model was fine-tuned on"""
    on: str | None = None
    """the set that is measured, as in 'hans' or 'mnli-mismatched/test'; by default the test set of `task`"""
    home: str | None = None
    """the test set in domain, that a shift is measured from; by default the test set of `task`"""
    perturbation: str | None = None
    outside: str | None = None
    """a set of texts out of scope beside these rows; by default those among the rows that are labelled so"""
    subset: str | None = None
    """'bucket=negation', 'heuristic=subsequence', 'label=non-entailment'; several are joined by '&'"""
    rows: int | None = None
    """at most this many rows"""
    scale: float = 1.0
    """token embeddings are multiplied by this"""
    passes: int | None = None
    """only the first passes of the method"""
    backbone: str | None = None
    text: str | None = None
    word: str | None = None
    layers: str | None = None
    """'embeddings', 'early', 'middle', 'late' or 'output'"""
    estimator: str = "delta"
    seeds: int | None = None
    """at most this many seeds: the paper's appendix has one"""

    @property
    def set_name(self) -> str:
        """The set that is measured."""
        return self.on or self.task

    @property
    def full_set(self) -> str:
        """The set with its split, 'mnli/test'."""
        return self.set_name if "/" in self.set_name else f"{self.set_name}/{TEST}"

    @property
    def rows_name(self) -> str:
        """A name for the rows of the cell: cells with the same name are resampled together."""
        return f"{self.set_name}|{self.subset}|{self.rows}"


def draw(dataset: Dataset, rows: int | None) -> Dataset:
    """At most this many rows of a set, always the same ones."""
    return dataset if rows is None else replace(dataset, examples=tuple(sample(dataset.examples, rows)))


CONDITIONS: dict[str, Callable[[Example, str, tuple[str, ...]], bool]] = {
    "bucket": lambda example, value, labels: value in buckets_of(example.text),
    "label": lambda example, value, labels: example.label is not None and labels[example.label] == value,
    "heuristic": lambda example, value, labels: example.meta.get("heuristic") == value,
}
"""condition -> whether an example of a set with these labels meets it"""


def subset_ids(dataset: Dataset, subset: str | None, rows: int | None) -> frozenset[str]:
    """The ids of at most `rows` rows that meet every condition of 'label=no&bucket=hedges'."""
    examples = list(dataset.examples)
    for condition in subset.split("&") if subset else ():
        name, equals, value = condition.partition("=")
        if not equals:
            raise ConfigurationError(f"{condition!r} in {subset!r} is not a condition; write it as 'bucket=negation'.")
        check_choice("condition", name, CONDITIONS)
        examples = [example for example in examples if CONDITIONS[name](example, value, dataset.labels)]
    return frozenset(example.id for example in sample(examples, rows))


# ── panels ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Line:
    """A row or a column of a grid: coordinates, or a derivation from other lines."""

    key: str
    heading: str
    coordinates: Mapping[str, Any]
    derive: str | None = None
    of: tuple[str, ...] = ()
    """the lines that it is derived from, or 'row/column' for a cell of another row"""
    ours: bool = False
    """not in the paper"""


@dataclass(frozen=True)
class Panel:
    """A grid of cells."""

    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    coordinates: Mapping[str, Any]
    key: str = ""
    title: str = ""
    paper: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """row key -> the paper's numbers, one for each column"""
    beside: str = "paper"
    """what the numbers beside ours are called, where they are not the paper's"""

    def specs(self) -> Iterator[tuple[tuple[str, str], CellSpec]]:
        """The keys of row and column, and the coordinates, of each cell that is measured, not derived."""
        for row in self.rows:
            for column in self.columns:
                if row.derive is None and column.derive is None:
                    coordinates = {**self.coordinates, **row.coordinates, **column.coordinates}
                    yield (row.key, column.key), CellSpec(**coordinates)

    def printed(self, row: str, column: str) -> float | None:
        """The paper's number of a cell; None where it has none."""
        if row not in self.paper:
            return None
        number = float(self.paper[row][[line.key for line in self.columns].index(column)])
        return None if math.isnan(number) else number


@dataclass(frozen=True)
class Learning:
    """The accuracy of the plain model on the test rows of its own task, mean over seeds."""

    backbone: str
    task: str
    seeds: int
    rows: int
    accuracy: float
    chance: float
    """the share of the most frequent class: what always giving one answer gets"""

    @property
    def learned(self) -> bool:
        return self.accuracy >= self.chance + MARGIN

    @property
    def sentence(self) -> str:
        """'bert-tiny on mnli has an accuracy of 0.362, and always giving one answer 0.340'."""
        name = Path(self.backbone).name
        return f"{name} on {self.task} has an accuracy of {self.accuracy:.3f}, and one answer for all {self.chance:.3f}"


MARGIN = 0.05
"""How far above chance the accuracy of a model must be that has learned its task."""


# ── filled panels ──────────────────────────────────────────────────────────────────────────────────────────────────


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
        return [model for model in self.learning if not model.learned]

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

    @classmethod
    def of(cls, panel: Panel, measured: Mapping[tuple[str, str], Cell]) -> "Grid":
        """A panel with its measured cells, and the paper's numbers.

        Derived columns are added to each row. A derived row is made of the rows that `of` names, or of all measured
        ones; its own derived columns are of it: the reduction of a mean, and not the mean of reductions.
        """
        cells, rows = dict(measured), [row.key for row in panel.rows if row.derive is None]
        for line in (line for line in panel.rows if line.derive is not None):
            for column in (column for column in panel.columns if column.derive is None):
                cells[line.key, column.key] = _derived(line, [cells[row, column.key] for row in line.of or rows])
        for column in (column for column in panel.columns if column.derive is not None):
            keys = [key.rpartition("/") for key in column.of]  # 'row/column' is a cell of another row
            for row in panel.rows:
                cells[row.key, column.key] = _derived(column, [cells[other or row.key, key] for other, _, key in keys])
        return cls(panel, {key: replace(cell, paper=panel.printed(*key)) for key, cell in cells.items()})

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


def _derived(line: Line, parts: list[Cell]) -> Cell:
    assert line.derive is not None
    decimals = max(cell.decimals for cell in parts)
    measured = [cell.measurement for cell in parts if cell.measurement is not None]
    learning = tuple(dict.fromkeys(model for cell in parts for model in cell.learning))
    if len(measured) < len(parts):
        reason = next((cell.reason for cell in parts if cell.reason is not None), None)
        return Cell(None, None, decimals, reason, learning)
    function, linear = DERIVATIONS[line.derive]
    return Cell(combine(measured, function, linear=linear), None, decimals, learning=learning)
