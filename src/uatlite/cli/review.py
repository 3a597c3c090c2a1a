"""The command that follows predict: the rows that a person should see first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from uatlite.cli import options as shared
from uatlite.errors import DataError

OWN = ("id", "label", "confidence", "reason", "why")
"""Columns of a row to review besides those of the input."""
WIDTH = 300
"""Characters of a text on the terminal."""


def review(
    scored: Annotated[Path, Argument(help="File that 'uatlite predict' wrote, with the texts in it.")],
    rows: Annotated[int, Option("--rows", "-n", min=1, help="How many rows.")] = 20,
    output: Annotated[
        Path | None, Option("--output", "-o", help="JSONL, CSV or Parquet, by extension; by default they are printed.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Show the rows of a scored file that a person should see first, with text and reason."""
    from uatlite.scoring.review import review_rows, write_review

    if output is not None and output.exists() and not overwrite:
        raise DataError(f"{output} exists; give another name, or --overwrite to replace it.")
    chosen = review_rows(scored, rows)
    if output is None:
        Console().print(as_table(chosen))
        return
    write_review(chosen, output)
    shared.messages().print(f"Wrote {output}: {len(chosen):,} row{'' if len(chosen) == 1 else 's'}")


def as_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows for a terminal; what the input says comes last, shortened."""
    kept = [name for name in (rows[0] if rows else ()) if name not in OWN]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "label", "sure", "why"):
        table.add_column(name, no_wrap=name in ("id", "label", "sure"))
    for name in kept:
        table.add_column(name, ratio=1 if len(kept) == 1 else None, overflow="fold")
    for row in rows:
        cells = [row["id"], row["label"], f"{row['confidence']:.1%}", row["why"]]
        table.add_row(*(Text(_short(cell)) for cell in (*cells, *(row[name] for name in kept))))
    return table


def _short(value: object) -> str:
    line = " ".join(str("" if value is None else value).split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
