"""A whole reproduction: run, draw, write, and the page at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uatlite.report.figures import Figure
from uatlite.reproduce.drawing import figures_of
from uatlite.reproduce.run import Reproduction, Watch, reproduce
from uatlite.reproduce.settings import Settings
from uatlite.reproduce.workshop import Elsewhere, Workshop
from uatlite.reproduce.writing import write_report, write_table


@dataclass(frozen=True)
class Made:
    """The tables that were made, and the page that shows them."""

    tables: tuple[Reproduction, ...]
    page: Path


def make(
    names: Sequence[str], directory: Path, settings: Settings, watch: Watch, elsewhere: Elsewhere | None = None
) -> Made:
    """Each table is written as soon as it is done. `elsewhere` may compute predictions on other machines."""
    workshop = Workshop(directory, settings, elsewhere)
    done: list[tuple[Reproduction, list[Figure]]] = []
    for reproduction in reproduce(names, workshop, watch):
        figures = figures_of(reproduction, workshop)
        write_table(reproduction, figures, directory)
        done.append((reproduction, figures))
    return Made(tuple(one for one, _ in done), write_report(done, settings, directory))
