"""A declaration that compares backbones, made to run on the ones that are at hand."""

from dataclasses import replace
from pathlib import Path

from uatlite.reproduce.declaration import Claim, Declaration, Line, Panel
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
