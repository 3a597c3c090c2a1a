"""A table or figure of the paper as data: what it asks for, the paper's own numbers, and what the paper claims.

NAME.toml ── title, where in the paper, notes, figure, coordinates that all cells share
 ├── [[panels]]        a grid; the coordinates of a cell are those of table, panel, row and column together
 │    ├── rows         key, heading and coordinates, or how the row follows from the others of its column
 │    ├── columns      key, heading and coordinates, or how the column follows from the others of its row
 │    └── paper        row key -> the paper's numbers in the order of the columns, nan where it has none
 └── [[claims]]        what the paper says, as comparisons of cells

A declaration that compares backbones, made to run on the ones that are at hand.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, check_choice, nearest
from uatlite.lab.paper.settings import ReproductionSettings

DECLARATIONS = Path(__file__).parent / "declarations"
NAMES = (
    "main", "shift", "selective", "selective-ood", "hans", "gates", "components", "penalty-forms", "global-mc",
    "aggregation", "rescaling", "correlation", "definitions", "negation", "negation-attention", "buckets",
    "sensitivity", "characters", "probes", "layers", "backbones", "scaling", "latency",
)  # fmt: skip
"""In the order in which `reproduce all` prints them."""
FIGURES = ("bars", "heatmap", "attention")
RELATIONS = ("<", "<=", ">", ">=", "~")
"""`~` claims that two cells differ by less than the claim's tolerance."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """The coordinates of one number: what is measured, of whom, on which rows."""

    measure: str
    contender: str = "base"
    task: str = "mnli"
    """what the model was fine-tuned on"""
    on: str | None = None
    """the set that it is measured on, as in 'hans' or 'mnli-mismatched/test'; the task's own test set without it"""
    perturbation: str | None = None
    subset: str | None = None
    """'bucket=negation', 'heuristic=subsequence', 'label=non-entailment', several joined by '&'"""
    rows: int | None = None
    """at most so many rows"""
    scale: float = 1.0
    """token embeddings times this"""
    passes: int | None = None
    """only the first passes of the method"""
    backbone: str | None = None
    text: str | None = None
    word: str | None = None
    layers: str | None = None
    """'embeddings', 'early', 'middle', 'late' or 'head'"""
    estimator: str = "delta"
    seeds: int | None = None
    """at most so many seeds: the paper's appendix has one"""


@dataclass(frozen=True)
class Line:
    """A row or a column of a grid: coordinates, or a derivation from other lines."""

    key: str
    heading: str
    coordinates: Mapping[str, Any]
    derive: str | None = None
    of: tuple[str, ...] = ()
    """the lines that it is derived from"""
    ours: bool = False
    """not in the paper"""


@dataclass(frozen=True)
class Panel:
    """A grid of cells."""

    key: str
    title: str
    rows: tuple[Line, ...]
    columns: tuple[Line, ...]
    coordinates: Mapping[str, Any]
    paper: Mapping[str, tuple[float, ...]]

    def printed(self, row: str, column: str) -> float | None:
        """The paper's number of a cell."""
        numbers = self.paper.get(row)
        if numbers is None:
            return None
        number = numbers[[line.key for line in self.columns].index(column)]
        return None if math.isnan(number) else number


@dataclass(frozen=True)
class Claim:
    """What the paper says of its cells. `left` and `right` are 'row/column' or 'panel:row/column', or a number."""

    says: str
    left: str
    relation: str
    right: str | float
    over: tuple[str, ...] = ()
    """what '{}' in left and right stands for, in turn"""
    tolerance: float = 0.0
    ours: bool = False
    """not claimed by the paper, but worth knowing"""

    def pairs(self) -> Iterator[tuple[str, str | float]]:
        """Each comparison that the claim makes."""
        for one in self.over or ("",):
            yield self.left.format(one), self.right.format(one) if isinstance(self.right, str) else self.right


@dataclass(frozen=True)
class Declaration:
    """One table or figure."""

    name: str
    title: str
    where: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    sizes: bool = False
    """its rows are sizes of one family: of the backbones that are given in their place each is one row"""
    notes: tuple[str, ...] = ()
    figure: str | None = None
    figure_of: tuple[str, ...] = ()
    """the columns that the figure shows; all without it"""
    coordinates: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, panel: Panel, row: Line, column: Line) -> Ask:
        """The coordinates of a cell that is measured and not derived."""
        return Ask(**{**self.coordinates, **panel.coordinates, **row.coordinates, **column.coordinates})

    def asks(self) -> Iterator[tuple[Panel, Line, Line, Ask]]:
        """Every measured cell."""
        for panel in self.panels:
            for row in panel.rows:
                for column in panel.columns:
                    if row.derive is None and column.derive is None:
                        yield panel, row, column, self.ask(panel, row, column)


def declared(name: str) -> Declaration:
    """The declaration of that name; an unknown name is an error that lists them all."""
    check_choice("table", name, NAMES)
    return read_declaration(DECLARATIONS / f"{name}.toml")


def read_declaration(path: Path) -> Declaration:
    """A declaration from its file, checked: unknown coordinates, numbers that do not fill a row, cells that are not."""
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    declaration = Declaration(
        name=path.stem,
        title=values.pop("title"),
        where=values.pop("where"),
        panels=tuple(_panel(one, path.stem) for one in values.pop("panels")),
        claims=tuple(_claim(one) for one in values.pop("claims", ())),
        sizes=values.pop("sizes", False),
        notes=tuple(values.pop("notes", ())),
        figure=values.pop("figure", None),
        figure_of=tuple(values.pop("figure_of", ())),
        coordinates=_coordinates(values, path.stem),
    )
    _check(declaration)
    return declaration


def _panel(values: dict[str, Any], name: str) -> Panel:
    key = values.pop("key", "")
    columns = tuple(_line(one, name) for one in values.pop("columns"))
    paper = {row: tuple(map(float, numbers)) for row, numbers in values.pop("paper", {}).items()}
    for row, numbers in paper.items():
        if len(numbers) != len(columns):
            raise ConfigurationError(
                f"{name}: the paper's {row} has {len(numbers)} numbers for {len(columns)} columns."
            )
    return Panel(
        key=key,
        title=values.pop("title", ""),
        rows=tuple(_line(one, name) for one in values.pop("rows")),
        columns=columns,
        paper=paper,
        coordinates=_coordinates(values, name),
    )


def _line(values: dict[str, Any], name: str) -> Line:
    return Line(
        key=values.pop("key"),
        heading=values.pop("heading"),
        derive=values.pop("derive", None),
        of=tuple(values.pop("of", ())),
        ours=values.pop("ours", False),
        coordinates=_coordinates(values, name),
    )


def _claim(values: dict[str, Any]) -> Claim:
    claim = Claim(**{**values, "over": tuple(values.get("over", ()))})
    check_choice("relation", claim.relation, RELATIONS)
    return claim


def _coordinates(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    known = [one.name for one in fields(Ask)]
    for coordinate in values:
        if coordinate not in known:
            raise ConfigurationError(
                f"{name}: {coordinate!r} is no coordinate; they are {', '.join(known)}.{nearest(coordinate, known)}"
            )
    return dict(values)


def _check(declaration: Declaration) -> None:
    for panel in declaration.panels:
        unknown = set(panel.paper) - {row.key for row in panel.rows}
        if unknown:
            raise ConfigurationError(f"{declaration.name}: the paper's numbers name rows that are not: {unknown}.")
    if declaration.figure is not None:
        check_choice("figure", declaration.figure, FIGURES)
    for claim in declaration.claims:
        for left, right in claim.pairs():
            for cell in (left, right):
                if isinstance(cell, str):
                    find_cell(declaration, cell)


def find_cell(declaration: Declaration, address: str) -> tuple[Panel, str, str]:
    """'row/column' of the first panel, or 'panel:row/column'."""
    place, _, cell = address.rpartition(":")
    row, _, column = cell.partition("/")
    for panel in declaration.panels:
        if place in ("", panel.key):
            check_choice(f"row of {declaration.name}", row, [line.key for line in panel.rows])
            check_choice(f"column of {declaration.name}", column, [line.key for line in panel.columns])
            return panel, row, column
    raise ConfigurationError(f"{declaration.name}: {address!r} names a panel that is not there.")


_NOTE = (
    "The paper's backbones are replaced by those that were given; a row names which stands where, and its numbers are "
    "not to be expected to be the paper's."
)


def adapt(declaration: Declaration, settings: ReproductionSettings) -> Declaration:
    """Put the given backbones in the place of the paper's, in turn; sizes of a family get one row each."""
    given = settings.standing_in
    named = any("backbone" in row.coordinates for panel in declaration.panels for row in panel.rows)
    if not given or not named:
        return declaration
    panels = tuple(_adapted_panel(panel, given, declaration.sizes) for panel in declaration.panels)
    adapted = replace(declaration, panels=panels, claims=(), notes=(*declaration.notes, _NOTE))
    claims = (_still_there(claim, adapted) for claim in declaration.claims)
    return replace(adapted, claims=tuple(claim for claim in claims if claim is not None))


def _still_there(claim: Claim, declaration: Declaration) -> Claim | None:
    """The claim about the rows that are left; None where there is none of them."""
    if claim.over:
        left = tuple(one for one in claim.over if _has_all(replace(claim, over=(one,)), declaration))
        return replace(claim, over=left) if left else None
    return claim if _has_all(claim, declaration) else None


def _has_all(claim: Claim, declaration: Declaration) -> bool:
    keys = {(panel.key, row.key) for panel in declaration.panels for row in panel.rows}
    first = declaration.panels[0].key
    for pair in claim.pairs():
        for cell in pair:
            if isinstance(cell, str):
                place, _, rest = cell.rpartition(":")
                if (place or first, rest.partition("/")[0]) not in keys:
                    return False
    return True


def _adapted_panel(panel: Panel, given: tuple[str, ...], sizes: bool) -> Panel:
    rows: list[Line] = []
    place = 0
    for row in panel.rows:
        if "backbone" not in row.coordinates:
            rows.append(row)
        elif not sizes or place < len(given):
            backbone = given[place % len(given)]
            heading = f"{Path(backbone).name} for {row.heading}"
            rows.append(replace(row, heading=heading, coordinates={**row.coordinates, "backbone": backbone}))
            place += 1
    return replace(panel, rows=tuple(rows))
