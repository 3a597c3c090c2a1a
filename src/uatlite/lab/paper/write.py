"""A whole reproduction, written to a directory: each table as soon as it is filled, then all of them on one page.

DIR/tables/NAME.md .tex .csv .json    each table
    figures/NAME.svg .png .csv        each figure, and its numbers
    report.html  report.md            everything on one page
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uatlite.lab.evaluate.runs import Remote, Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.claims import ALIKE, HELD, REVERSED, UNKNOWN, UNLEARNED, UNTOLD, Findings, findings_of, summary
from uatlite.lab.paper.figures import figures_of
from uatlite.lab.paper.formats import as_csv, as_json, interval, latex, lead, markdown, own_sentence, paper_text, signed
from uatlite.lab.paper.models import FineTunedModels
from uatlite.lab.paper.reproduction import Reproduction, ReproductionProgress, reproduce
from uatlite.lab.paper.settings import ReproductionSettings
from uatlite.lab.report.build import style_sheet, template
from uatlite.lab.report.figures import RenderedFigure
from uatlite.lab.report.tables import number
from uatlite.text.write import make_directory, write_text

FORMATS = {"md": markdown, "tex": latex, "csv": as_csv, "json": as_json}
OUTCOME_CLASSES = {HELD: "right", REVERSED: "wrong", **dict.fromkeys((*UNTOLD, ALIKE, UNLEARNED, UNKNOWN), "")}
"""outcome -> the CSS class that colours it"""

Drawn = tuple[Reproduction, Sequence[RenderedFigure]]
"""a table and its figures"""


@dataclass(frozen=True)
class PaperReport:
    """The tables of a reproduction, and the page that shows them."""

    tables: tuple[Reproduction, ...]
    page: Path


def write_reproduction(
    names: Sequence[str],
    directory: Path,
    settings: ReproductionSettings,
    progress: ReproductionProgress,
    remote: Remote | None = None,
) -> PaperReport:
    """Reproduce tables and write everything. `remote` may compute predictions on other machines."""
    runs = Runs(FineTunedModels(directory, settings), Store(directory / "store"), remote)
    done: list[Drawn] = []
    for reproduction in reproduce(names, runs, progress, remote):
        figures = figures_of(reproduction, runs)
        write_table(reproduction, figures, directory)
        done.append((reproduction, figures))
    return PaperReport(tuple(one for one, _ in done), write_report(done, settings, directory))


def write_table(reproduction: Reproduction, figures: Sequence[RenderedFigure], directory: Path) -> None:
    """Write a table in each format, and its figures."""
    make_directory(directory / "tables")
    for ending, text_of in FORMATS.items():
        write_text(directory / "tables" / f"{reproduction.declaration.name}.{ending}", text_of(reproduction))
    make_directory(directory / "figures")
    for figure in figures:
        figure.write(directory / "figures")


def write_report(done: Sequence[Drawn], settings: ReproductionSettings, directory: Path) -> Path:
    """Write every table on one page, as HTML and as Markdown; returns the path of the HTML."""
    findings = findings_of([reproduction for reproduction, _ in done])
    trained = settings.describe({model.task for model in findings.models})
    head = ["# The paper, table by table", "", lead(findings), *trained, ""]
    write_text(directory / "report.md", "\n".join([*head, *(markdown(reproduction) for reproduction, _ in done)]))
    write_text(directory / "report.html", to_html(done, trained, findings))
    return directory / "report.html"


def to_html(done: Sequence[Drawn], settings: Sequence[str], findings: Findings) -> str:
    """The page; the template engine escapes every text."""
    page = template("reproduction.html.j2").render(
        done=done,
        settings=settings,
        findings=findings,
        own_sentence=own_sentence,
        of_table=summary,
        outcome_classes=OUTCOME_CLASSES,
        css=style_sheet(),
        number=number,
        interval=interval,
        paper_text=paper_text,
        signed=signed,
    )
    return str(page)
