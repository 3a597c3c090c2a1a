"""A page: a template of its text, filled with tables, figures and values, as one HTML file that needs no other.

The text of a page stands in `templates/NAME.html.j2`; the templates share one layout and the macros of `parts.html.j2`.
Whatever a template is filled with is text and nothing more. Only the sentences of a `Section` are Markdown, of which
headings, lists, bold print and code are shown; its sections are Markdown files too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from uatlite import __version__
from uatlite.errors import MissingDependency
from uatlite.lab.report.figures import RenderedFigure, file_name
from uatlite.lab.report.tables import Column, Table, shares, table_markdown

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Plain:
    """Small print that holds words of a user, shown as they are."""

    kind: ClassVar = "plain"
    text: str


@dataclass(frozen=True)
class Drawn:
    """A figure and its caption."""

    kind: ClassVar = "drawn"
    figure: RenderedFigure
    caption: str


@dataclass(frozen=True)
class Together:
    """Parts that can be folded away."""

    kind: ClassVar = "together"
    style: Literal["folded", "unfolded"]
    parts: tuple["Part", ...]
    title: str


Part = str | Plain | Table | Drawn | Together


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, on a page and as Markdown."""

    heading: str
    parts: tuple[Part, ...]
    name: str = ""
    """what links call it; by default the heading"""

    def markdown(self) -> str:
        """The section without what is drawn."""
        return "\n\n".join([f"## {self.heading}", *blocks(self.parts)])


def blocks(parts: Sequence[Part]) -> Iterator[str]:
    """Parts as blocks of Markdown."""
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Table):
            yield from table_markdown(part)
        elif isinstance(part, Together):
            yield from (f"### {part.title}", *blocks(part.parts))


def page_html(template: str, **values: object) -> str:
    """The page of a template, without scripts or requests."""
    html: str = _environment().get_template(template).render(**values)
    return html


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingDependency("jinja2", "report") from error
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sentences = MarkdownIt("zero").enable(["heading", "list", "fence", "emphasis", "backticks", "escape"])
    environment.filters |= {
        "markdown": sentences.render,
        "id": file_name,
        "percent": lambda share, digits=1: f"{share:.{digits}%}",
        "count": lambda number: f"{number:,}",
        "reach": lambda ends: shares(*ends),
    }
    environment.globals |= {"version": __version__, "columns": _columns}
    return environment


def _columns(texts: Sequence[str], numbers: Sequence[str] = ()) -> list[Column]:
    return [*(Column(text, number=False) for text in texts), *map(Column, numbers)]
