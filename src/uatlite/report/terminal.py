"""Tables in a terminal, by rich."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from uatlite.experiments.results import Results
from uatlite.report.tables import NARROW, Cell, Table, legend, tables_of


def render(results: Results) -> RenderableType:
    """The narrow tables of an evaluation, and how to read them."""
    parts: list[RenderableType] = []
    for table in tables_of(results, NARROW):
        parts += [Text(table.title, style="bold"), render_table(table)]
        parts += [*(Text(note, style="dim") for note in table.notes), Text()]
    parts.append(Text(legend(results, metrics=NARROW), style="dim"))
    return Group(*parts)


def render_table(table: Table) -> RichTable:
    """Two lines for each contender: means, and intervals below them."""
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    drawn.add_column("", min_width=12, overflow="fold")
    for heading in table.headings:
        drawn.add_column(heading, justify="right", no_wrap=True)
    for name, note, cells in table.rows:
        label = Text(name).append(f"\n{note}", style="dim")
        drawn.add_row(label, *(_two_lines(cell) for cell in cells))
    return drawn


def _two_lines(cell: Cell) -> Text:
    spread = f" ±{cell.deviation.removeprefix('0')}" if cell.deviation else ""
    text = Text(cell.mean + spread + ("*" if cell.best else " "), style="bold green" if cell.best else "")
    return text.append(f"\n{cell.interval} ", style="not bold default dim")
