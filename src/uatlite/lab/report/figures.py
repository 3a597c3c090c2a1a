"""Figures and pages: the theme, a drawn figure as SVG, PNG, CSV and as an element of a page, and a page as one file.

A method has one colour, and its calibrated forms are dashed. Figures are drawn in the light colours below. Inside a
page each colour becomes the CSS variable of its role, which the style sheet sets for light and dark screens.

The text of a page stands in `templates/NAME.html.j2`; the templates share one layout and the macros of `parts.html.j2`.
Whatever a template is filled with is text and nothing more; of what is said of the paper's claims, which is Markdown,
headings, lists, bold print and code are shown.
"""

import base64
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from uatlite import __version__
from uatlite.errors import MissingDependency
from uatlite.lab.report.tables import Record, columns, records_csv, shares
from uatlite.text.write import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
"""Left out of saved figures, so that the same numbers give the same file."""

# Colours on a light background. The series are Okabe and Ito's, which colour-blind readers can tell apart, darkened
# where they are too pale for a line on white.
INK = "#1c2430"
MUTED = "#5d6776"
_GRID = "#dde2e9"
RIGHT = "#2b7a78"
WRONG = "#c8553d"
SERIES = ("#1f6fb4", "#c76a00", "#00805f", "#a83279", "#6f5cc4", "#8a7a00", "#c0392b", "#3d8aa6")

ROLES = {
    INK: "--ink",
    MUTED: "--muted",
    _GRID: "--grid",
    RIGHT: "--right",
    WRONG: "--wrong",
    **{colour: f"--series-{i}" for i, colour in enumerate(SERIES, 1)},
}


@contextmanager
def themed() -> Iterator[None]:
    """The theme within the block, for drawing and for saving a figure."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise MissingDependency("matplotlib", "report") from error
    with rc_context(fname=TEMPLATES / "figure.mplstyle"):
        yield


def percent(axes: "Axes", *names: str) -> None:
    """Shares as percentages on the axes 'x', 'y' or both."""
    for name in names:
        getattr(axes, f"{name}axis").set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")


@dataclass(frozen=True)
class RenderedFigure:
    """A drawn figure. `name` is unique in a report and safe as a file name."""

    name: str
    title: str
    alt: str
    """what it shows, for readers who cannot see it"""
    svg: str
    """the file: light colours on white"""
    png: bytes
    csv: str

    @property
    def inline(self) -> str:
        """The SVG as an element of a page: no background, colours by role, unique ids, a title and a description."""
        body = self.svg[self.svg.index("<svg") :]
        body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
        # The first patch is the background of the whole figure.
        body = re.sub(r'<g id="patch_1">.*?</g>', "", body, count=1, flags=re.DOTALL)
        body = re.sub(r'\bid="([^"]+)"', rf'id="{self.name}-\1"', body)
        body = re.sub(r'(url\(#|href="#)', rf"\g<1>{self.name}-", body)
        for colour, role in ROLES.items():
            body = body.replace(colour, f"var({role})")
        head, rest = body.split(">", 1)
        view = re.search(r'viewBox="[^"]+"', head)
        assert view is not None
        title, told = f"{self.name}-title", f"{self.name}-alt"
        opening = f'<svg class="figure" role="img" aria-labelledby="{title} {told}" {view.group()}>'
        named = f'<title id="{title}">{escape(self.title)}</title><desc id="{told}">{escape(self.alt)}</desc>'
        return f"{opening}{named}{rest}"

    @property
    def numbers(self) -> str:
        """The CSV as a data URL."""
        return "data:text/csv;base64," + base64.b64encode(self.csv.encode()).decode()

    def write(self, directory: Path) -> None:
        """Write the figure as SVG and PNG, and its numbers as CSV."""
        for extension, content in (("svg", self.svg.encode()), ("png", self.png), ("csv", self.csv.encode())):
            with atomic_file(directory / f"{self.name}.{extension}") as file:
                file.write(content)


def render(
    name: str,
    title: str,
    alt: str,
    records: Iterable[Record],
    draw: Callable[[Any], None],
    size: tuple[float, float],
    **layout: Any,
) -> RenderedFigure:
    """A figure of this size in inches in all forms, with the numbers that `draw` draws on its axes."""
    with themed():
        from matplotlib.figure import Figure

        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(**layout)
        for drawn in (figure, *np.atleast_1d(axes).flat):
            drawn.patch.set_alpha(0)
        draw(axes)
        svg, png = saved(figure, "svg").decode(), saved(figure, "png")
    return RenderedFigure(file_name(name), title, alt, svg, png, records_csv(records))


def saved(figure: "Figure", kind: Literal["svg", "png"]) -> bytes:
    """The file of a figure."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, facecolor="white", metadata=_METADATA[kind])
    return content.getvalue()


def file_name(text: str) -> str:
    """Letters, digits, dots and dashes of a text, as in 'reliability-sst2-test-uat-ts'."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def filled(template: str, **values: object) -> str:
    """A template with its values: a page of HTML without scripts or requests, or plain text, by its name."""
    text: str = _environment().get_template(template).render(**values)
    return text


@cache
def _environment() -> Any:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingDependency("jinja2", "report") from error
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=lambda name: name is not None and ".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sentences = MarkdownIt("zero").enable(["heading", "list", "fence", "emphasis", "backticks", "escape"])
    environment.filters |= {
        "markdown": sentences.render,
        "id": file_name,
        "percent": lambda share, digits=1, of=1: f"{share / of if of else 0:.{digits}%}",
        "count": lambda number: f"{number:,}",
        "reach": lambda ends: shares(*ends),
    }
    environment.globals |= {"version": __version__, "columns": columns}
    return environment
