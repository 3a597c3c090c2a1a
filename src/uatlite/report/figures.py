"""A figure of the report: drawn once, kept as SVG, PNG and CSV, and as an SVG that lives inside the page."""

import base64
import csv
import io
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

from uatlite.data.writing import atomic_file
from uatlite.report.displays import Display
from uatlite.report.drawing import Draw, themed
from uatlite.report.theme import ROLES

DPI = 160


@dataclass(frozen=True)
class Figure:
    """A drawn figure. `name` is unique in a report and safe as a file name."""

    name: str
    title: str
    alt: str
    """what it shows, for who cannot see it"""
    svg: str
    """as the file has it: light colours on white"""
    png: bytes
    csv: str

    @property
    def inline(self) -> str:
        """The SVG for the page: colours by role, ids of its own, a title and a description."""
        return inline_svg(self.svg, self.name, self.title, self.alt)

    @property
    def numbers(self) -> str:
        """The CSV as an address that needs no network and no file."""
        return "data:text/csv;base64," + base64.b64encode(self.csv.encode()).decode()

    def write(self, directory: Path) -> list[Path]:
        """The figure as SVG and PNG, and its numbers as CSV."""
        contents = {"svg": self.svg.encode(), "png": self.png, "csv": self.csv.encode()}
        for extension, content in contents.items():
            with atomic_file(directory / f"{self.name}.{extension}") as file:
                file.write(content)
        return [directory / f"{self.name}.{extension}" for extension in contents]


def render(name: str, title: str, alt: str, display: Display, draw: Draw) -> Figure:
    """Draw a display and keep it in every form."""
    svg, png = io.StringIO(), io.BytesIO()
    with themed():
        drawn = draw()
        drawn.savefig(svg, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
        drawn.savefig(png, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return Figure(file_name(name), title, alt, svg.getvalue(), png.getvalue(), _csv(display))


def file_name(text: str) -> str:
    """Letters, digits, dots and dashes of a text, as in 'reliability-sst2-test-uat-ts'."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def inline_svg(svg: str, name: str, title: str, alt: str) -> str:
    """An SVG file as an element of a page: without prolog and ground, recoloured, with ids that no other figure has."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    # The first patch is matplotlib's ground of the whole figure.
    body = re.sub(r'<g id="patch_1">.*?</g>', "", body, count=1, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", body)
    for colour, role in ROLES.items():
        body = body.replace(colour, f"var({role})")
    head, rest = body.split(">", 1)
    view = re.search(r'viewBox="[^"]+"', head)
    assert view is not None
    opening = f'<svg class="figure" role="img" aria-labelledby="{name}-title {name}-alt" {view.group()}>'
    return f'{opening}<title id="{name}-title">{escape(title)}</title><desc id="{name}-alt">{escape(alt)}</desc>{rest}'


def _csv(display: Display) -> str:
    rows = list(display.records())
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value != value else value for key, value in row.items()} for row in rows)
    return text.getvalue()
