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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from uatlite.errors import check_choice
from uatlite.lab.evaluate.cells import CellSpec, Line, Panel
from uatlite.lab.evaluate.plan import parse_contender

DECLARATIONS = Path(__file__).parent / "declarations"
NAMES = (
    "main", "shift", "selective", "selective-ood", "hans", "gates", "components", "penalty-forms", "global-mc",
    "aggregation", "rescaling", "correlation", "definitions", "negation", "negation-attention", "buckets",
    "sensitivity", "characters", "probes", "layers", "backbones", "base-size", "scaling", "latency", "clinc",
)  # fmt: skip
"""In the order in which `reproduce all` prints them."""
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda apart, tolerance: apart < 0,
    "<=": lambda apart, tolerance: apart <= 0,
    ">": lambda apart, tolerance: apart > 0,
    ">=": lambda apart, tolerance: apart >= 0,
    "~": lambda apart, tolerance: abs(apart) <= tolerance + 1e-9,
}
"""relation -> whether two cells have it, by their difference and the claim's tolerance"""


@dataclass(frozen=True)
class Claim:
    """A comparison of two cells, 'row/column' or 'panel:row/column'; `right` may be a number."""

    says: str
    left: str
    relation: str
    right: str | float
    tolerance: float = 0.0
    ours: bool = False
    """a question of ours; the paper does not claim it"""

    @property
    def addresses(self) -> list[str]:
        """The cells that it compares."""
        return [side for side in (self.left, self.right) if isinstance(side, str)]

    def agrees(self, apart: float) -> bool:
        """Whether the claim holds for this difference of left and right."""
        # The paper's numbers have four decimals; the difference of two equal ones must be 0.
        return RELATIONS[self.relation](round(apart, 9), self.tolerance)


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
    figure: Literal["bars", "heatmap", "attention"] | None = None
    figure_of: tuple[str, ...] = ()
    """the columns that the figure shows; empty for all"""

    def specs(self) -> Iterator[CellSpec]:
        """The coordinates of every measured cell."""
        return (spec for panel in self.panels for _, spec in panel.specs())

    @cached_property
    def lines(self) -> dict[str, tuple[Panel, Line, Line]]:
        """Address of a cell -> its panel, row and column; an address without a panel is in the first one."""
        return {
            f"{prefix}{row.key}/{column.key}": (panel, row, column)
            for panel in reversed(self.panels)
            for prefix in ("", f"{panel.key}:")
            for row in panel.rows
            for column in panel.columns
        }


def find_declaration(name: str) -> Declaration:
    """The declaration of this name; an unknown name is an error that lists all names."""
    check_choice("table", name, NAMES)
    values = tomllib.loads((DECLARATIONS / f"{name}.toml").read_text(encoding="utf-8"))
    panels, claims = values.pop("panels"), values.pop("claims", ())
    for before, panel in pairwise(panels):
        for lines in ("rows", "columns"):
            panel.setdefault(lines, before[lines])
    shared, given = _split(values, Declaration)
    return Declaration(
        name=name,
        panels=tuple(_panel(panel, shared) for panel in panels),
        claims=tuple(comparison for claim in claims for comparison in _comparisons(**claim)),
        **given,
    )


def _comparisons(*, over: Sequence[str] = ("",), **values: Any) -> Iterator[Claim]:
    """A claim for each value of `over`, which replaces '{}' in left and right."""
    for value in over:
        sides = {side: values[side].format(value) for side in ("left", "right") if isinstance(values[side], str)}
        yield Claim(**values | sides)


def _panel(values: dict[str, Any], shared: dict[str, Any]) -> Panel:
    """A panel from its table in the file, with the coordinates that all cells of the declaration share."""
    lines = {}
    for name in ("rows", "columns"):
        split = (_split(line, Line) for line in values[name])
        lines[name] = tuple(Line(**given, coordinates=coordinates) for coordinates, given in split)
    coordinates, given = _split(values, Panel)
    return Panel(**given | lines, coordinates=shared | coordinates)


def _split(values: dict[str, Any], kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coordinates of a part of a declaration, which are the keys that are not its fields; and its fields."""
    names = {field.name for field in fields(kind)}
    coordinates = {key: value for key, value in values.items() if key not in names}
    if "contender" in coordinates:
        coordinates["contender"] = parse_contender(coordinates["contender"])
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items() if key in names}
    return coordinates, given


_SUBSTITUTED = (
    "The paper's backbones are replaced by the given ones; a row names both. Do not expect the paper's numbers there."
)


def substitute_backbones(declaration: Declaration, backbones: Sequence[str]) -> Declaration:
    """Put the given backbones, in turn, in place of those that the rows name, the last one in all that are left.

    Rows of ours, and sizes of a family, need a backbone of their own. Nothing is claimed of rows that are gone.
    """
    named = dict.fromkeys(row.coordinates.get("backbone") for panel in declaration.panels for row in panel.rows)
    named.pop(None, None)
    if not backbones or not named:
        return declaration
    given = dict(zip(named, backbones, strict=False))

    def substituted(rows: Sequence[Line]) -> Iterator[Line]:
        for row in rows:
            name, last = row.coordinates.get("backbone"), None if declaration.sizes or row.ours else backbones[-1]
            if name is None:
                yield row
            elif backbone := given.get(name, last):
                heading = f"{Path(backbone).name} for {row.heading}"
                yield replace(row, heading=heading, coordinates={**row.coordinates, "backbone": backbone})

    panels = tuple(replace(panel, rows=tuple(substituted(panel.rows))) for panel in declaration.panels)
    changed = replace(declaration, panels=panels, notes=(*declaration.notes, _SUBSTITUTED))
    claims = (claim for claim in declaration.claims if changed.lines.keys() >= set(claim.addresses))
    return replace(changed, claims=tuple(claims))
