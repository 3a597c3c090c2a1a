"""Tables as values for a reader, and the same table as Markdown, as LaTeX and on a terminal; a page draws it too.

What a program reads are flat records, written as CSV: they have seeds, rows and reasons that no table shows.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

MISSING = "–"
Record = dict[str, object]
Columns = Mapping[str, Any]
"""name -> its values, an array or a sequence; all of one length"""
Tone = Literal["", "best", "strong", "wrong"]


def number(value: float | None, decimals: int) -> str:
    """'−0.012' with a minus sign; a dash for None, NaN and infinity."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:z.{decimals}f}".replace("-", "−")


def signed(value: float | None, decimals: int) -> str:
    """'+0.012' or '−0.012'."""
    text = number(value, decimals)
    return text if text.startswith("−") or text == MISSING else f"+{text}"


def interval(low: float, high: float, decimals: int) -> str:
    """'0.101–0.145', or '−0.010 to 0.020' below zero; a dash where it is not defined."""
    between = "–" if low >= 0 else " to "
    return f"{number(low, decimals)}{between}{number(high, decimals)}" if math.isfinite(low) else MISSING


def shares(low: float, high: float) -> str:
    """'10.1% to 14.5%'."""
    return f"{low:.1%} to {high:.1%}"


def listing(names: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'; a dash for none."""
    if not names:
        return MISSING
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


@dataclass(frozen=True)
class Entry:
    """What stands in a cell."""

    text: str = MISSING
    spread: str = ""
    """the standard deviation over seeds"""
    interval: str = ""
    beside: str = ""
    """the number that ours is compared with, as the paper's"""
    difference: str = ""
    """ours less the one beside it"""
    tone: Tone = ""

    @property
    def in_line(self) -> str:
        """'0.123 ± 0.004 (0.101–0.145)'."""
        return f"{self.text}{self.spread and f' ± {self.spread}'}{self.interval and f' ({self.interval})'}"

    def below(self, whose: str | None) -> tuple[str, ...]:
        """The lines of small print: the interval, and the number beside ours."""
        beside = ", ".join(text for text in (f"{whose} {self.beside}", self.difference) if text != MISSING)
        return tuple(filter(None, (self.interval, beside if self.beside else "")))


@dataclass(frozen=True)
class Column:
    """The heading of a column; the entries are numbers, or else text."""

    heading: str
    number: bool = True
    note: str = ""


def columns(texts: Iterable[str], numbers: Iterable[str] = ()) -> tuple[Column, ...]:
    """Columns of text, then columns of numbers, by their headings."""
    return (*(Column(text, number=False) for text in texts), *map(Column, numbers))


@dataclass(frozen=True)
class Row:
    """A line of a table; a page shows the note below its heading."""

    heading: str
    entries: tuple[Entry, ...]
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows and columns of entries."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    corner: str = ""
    """stands above the headings of the rows"""
    caption: str = ""
    """what a page says of a table without a title"""
    mark: str = ""
    """follows the best entries, where there is no bold print"""
    beside: str | None = None
    """whose numbers are compared with ours; each row has a line for them then"""

    @property
    def bare(self) -> "Table":
        """Without title and notes, for a page that says them itself."""
        return replace(self, title="", notes=())

    def lines(self, show: Callable[[Entry], str] = lambda entry: entry.in_line) -> Iterator[list[str]]:
        """The rows as text; of a table with numbers beside ours, also what each line is of."""
        for row in self.rows:
            if self.beside is None:
                yield [row.heading, *map(show, row.entries)]
                continue
            yield [row.heading, "here", *map(show, row.entries)]
            if any(entry.beside for entry in row.entries):
                yield ["", self.beside, *(entry.beside or MISSING for entry in row.entries)]
                yield ["", "difference", *(entry.difference or MISSING for entry in row.entries)]

    @property
    def every_column(self) -> list[Column]:
        """The columns that say what a line is, then the others."""
        first = [self.corner] if self.beside is None else [self.corner, ""]
        return [*(Column(heading, number=False) for heading in first), *self.columns]


def table_markdown(table: Table) -> Iterator[str]:
    """The title, the table and the notes, each a block of Markdown."""
    if table.title:
        yield f"**{table.title}**"
    columns = table.every_column
    headings = "|".join(f" {column.heading} " if column.heading else " " for column in columns)
    dashes = "|".join("---:" if column.number else "---" for column in columns)
    lines = (f"| {' | '.join(line)} |" for line in table.lines(_bold_if_best))
    yield "\n".join([f"|{headings}|", f"|{dashes}|", *lines])
    if table.notes:
        yield "\n".join(f"- {note}" for note in table.notes)


def _bold_if_best(entry: Entry) -> str:
    return entry.in_line.replace(entry.text, f"**{entry.text}**", 1) if entry.tone == "best" else entry.in_line


LATEX = str.maketrans(
    {"%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "±": r"$\pm$", "−": r"$-$", "–": "--", "↓": r"$\downarrow$",
     "↑": r"$\uparrow$", "Δ": r"$\Delta$", "λ": r"$\lambda$", "τ": r"$\tau$", "ρ": r"$\rho$", "×": r"$\times$",
     "‖": r"$\|$", "→": r"$\rightarrow$", "≥": r"$\geq$", "~": r"\textasciitilde{}", "<": "$<$", ">": "$>$"}
)  # fmt: skip


def latex(tables: Iterable[Table], title: str = "") -> str:
    """A booktabs table each; `title` is that of all together."""
    parts: list[str] = []
    for table in tables:
        caption = f"{title}. {table.title}".strip(". ") + "."
        aligned = "".join("r" if column.number else "l" for column in table.every_column)
        headings = [column.heading for column in table.every_column]
        parts += [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{aligned}}}", r"\toprule"]
        parts += [_latex_line(headings), r"\midrule", *map(_latex_line, table.lines()), r"\bottomrule"]
        parts += [r"\end{tabular}", rf"\caption{{{caption.translate(LATEX)}}}", r"\end{table}", ""]
    return "\n".join(parts)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(LATEX) for cell in cells) + r" \\"


def records_of(columns: Columns, **same: object) -> Iterator[Record]:
    """The rows of columns of numbers; the fields that are the same for all come first."""
    for values in zip(*map(np.ndarray.tolist, map(np.asarray, columns.values())), strict=True):
        yield {**same, **dict(zip(columns, values, strict=True))}


def records_csv(records: Iterable[Record]) -> str:
    """Flat records with the same fields as CSV; None and NaN are empty."""
    rows = list(records)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value != value else value for key, value in row.items()} for row in rows)
    return text.getvalue()


def finite(record: Record) -> dict[str, Any]:
    """The record with None in place of NaN and infinity, as JSON has neither."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()
    }


STYLES: dict[Tone, str] = {"best": "bold green", "strong": "bold", "wrong": "red", "": ""}
"""tone -> how a terminal shows it"""


def terminal(table: Table) -> RichTable:
    """A table for a terminal, without its title; of numbers the intervals stand below."""
    two_lines = any(entry.interval for row in table.rows for entry in row.entries)
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=0 if two_lines else (0, 1), pad_edge=False)
    drawn.add_column(table.corner, min_width=12 if two_lines else None, overflow="fold")
    for column in table.columns:
        if column.number:
            drawn.add_column(column.heading, justify="right", no_wrap=True)
        else:
            drawn.add_column(column.heading, overflow="fold")
    for row in table.rows:
        label = Text(row.heading)
        if row.note and two_lines:
            label.append(f"\n{row.note}", style="dim")
        drawn.add_row(label, *(_on_terminal(entry, table.mark, two_lines) for entry in row.entries))
    return drawn


def _on_terminal(entry: Entry, mark: str, two_lines: bool) -> Text:
    spread = f" ±{entry.spread.removeprefix('0')}" if entry.spread else ""
    marked = mark if entry.tone == "best" else " " * len(mark)
    text = Text(f"{entry.text}{spread}{marked}", style=STYLES[entry.tone])
    return text.append(f"\n{entry.interval} ", style="not bold default dim") if two_lines else text
