"""All tables on one HTML page with everything in it.

A filled table to its files, and all of them to one page.

DIR/tables/NAME.md .tex .csv .json    each table
    figures/NAME.svg .png .csv        each figure, and its numbers
    report.html  report.md            all in one

A whole reproduction: run, draw, write, and the page at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uatlite.errors import DataError
from uatlite.lab.paper.claims import ALIKE, HELD, LIKELY, REVERSED, UNKNOWN, UNLIKELY, summary
from uatlite.lab.paper.figures import figures_of
from uatlite.lab.paper.models import Elsewhere, Workshop
from uatlite.lab.paper.reproduction import Reproduction, ReproductionDisplay, reproduce
from uatlite.lab.paper.settings import ReproductionSettings
from uatlite.lab.paper.texts import as_csv, as_json, interval, latex, markdown, number, printed, signed
from uatlite.lab.report.build import style_sheet, template
from uatlite.lab.report.figures import RenderedFigure
from uatlite.text.write import atomic_file

MARKS = {HELD: "right", LIKELY: "", UNLIKELY: "", REVERSED: "wrong", ALIKE: "", UNKNOWN: ""}
"""outcome -> the class that colours it"""


def to_html(done: Sequence[tuple[Reproduction, Sequence[RenderedFigure]]], settings: ReproductionSettings) -> str:
    """The page; every text in it is escaped by the template engine."""
    verdicts = [verdict for reproduction, _ in done for verdict in reproduction.verdicts]
    return str(
        template("reproduction.html.j2").render(
            done=done,
            settings=settings.describe(),
            summary=summary(verdicts),
            of_table=summary,
            marks=MARKS,
            css=style_sheet(),
            number=number,
            interval=interval,
            printed=printed,
            signed=signed,
        )
    )


FORMS = {"md": markdown, "tex": latex, "csv": as_csv, "json": as_json}


def write_table(reproduction: Reproduction, figures: Sequence[RenderedFigure], directory: Path) -> list[Path]:
    """The table in each form and its figures; returns their paths."""
    written = []
    _make(directory / "tables")
    for ending, form in FORMS.items():
        path = directory / "tables" / f"{reproduction.declaration.name}.{ending}"
        _write(path, form(reproduction))
        written.append(path)
    _make(directory / "figures")
    for figure in figures:
        written += figure.write(directory / "figures")
    return written


def write_report(
    done: Sequence[tuple[Reproduction, Sequence[RenderedFigure]]], settings: ReproductionSettings, directory: Path
) -> Path:
    """Every table on one page, as HTML with everything in it and as Markdown; returns the HTML's path."""
    head = ["# The paper, table by table", "", *settings.describe(), ""]
    body = [markdown(reproduction) for reproduction, _ in done]
    _write(directory / "report.md", "\n".join([*head, *body]))
    _write(directory / "report.html", to_html(done, settings))
    return directory / "report.html"


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be made: {error.strerror}.") from error


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text.encode())


@dataclass(frozen=True)
class Made:
    """The tables that were made, and the page that shows them."""

    tables: tuple[Reproduction, ...]
    page: Path


def make(
    names: Sequence[str],
    directory: Path,
    settings: ReproductionSettings,
    display: ReproductionDisplay,
    elsewhere: Elsewhere | None = None,
) -> Made:
    """Each table is written as soon as it is done. `elsewhere` may compute predictions on other machines."""
    workshop = Workshop(directory, settings, elsewhere)
    done: list[tuple[Reproduction, list[RenderedFigure]]] = []
    for reproduction in reproduce(names, workshop, display):
        figures = figures_of(reproduction, workshop)
        write_table(reproduction, figures, directory)
        done.append((reproduction, figures))
    return Made(tuple(one for one, _ in done), write_report(done, settings, directory))
