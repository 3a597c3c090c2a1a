"""The page: one HTML file with everything in it, from a template and values that are all computed before.

From an evaluation on the disk to a report: the page, and every figure as files beside it.

DIR/report.html                    all in one file
    figures/NAME.svg .png .csv     each figure, and its numbers
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uatlite.errors import DataError, MissingDependency
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report import abstention as abstaining
from uatlite.lab.report.abstention import AbstainedRow, Abstention, findings
from uatlite.lab.report.charts import SetFigures, figures_of
from uatlite.lab.report.evaluation import as_line, examples_of, home_of, open_evaluation
from uatlite.lab.report.tables import Table, legend, tables_of
from uatlite.lab.report.words import FILE, ExplainedText, read_explanations, shade
from uatlite.text.write import atomic_file

TEMPLATES = Path(__file__).parent / "templates"
FILES_ONLY = ("macro_f1", "debiased_ece")
"""Metrics that the page leaves to results.csv, so that its tables fit a screen."""


@dataclass(frozen=True)
class Page:
    """All that a page shows."""

    title: str
    results: Results
    findings: Sequence[str]
    figures: Sequence[SetFigures]
    abstention: Abstention | None
    abstained: Sequence[tuple[AbstainedRow, str | None]]
    """some of the rows that were not answered, and their texts where they are known"""
    explanations: Sequence[ExplainedText]


def to_html(page: Page) -> str:
    """The page as HTML; every text in it is escaped by the template engine."""
    return str(
        template("report.html.j2").render(
            page=page,
            results=page.results,
            tables=_by_set(page.results),
            legend=legend(page.results),
            css=style_sheet(),
            shade=shade,
        )
    )


def _by_set(results: Results) -> dict[str, list[Table]]:
    """The tables of each set: its scores, then those of its shift and of finding what is out of scope."""
    tables = iter(tables_of(results, [metric for metric in results.metrics if metric not in FILES_ONLY]))
    found: dict[str, list[Table]] = {}
    for one in results.sets:
        count = 1 + bool(one.shift) + bool(one.detection)
        found[one.name] = [next(tables) for _ in range(count)]
    return found


def style_sheet() -> str:
    """The style of every page of ours, to be put into it."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")


def template(name: str) -> Any:
    """A template of the report, ready to render; what it is given is escaped."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    except ImportError as error:
        raise MissingDependency("jinja2", "report") from error
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html", "j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: f"{share:.1%}"
    environment.filters["described"] = _described
    return environment.get_template(name)


def _described(about: Mapping[str, Any]) -> str:
    return (
        f"{about['passes']} pass{'es' if about['passes'] > 1 else ''}, {1000 * about['seconds_per_text']:.0f} ms a text"
    )


PAGE, FIGURES = "report.html", "figures"
SHOWN = 12
"""Texts that it abstained on are listed up to so many, the least sure first."""


def build_report(
    evaluation: str | Path,
    directory: str | Path,
    *,
    contender: str | None = None,
    target_risk: float = abstaining.TARGET_RISK,
    data_dir: str | Path | None = None,
    model: str | Path | None = None,
    title: str = "When not to trust this classifier",
) -> Path:
    """Write the report of an evaluation and return the page's path.

    No model is needed, but for texts explained word by word: these are computed with `model`, the one that was
    evaluated, and kept in `explanations.json` beside the results; where that file lies they are shown without it.
    """
    directory, home = Path(directory), home_of(evaluation)
    opened = open_evaluation(home)
    results = opened.results
    abstention = abstaining.abstain(opened, contender, target=target_risk)
    if model is not None and abstention is not None:
        from uatlite.lab.report.words import explain_stored  # torch, which a report does without

        explain_stored(opened, abstention, model, home / FILE, data_dir)
    figures = [figures_of(opened, one) for one in results.sets]
    first = results.sets[0]
    examples = examples_of(opened.predictions(next(iter(first.runs)), first.name).provenance, data_dir)
    shown = () if abstention is None else abstention.abstained[:SHOWN]
    page = Page(
        title=title,
        results=results,
        findings=findings(results, abstention),
        figures=figures,
        abstention=abstention,
        abstained=[(row, as_line(examples[row.id]) if row.id in examples else None) for row in shown],
        explanations=read_explanations(home / FILE) if (home / FILE).is_file() else (),
    )
    try:
        (directory / FIGURES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be made: {error.strerror}.") from error
    for figure in (figure for of_set in figures for figure in of_set.all):
        figure.write(directory / FIGURES)
    with atomic_file(directory / PAGE) as file:
        file.write(to_html(page).encode())
    return directory / PAGE
