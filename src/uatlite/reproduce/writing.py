"""A filled table to its files, and all of them to one page.

DIR/tables/NAME.md .tex .csv .json    each table
    figures/NAME.svg .png .csv        each figure, and its numbers
    report.html  report.md            all in one
"""

from collections.abc import Sequence
from pathlib import Path

from uatlite.data.writing import atomic_file
from uatlite.errors import DataError
from uatlite.report.figures import Figure
from uatlite.reproduce.page import to_html
from uatlite.reproduce.run import Reproduction
from uatlite.reproduce.settings import Settings
from uatlite.reproduce.texts import as_csv, as_json, latex, markdown

FORMS = {"md": markdown, "tex": latex, "csv": as_csv, "json": as_json}


def write_table(reproduction: Reproduction, figures: Sequence[Figure], directory: Path) -> list[Path]:
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


def write_report(done: Sequence[tuple[Reproduction, Sequence[Figure]]], settings: Settings, directory: Path) -> Path:
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
