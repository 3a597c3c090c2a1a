"""A page: a template of its text, filled with tables, figures and values, as one HTML file that needs no other.

The text of a page stands in `templates/NAME.html.j2`; the templates share one layout and the macros of `parts.html.j2`.
Whatever a template is filled with is text and nothing more; of what is said of the paper's claims, which is Markdown,
headings, lists, bold print and code are shown.
"""

from functools import cache
from typing import Any

from uatlite import __version__
from uatlite.errors import MissingDependency
from uatlite.lab.report.figures import TEMPLATES, file_name
from uatlite.lab.report.tables import columns, shares


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
