"""A whole reproduction, written to a directory: each table as soon as it is filled, then all of them on one page.

DIR/tables/NAME.md .tex .csv .json    each table
    figures/NAME.svg .png .csv        each figure, and its numbers
    report.html  report.md            everything on one page
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, product
from pathlib import Path
from typing import get_args

import numpy as np

from uatlite.lab.evaluate.cells import Cell, Grid, Line
from uatlite.lab.evaluate.comparison import Relation
from uatlite.lab.evaluate.runs import Remote, Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.claims import Findings, Reproduction
from uatlite.lab.paper.probes import ATTENTION, attention_maps, models_of
from uatlite.lab.paper.reproduction import Reproducer, ReproductionProgress
from uatlite.lab.paper.source import FineTunedModels, ReproductionSettings
from uatlite.lab.report.figures import RenderedFigure, filled
from uatlite.lab.report.maps import AttentionMaps, bars_figure, cells_figure
from uatlite.lab.report.tables import (
    Column,
    Entry,
    Record,
    Row,
    Table,
    finite,
    interval,
    latex,
    number,
    records_csv,
    signed,
    table_markdown,
)
from uatlite.text.write import make_directory, write_text
from uatlite.values import Floats

_TITLE, PAGE = "The paper, table by table", "report.html"


def reproducer(
    directory: Path, settings: ReproductionSettings, progress: ReproductionProgress, remote: Remote | None = None
) -> Reproducer:
    """What fills tables from the models and the store in a directory, where there are some."""
    return Reproducer(Runs(FineTunedModels(directory, settings), Store(directory / "store"), remote), progress, remote)


def write_reproduction(
    names: Sequence[str],
    directory: Path,
    settings: ReproductionSettings,
    progress: ReproductionProgress,
    remote: Remote | None = None,
) -> list[Reproduction]:
    """Reproduce tables and write everything. `remote` may compute predictions on other machines."""
    filling = reproducer(directory, settings, progress, remote)
    runs = filling.runs
    done: list[tuple[Reproduction, Sequence[RenderedFigure]]] = []
    for table in filling.tables(names):
        for name in ("tables", "figures"):
            make_directory(directory / name)
        done.append((table, figures_of(table, runs)))
        for ending, text_of in _FORMATS.items():
            write_text(directory / "tables" / f"{table.declaration.name}.{ending}", text_of(table))
        for figure in done[-1][1]:
            figure.write(directory / "figures")
    tables = [table for table, _ in done]
    findings = Findings(tables)
    trained = settings.describe({model.task for model in findings.models})
    texts = [f"# {_TITLE}", findings_markdown(findings), "\n".join(trained)]
    texts += [_as_markdown(table).rstrip("\n") for table in tables]
    write_text(directory / "report.md", "\n\n".join(texts) + "\n")
    html = filled(
        "paper.html.j2",
        title=_TITLE,
        settings=trained,
        findings=findings,
        models=_models(findings),
        claims=_claims(findings),
        ours=_ours(findings),
        tables=[(table, list(map(_table, table.shown)), figures, list(_told(table))) for table, figures in done],
    )
    write_text(directory / PAGE, html)
    return tables


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _table(grid: Grid) -> Table:
    """A panel: its numbers with intervals over rows and seeds, and the paper's beside them."""
    panel, rows = grid.panel, []
    for row in panel.rows:
        entries = tuple(_entry(grid.cells[row.key, column.key]) for column in panel.columns)
        rows.append(Row(row.heading, entries, note="ours" if row.ours else ""))
    columns = tuple(Column(column.heading, note="ours" if column.ours else "") for column in panel.columns)
    return Table(panel.title, columns, tuple(rows), beside=panel.beside)


def _entry(cell: Cell) -> Entry:
    measurement, reach, decimals = cell.measurement, cell.interval, cell.decimals
    beside = "" if cell.paper is None else _printed(cell.paper, decimals)
    if measurement is None or math.isnan(measurement.mean):
        return Entry(beside=beside)
    return Entry(
        text=number(measurement.mean, decimals),
        spread="" if measurement.deviation is None else number(measurement.deviation, decimals),
        interval="" if reach is None or math.isnan(reach.low) else interval(reach.low, reach.high, decimals),
        beside=beside,
        difference=signed(cell.difference, decimals),
    )


def _printed(value: float, decimals: int) -> str:
    """The paper's number with the digits that it has there, usually three or four decimals."""
    return f"{value:.0f}" if decimals == 0 else f"{value:.4f}".rstrip("0").replace("-", "−").rstrip(".")


def _told(table: Reproduction) -> Iterator[str]:
    """What became of the claims, and the notes."""
    for says, verdicts in groupby(table.answered, key=lambda verdict: verdict.says):
        group = list(verdicts)
        yield f"{'The paper' if group[0].claimed_by_the_paper else 'We ask'}: {says}"
        yield _bullets(verdict.sentence for verdict in group)
    if table.summary:
        yield table.summary
    if notes := [*(f"missing: {reason}" for reason in table.reasons), *table.notes]:
        yield _bullets(notes)


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _as_markdown(table: Reproduction) -> str:
    """A section with the tables, the verdicts and the notes."""
    declaration = table.declaration
    blocks = [f"## {declaration.name}: {declaration.title}", f"{declaration.where}."]
    blocks += [block for grid in table.shown for block in table_markdown(_table(grid))]
    blocks[-1] += "\n"
    return "\n\n".join([*blocks, *_told(table)]) + "\n"


def _numbers(cell: Cell) -> Record:
    """The numbers of a cell; None where there is none."""
    measurement, reach = cell.measurement, cell.interval
    return {
        "mean": measurement and measurement.mean,
        "deviation": measurement and measurement.deviation,
        "low": reach and reach.low,
        "high": reach and reach.high,
        "seeds": 0 if measurement is None else len(measurement.values),
        "rows": 0 if measurement is None else measurement.rows,
        "paper": cell.paper,
        "difference": cell.difference,
    }


def _records(table: Reproduction) -> Iterator[Record]:
    """One flat record for each cell; undefined numbers are None."""
    for grid in table.grids:
        for row, column in product(grid.panel.rows, grid.panel.columns):
            cell = grid.cells[row.key, column.key]
            keys = {"table": table.declaration.name, "panel": grid.panel.key, "row": row.key, "column": column.key}
            yield finite({**keys, **_numbers(cell), "reason": cell.reason})


def _as_json(table: Reproduction) -> str:
    """Cells, verdicts and notes; undefined numbers are null."""
    values = {
        "name": table.declaration.name,
        "title": table.declaration.title,
        "where": table.declaration.where,
        "cells": list(_records(table)),
        "verdicts": [finite(asdict(verdict)) for verdict in table.verdicts],
        "missing": table.reasons,
        "notes": list(table.notes),
    }
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


_FORMATS: dict[str, Callable[[Reproduction], str]] = {
    "md": _as_markdown,
    "tex": lambda table: latex(map(_table, table.shown), table.declaration.title),
    "csv": lambda table: records_csv(_records(table)),
    "json": _as_json,
}
"""ending of a file -> a table as its text"""


# ── figures ────────────────────────────────────────────────────────────────────────────────────────────────────────


def figures_of(table: Reproduction, runs: Runs) -> list[RenderedFigure]:
    """The figure of a table that the paper shows as one, of its fullest panel; empty where nothing was measured."""
    declaration = table.declaration
    if declaration.figure is None or table.skipped:
        return []
    grid = max(table.grids, key=lambda grid: grid.filled)  # the first of the fullest
    panel = f": {grid.panel.title}" if grid is not table.grids[0] else ""
    name, title = declaration.name, f"{declaration.title}{panel}"
    rows, columns = grid.panel.rows, grid.panel.columns
    if declaration.figure == "bars":
        rows = tuple(row for row in rows if row.derive is None)
        columns = tuple(column for column in columns if column.key in declaration.figure_of) or columns
        values = _values(grid, rows, columns, ("mean", "low", "high", "paper")).swapaxes(0, 1)
        return [bars_figure(name, title, _headings(rows), _headings(columns), values)]
    if declaration.figure == "heatmap":
        values = _values(grid, rows, columns, ("mean",))[..., 0]
        return [cells_figure(name, title, _headings(rows), _headings(columns), values)]
    spec = next(declaration.specs())
    arrays = attention_maps(spec, models_of(spec, runs)[0], runs)
    plain, modulated, change = (weights_of(arrays) for weights_of in ATTENTION.values())
    maps = AttentionMaps(tuple(map(str, arrays["tokens"])), "mean over layers and heads", modulated, plain, change)
    return [maps.figure(name, title)]


def _headings(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(line.heading for line in lines)


def _values(grid: Grid, rows: Sequence[Line], columns: Sequence[Line], names: Sequence[str]) -> Floats:
    """(rows, columns, names): these numbers of each cell, NaN where there is none."""
    cells = [[_numbers(grid.cells[row.key, column.key]) for column in columns] for row in rows]
    return np.array([[[cell[name] for name in names] for cell in line] for line in cells], dtype=np.float64)


# ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────────


def findings_markdown(findings: Findings) -> str:
    """What stands at the head of the page: what held, on which models, and what our own methods do."""
    blocks = ["## What was found", findings.headline, *table_markdown(_models(findings))]
    for heading, text in _claims(findings).items():
        blocks += [f"### {heading}", text]
    if findings.ours:
        blocks += ["### Our own methods on the same cells", *table_markdown(_ours(findings)), findings.told]
    return "\n\n".join(filter(None, blocks))


def _models(findings: Findings) -> Table:
    rows = []
    for model in findings.models:
        numbers = (f"{model.accuracy:.3f}", f"{model.chance:.3f}", f"{model.rows:,}", f"{model.seeds}")
        learned = Entry("learned") if model.learned else Entry("not learned", tone="wrong")
        rows.append(Row(model.task, (Entry(Path(model.backbone).name), *map(Entry, numbers), learned)))
    columns = (Column("backbone", number=False), *map(Column, ("accuracy", "one answer for all", "rows", "seeds")))
    caption = "A task is learned where the plain model is five points above one answer for all"
    return Table("", (*columns, Column("", number=False)), tuple(rows), corner="task", caption=caption)


def _claims(findings: Findings) -> dict[str, str]:
    """Heading with its number of comparisons -> these, as Markdown."""
    texts = {}
    for heading, verdicts in findings.claims.items():
        lines: list[str] = []
        for (name, says), group in groupby(verdicts, key=lambda named: (named[0], named[1].says)):
            lines += [f"- **{name}**: {says}", *(f"  - {verdict.sentence}" for _, verdict in group)]
        if lines:
            texts[f"{heading}: {len(verdicts)}"] = "\n".join(lines)
    return texts


def _ours(findings: Findings) -> Table:
    counts, outcomes = Counter((each.method, each.rival, each.outcome) for each in findings.ours), get_args(Relation)
    rows = (
        Row(method, (Entry(rival), *(Entry(f"{counts[method, rival, outcome]}") for outcome in outcomes)))
        for method, rival in sorted({(each.method, each.rival) for each in findings.ours})
    )
    columns = (Column("against", number=False), *map(Column, outcomes))
    caption = "How often a method is better or worse beyond chance, in cells whose column has a better direction"
    return Table("", columns, tuple(rows), corner="method", caption=caption)
