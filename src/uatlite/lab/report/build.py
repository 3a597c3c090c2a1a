"""Build a report: from an evaluation on disk to one HTML page, with every figure as files beside it.

    DIR/report.html                    one file that needs no other
        figures/NAME.svg .png .csv     each figure, and its numbers

All values are computed before the page is rendered. The template engine escapes every text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, MissingDependency
from uatlite.lab.evaluate.results import Results
from uatlite.lab.report.abstention import TARGET_RISK, AbstainedRow, Abstention, abstain, findings
from uatlite.lab.report.answer_files import NOUNS, StoredAnswers, answer_findings, read_answers
from uatlite.lab.report.charts import SetFigures, figures_of, menu_figure
from uatlite.lab.report.evaluation import RESULTS, as_line, home_of, name_of_row, open_evaluation
from uatlite.lab.report.figures import RenderedFigure, strokes
from uatlite.lab.report.result_files import read_results
from uatlite.lab.report.tables import Table, legend, passes, scope_tables, set_tables
from uatlite.lab.report.verdict import shown_verdict
from uatlite.lab.report.words import FILE, explain_stored, reach, read_explanations
from uatlite.text.write import make_directory, write_text
from uatlite.trust.scope import Scope
from uatlite.values import Example

TEMPLATES = Path(__file__).parent / "templates"
PAGE, FIGURES = "report.html", "figures"
FILES_ONLY = ("macro_f1", "debiased_ece")
"""Metrics that are in results.csv but not on the page, so that its tables fit a screen."""
SHOWN = 12
"""At most this many abstained texts are listed, the least confident first."""


def build_report(
    evaluation: str | Path,
    directory: str | Path,
    *,
    contender: str | None = None,
    target_risk: float = TARGET_RISK,
    data_dir: str | Path | None = None,
    model: str | Path | None = None,
    scope: Scope | None = None,
    title: str = "When not to trust this classifier",
) -> Path:
    """Write the report of an evaluation and return the path of its page.

    With `model`, the evaluated one, a few texts are explained word by word and kept in `explanations.json` beside the
    results. Where that file exists they are shown without a model. The rest of the report never needs one. `scope` is
    that of a calibrated classifier; without it the calibration rows say what is in scope.
    """
    directory, home = Path(directory), home_of(evaluation)
    if (home / RESULTS).is_file() and (several := read_results(home / RESULTS)).kind in NOUNS:
        for option, given in (("--method", contender), ("--model", model)):
            if given is not None:
                raise ConfigurationError(f"{option} {given} is for one answer a text; leave it out for {home}.")
        return _build_answers(read_answers(home, several), directory, title)
    opened = open_evaluation(home)
    results = opened.results
    abstention = abstain(opened, contender, target=target_risk, scope=scope)
    if model is not None and abstention is not None:
        explain_stored(opened, abstention, model, home / FILE, data_dir)
    figures = [figures_of(opened, one) for one in results.sets]
    menu = None
    if abstention is not None and abstention.menu is not None:
        menu = menu_figure(abstention.menu, abstention.contender, strokes(opened.contenders)[abstention.contender])
    first = results.sets[0]
    examples = opened.examples(data_dir)
    shown = () if abstention is None else abstention.abstained[:SHOWN]
    metrics = [metric for metric in results.metrics if metric not in FILES_ONLY]
    tables = {one.name: set_tables(results, one, metrics) for one in results.sets}
    tables[first.name] += scope_tables(results)
    page = _Page(
        title=title,
        results=results,
        findings=findings(results, abstention),
        figures=figures,
        tables=tables,
        abstention=abstention,
        menu=menu,
        abstained=[_shown_row(row, examples.get(row.id)) for row in shown],
        explanations=read_explanations(home / FILE) if (home / FILE).is_file() else (),
    )
    return page.write(directory)


def _build_answers(stored: StoredAnswers, directory: Path, title: str) -> Path:
    """The page of several answers a text."""
    results = stored.results
    page = _Page(
        title=title,
        results=results,
        findings=answer_findings(results),
        figures=[figures_of(stored, one) for one in results.sets],
        tables={one.name: set_tables(results, one) for one in results.sets},
    )
    return page.write(directory)


@dataclass(frozen=True, eq=False)
class _Page:
    """What the template shows; the fields without a value are of one answer a text only."""

    title: str
    results: Results
    findings: Sequence[str]
    figures: Sequence[SetFigures]
    tables: Mapping[str, Sequence[Table]]
    abstention: Abstention | None = None
    menu: RenderedFigure | None = None
    abstained: Sequence[Any] = ()
    explanations: Sequence[Any] = ()

    def write(self, directory: Path) -> Path:
        """Write the page, and its figures beside it."""
        html = template("report.html.j2").render(
            **{one.name: getattr(self, one.name) for one in fields(self)},
            verdict=shown_verdict(self.results),
            legend=legend(self.results),
            noun=NOUNS.get(self.results.kind),
            css=style_sheet(),
            reach=reach,
        )
        make_directory(directory / FIGURES)
        every = [figure for of_set in self.figures for figure in of_set.all]
        for figure in (*every, *([self.menu] if self.menu else [])):
            figure.write(directory / FIGURES)
        write_text(directory / PAGE, html)
        return directory / PAGE


def _shown_row(row: AbstainedRow, example: Example | None) -> tuple[AbstainedRow, str | None, str | None]:
    """A row, its text and its name; None where they are not known."""
    return (row, None, None) if example is None else (row, as_line(example), name_of_row(example))


def style_sheet() -> str:
    """The style sheet that every page includes."""
    return (TEMPLATES / "report.css").read_text(encoding="utf-8")


def template(name: str) -> Any:
    """A template, ready to render with `.render(…)`; the values are escaped."""
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


def _described(method: Mapping[str, Any]) -> str:
    return f"{passes(method)}, {1000 * method['seconds_per_text']:.0f} ms a text"
