"""A page: sections of sentences, tables, figures and texts, as one HTML file that needs no other, or as Markdown.

Sentences are Markdown, of which headings, lists, bold print and code are shown; nothing else in them, and nothing in
any other text, is more than text. Only this module and `tables` know HTML, Markdown and LaTeX.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from uatlite import __version__
from uatlite.errors import MissingDependency
from uatlite.lab.report.figures import RenderedFigure, file_name
from uatlite.lab.report.tables import Table, Tone, table_markdown
from uatlite.text.write import make_directory, write_text

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Plain:
    """A sentence that holds words of a user, shown as they are."""

    kind: ClassVar = "plain"
    text: str
    style: Literal["", "lead", "note", "strong"] = ""


@dataclass(frozen=True)
class Drawn:
    """A figure and its caption; `wide` ones are scrolled on a narrow screen."""

    kind: ClassVar = "drawn"
    figure: RenderedFigure
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Words:
    """A text word by word: each with its class in the style sheet, and its numbers, which a pointer shows."""

    kind: ClassVar = "words"
    words: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class ShadeKey:
    """The shades of words, from least to most."""

    kind: ClassVar = "key"


@dataclass(frozen=True)
class Band:
    """A probability between 0 and 1 with nested intervals around it."""

    kind: ClassVar = "band"
    label: str
    ends: tuple[float, ...]
    """ascending, from the lower end of the widest to its upper end; the middle one is the probability"""
    note: str


@dataclass(frozen=True)
class Tag:
    """A few words about a text, the last of them in bold."""

    text: str
    strong: str = ""
    tone: Tone = ""


@dataclass(frozen=True)
class Card:
    """A text, and what was said of it."""

    kind: ClassVar = "card"
    text: str | Words
    tags: tuple[Tag, ...]
    below: tuple["Part", ...] = ()


@dataclass(frozen=True)
class Together:
    """Parts side by side: two in a row, as many small ones as fit, texts; or parts that can be folded away."""

    kind: ClassVar = "together"
    style: Literal["pair", "panels", "panels named", "texts", "folded", "unfolded"]
    parts: tuple["Part", ...]
    title: str = ""
    """of those that can be folded away"""


Part = str | Plain | Table | Drawn | Words | ShadeKey | Band | Card | Together


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    heading: str
    parts: tuple[Part, ...]
    name: str = ""
    """what links call it; by default the heading"""

    @property
    def id(self) -> str:
        """Its name in the page."""
        return file_name(self.name or self.heading)

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
        elif isinstance(part, Together) and part.title:
            yield from (f"### {part.title}", *blocks(part.parts))


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: above its title the `kicker`, below it the `lead`, then `about` in small print."""

    title: str
    kicker: str
    sections: tuple[Section, ...]
    lead: tuple[Part, ...] = ()
    about: tuple[str, ...] = ()
    alarm: bool = False
    """whether the title is a warning"""
    tab: str = ""
    """the title of the browser's tab; by default the title"""

    def html(self) -> str:
        """One file without scripts or requests."""
        css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
        html: str = _template().render(page=self, version=__version__, css=css)
        return html

    def write(self, path: Path, figures: Path | None = None) -> Path:
        """Write the HTML, and its figures into a directory if one is given; returns `path`."""
        make_directory(path.parent)
        if figures is not None:
            make_directory(figures)
            for section in self.sections:
                for figure in _figures(section.parts):
                    figure.write(figures)
        write_text(path, self.html())
        return path


def _figures(parts: Sequence[Part]) -> Iterator[RenderedFigure]:
    """The figures among parts."""
    for part in parts:
        if isinstance(part, Drawn):
            yield part.figure
        elif isinstance(part, Together):
            yield from _figures(part.parts)


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingDependency("jinja2", "report") from error
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = MarkdownIt("zero").enable(["heading", "list", "fence", "emphasis", "backticks", "escape"])
    environment.filters["markdown"] = shown.render
    environment.filters["id"] = file_name
    return environment.get_template("page.html.j2")
