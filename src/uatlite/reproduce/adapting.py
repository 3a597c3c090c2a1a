"""A declaration that compares backbones, made to run on the ones that are at hand."""

from dataclasses import replace
from pathlib import Path

from uatlite.reproduce.declaration import Declaration, Line, Panel
from uatlite.reproduce.settings import Settings

_NOTE = (
    "The paper's backbones are replaced by those that were given; a row names which stands where, and its numbers are "
    "not to be expected to be the paper's."
)


def adapt(declaration: Declaration, settings: Settings) -> Declaration:
    """Put the given backbones in the place of the paper's, in turn; sizes of a family get one row each."""
    given = settings.standing_in
    named = any("backbone" in row.coordinates for panel in declaration.panels for row in panel.rows)
    if not given or not named:
        return declaration
    panels = tuple(_panel(panel, given, declaration.sizes) for panel in declaration.panels)
    return replace(declaration, panels=panels, notes=(*declaration.notes, _NOTE))


def _panel(panel: Panel, given: tuple[str, ...], sizes: bool) -> Panel:
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
