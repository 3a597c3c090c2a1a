"""A table or figure of the paper as data: its cells, the paper's numbers, and what the paper claims of them.

NAME.toml ── title, where in the paper, notes, figure, coordinates that all cells share
 ├── [[panels]]        a grid; the coordinates of a cell are those of table, panel, row and column together
 │    ├── rows         key, heading and coordinates, or how the row is derived from the others of its column
 │    ├── columns      key, heading and coordinates, or how the column is derived from the others of its row
 │    └── paper        row key -> the paper's numbers in the order of the columns, nan where it has none
 └── [[claims]]        what the paper says, as comparisons of cells

A panel without rows or columns has those of the panel before it.
A declaration that compares backbones can be run with other backbones in their place.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, check_choice, nearest
from uatlite.lab.evaluate.cells import COORDINATES, CellSpec, Line, Panel
from uatlite.lab.evaluate.plan import parse_contender

DECLARATIONS = Path(__file__).parent / "declarations"
NAMES = (
    "main", "shift", "selective", "selective-ood", "hans", "gates", "components", "penalty-forms", "global-mc",
    "aggregation", "rescaling", "correlation", "definitions", "negation", "negation-attention", "buckets",
    "sensitivity", "characters", "probes", "layers", "backbones", "scaling", "latency", "clinc",
)  # fmt: skip
"""In the order in which `reproduce all` prints them."""
_FIGURES = ("bars", "heatmap", "attention")
RELATIONS = ("<", "<=", ">", ">=", "~")
"""`~` claims that two cells differ by less than the claim's tolerance."""


@dataclass(frozen=True)
class Claim:
    """A comparison of cells. `left` and `right` are 'row/column' or 'panel:row/column'; `right` may be a number."""

    says: str
    left: str
    relation: str
    right: str | float
    over: tuple[str, ...] = ()
    """the values that replace '{}' in left and right, one comparison each"""
    tolerance: float = 0.0
    ours: bool = False
    """a question of ours; the paper does not claim it"""

    def pairs(self) -> Iterator[tuple[str, str | float]]:
        """Each comparison that the claim makes."""
        for one in self.over or ("",):
            yield self.left.format(one), self.right.format(one) if isinstance(self.right, str) else self.right

    def addresses(self) -> Iterator[str]:
        """Every cell that the claim names."""
        return (cell for pair in self.pairs() for cell in pair if isinstance(cell, str))


@dataclass(frozen=True)
class Declaration:
    """One table or figure."""

    name: str
    title: str
    where: str
    panels: tuple[Panel, ...]
    claims: tuple[Claim, ...] = ()
    sizes: bool = False
    """its rows are sizes of one family: each backbone given in their place becomes one row"""
    notes: tuple[str, ...] = ()
    figure: str | None = None
    figure_of: tuple[str, ...] = ()
    """the columns that the figure shows; empty for all"""

    def specs(self) -> Iterator[CellSpec]:
        """The coordinates of every measured cell."""
        return (spec for panel in self.panels for _, spec in panel.specs())


def find_declaration(name: str) -> Declaration:
    """The declaration of this name; an unknown name is an error that lists all names."""
    check_choice("table", name, NAMES)
    return read_declaration(DECLARATIONS / f"{name}.toml")


def read_declaration(path: Path) -> Declaration:
    """A declaration from its file; unknown coordinates, incomplete rows of numbers and unknown cells are errors."""
    values, name = tomllib.loads(path.read_text(encoding="utf-8")), path.stem
    panels, claims = values.pop("panels"), values.pop("claims", ())
    for before, panel in pairwise(panels):
        for lines in ("rows", "columns"):
            panel.setdefault(lines, before[lines])
    shared, own = _split(values, Declaration, name)
    declaration = Declaration(
        name=name,
        panels=tuple(_panel(panel, shared, name) for panel in panels),
        claims=tuple(Claim(**claim | {"over": tuple(claim.get("over", ()))}) for claim in claims),
        **own,
    )
    _check(declaration)
    return declaration


def _panel(values: dict[str, Any], shared: dict[str, Any], table: str) -> Panel:
    """A panel from its table in the file, with the coordinates that all cells of the declaration share."""
    lines = {}
    for name in ("rows", "columns"):
        split = (_split(line, Line, table) for line in values[name])
        lines[name] = tuple(Line(**own, coordinates=coordinates) for coordinates, own in split)
    coordinates, own = _split(values, Panel, table)
    return Panel(**own | lines, coordinates=shared | coordinates)


def _split(values: dict[str, Any], kind: type, table: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coordinates of a part of a declaration, which are the keys that are not its fields; and its fields."""
    own = {field.name for field in fields(kind)}
    coordinates = {key: value for key, value in values.items() if key not in own}
    for key in coordinates:
        if key not in COORDINATES:
            allowed = f"{', '.join(COORDINATES)}.{nearest(key, COORDINATES)}"
            raise ConfigurationError(f"{table}: {key!r} is not a coordinate; allowed are {allowed}")
    if "contender" in coordinates:
        coordinates["contender"] = parse_contender(coordinates["contender"])
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items() if key in own}
    return coordinates, given


def _check(declaration: Declaration) -> None:
    for panel in declaration.panels:
        for row, numbers in panel.paper.items():
            check_choice(f"row of {declaration.name}", row, [line.key for line in panel.rows])
            if len(numbers) != len(panel.columns):
                raise ConfigurationError(
                    f"{declaration.name}: {row} has {len(numbers)} numbers for {len(panel.columns)} columns."
                )
    if declaration.figure is not None:
        check_choice("figure", declaration.figure, _FIGURES)
    for claim in declaration.claims:
        check_choice("relation", claim.relation, RELATIONS)
        for address in claim.addresses():
            find_cell(declaration, address)


def find_cell(declaration: Declaration, address: str) -> tuple[Panel, Line, Line]:
    """The panel, row and column of 'row/column', which is in the first panel, or of 'panel:row/column'."""
    place, _, cell = address.rpartition(":")
    row, _, column = cell.partition("/")
    for panel in declaration.panels:
        if place in ("", panel.key):
            rows, columns = ({line.key: line for line in lines} for lines in (panel.rows, panel.columns))
            check_choice(f"row of {declaration.name}", row, rows)
            check_choice(f"column of {declaration.name}", column, columns)
            return panel, rows[row], columns[column]
    raise ConfigurationError(f"{declaration.name}: {address!r} names an unknown panel.")


_SUBSTITUTED = (
    "The paper's backbones are replaced by the given ones; a row names both. Do not expect the paper's numbers there."
)


def substitute_backbones(declaration: Declaration, backbones: tuple[str, ...]) -> Declaration:
    """Put the given backbones, in turn, in place of the paper's, the last one in all that are left.

    Sizes of a family get one row each.
    """
    named = any("backbone" in row.coordinates for panel in declaration.panels for row in panel.rows)
    if not backbones or not named:
        return declaration
    panels = tuple(_substituted(panel, backbones, declaration.sizes) for panel in declaration.panels)
    changed = replace(declaration, panels=panels, claims=(), notes=(*declaration.notes, _SUBSTITUTED))
    claims = (_remaining(claim, changed) for claim in declaration.claims)
    return replace(changed, claims=tuple(claim for claim in claims if claim is not None))


def _substituted(panel: Panel, backbones: tuple[str, ...], sizes: bool) -> Panel:
    rows: list[Line] = []
    place = 0
    for row in panel.rows:
        if "backbone" not in row.coordinates:
            rows.append(row)
        elif not sizes or place < len(backbones):
            backbone = backbones[min(place, len(backbones) - 1)]
            heading = f"{Path(backbone).name} for {row.heading}"
            rows.append(replace(row, heading=heading, coordinates={**row.coordinates, "backbone": backbone}))
            place += 1
    return replace(panel, rows=tuple(rows))


def _remaining(claim: Claim, declaration: Declaration) -> Claim | None:
    """The claim about the rows that the declaration still has; None where there are none."""
    if not claim.over:
        return claim if _has_cells(declaration, claim) else None
    over = tuple(one for one in claim.over if _has_cells(declaration, replace(claim, over=(one,))))
    return replace(claim, over=over) if over else None


def _has_cells(declaration: Declaration, claim: Claim) -> bool:
    try:
        for address in claim.addresses():
            find_cell(declaration, address)
    except ConfigurationError:
        return False
    return True
