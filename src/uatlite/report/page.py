"""The page: one HTML file with everything in it, from a template and values that are all computed before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uatlite.errors import MissingDependency
from uatlite.experiments.results import Results
from uatlite.report.abstention import AbstainedRow, Abstention
from uatlite.report.explanations import ExplainedText
from uatlite.report.gallery import SetFigures
from uatlite.report.shading import shade
from uatlite.report.tables import Table, legend, tables_of

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
