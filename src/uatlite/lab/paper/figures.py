"""The figures of a reproduction, from filled tables. Nothing is computed or drawn here."""

import numpy as np

from uatlite.lab.evaluate.cells import Cell, Grid
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.paper.claims import Reproduction
from uatlite.lab.paper.probes import ATTENTION, attention_maps, source_of
from uatlite.lab.report.figures import RenderedFigure
from uatlite.lab.report.maps import AttentionMaps, Bars, ShadedCells, attention_figure, bars_figure, cells_figure


def figures_of(reproduction: Reproduction, runs: Runs) -> list[RenderedFigure]:
    """The figure of a table that the paper shows as one, of its fullest panel; empty where nothing was measured."""
    declaration = reproduction.declaration
    if declaration.figure is None or reproduction.skipped:
        return []
    grid = max(reproduction.grids, key=lambda grid: grid.filled)  # the first of the fullest
    panel = f": {grid.panel.title}" if grid is not reproduction.grids[0] else ""
    name, title = declaration.name, f"{declaration.title}{panel}"
    if declaration.figure == "bars":
        return [bars_figure(name, title, _bars(grid, declaration.figure_of))]
    if declaration.figure == "heatmap":
        return [cells_figure(name, title, _shaded(grid))]
    spec = next(declaration.specs())
    arrays = attention_maps(spec, source_of(runs).fine_tunings(spec)[0], runs)
    plain, modulated, change = (weights_of(arrays) for weights_of in ATTENTION.values())
    maps = AttentionMaps(tuple(map(str, arrays["tokens"])), "mean over layers and heads", modulated, plain, change)
    return [attention_figure(name, title, maps)]


def _bars(grid: Grid, columns: tuple[str, ...]) -> Bars:
    shown = [column for column in grid.panel.columns if not columns or column.key in columns]
    rows = [row for row in grid.panel.rows if row.derive is None]
    values = [[_numbers(grid.cells[row.key, column.key]) for row in rows] for column in shown]
    headings = tuple(row.heading for row in rows), tuple(column.heading for column in shown)
    return Bars(*headings, np.array(values, dtype=np.float64))


def _numbers(cell: Cell) -> list[object]:
    """mean, low, high, paper; None where there is none"""
    measurement, reach = cell.measurement, cell.interval
    return [measurement and measurement.mean, reach and reach.low, reach and reach.high, cell.paper]


def _shaded(grid: Grid) -> ShadedCells:
    rows, columns = grid.panel.rows, grid.panel.columns
    cells = [[grid.cells[row.key, column.key].measurement for column in columns] for row in rows]
    values = np.array([[np.nan if cell is None else cell.mean for cell in line] for line in cells])
    return ShadedCells(tuple(row.heading for row in rows), tuple(column.heading for column in columns), values)
