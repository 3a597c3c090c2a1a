"""The figures of a reproduction: the numbers that each shows, and how they are drawn. Nothing is computed here."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from uatlite.lab.evaluate.cells import Cell, Grid
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.paper.probes import ATTENTION, attention_maps, source_of
from uatlite.lab.paper.reproduction import Reproduction
from uatlite.lab.report.figures import INK, MUTED, SERIES, Record, RenderedFigure, figure_of, render
from uatlite.lab.report.tables import number
from uatlite.values import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = 3
"""Panels of bars side by side."""


@dataclass(frozen=True)
class Bars:
    """One panel for each column: a bar with its interval for each row, and the paper's number where it has one."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(columns, rows, 4): mean, low, high, paper; NaN where there is none"""

    @classmethod
    def of(cls, grid: Grid, columns: tuple[str, ...]) -> "Bars":
        shown = [column for column in grid.panel.columns if not columns or column.key in columns]
        rows = [row for row in grid.panel.rows if row.derive is None]
        cells = [[grid.cells[row.key, column.key] for row in rows] for column in shown]
        values = np.array([[_numbers(cell) for cell in line] for line in cells], dtype=np.float64)
        return cls(tuple(row.heading for row in rows), tuple(column.heading for column in shown), values)

    def records(self) -> Iterator[Record]:
        for place, column in enumerate(self.columns):
            for line, row in enumerate(self.rows):
                mean, low, high, paper = self.values[place, line].tolist()
                yield {"column": column, "row": row, "mean": mean, "low": low, "high": high, "paper": paper}


def _numbers(cell: Cell) -> list[object]:
    """mean, low, high, paper; None where there is none"""
    found = cell.interval
    return [cell.measurement and cell.measurement.mean, found and found.low, found and found.high, cell.paper]


@dataclass(frozen=True)
class Heatmap:
    """A grid of numbers, shaded within each row from its smallest to its largest."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(rows, columns)"""
    shades: Floats
    """(rows, columns): 0 for the smallest of a row, 1 for the largest"""

    @classmethod
    def of(cls, grid: Grid) -> "Heatmap":
        rows, columns = grid.panel.rows, grid.panel.columns
        cells = [[grid.cells[row.key, column.key].measurement for column in columns] for row in rows]
        values = np.array([[np.nan if one is None else one.mean for one in line] for line in cells])
        low = np.where(np.isnan(values), np.inf, values).min(axis=1, keepdims=True)
        high = np.where(np.isnan(values), -np.inf, values).max(axis=1, keepdims=True)
        shades = (values - low) / np.where(high > low, high - low, 1.0)
        return cls(tuple(row.heading for row in rows), tuple(one.heading for one in columns), values, shades)

    def records(self) -> Iterator[Record]:
        for line, row in enumerate(self.rows):
            for place, column in enumerate(self.columns):
                yield {"row": row, "column": column, "value": float(self.values[line, place])}


@dataclass(frozen=True)
class AttentionMaps:
    """Attention (tokens, tokens) without modulation, with it, and the difference."""

    tokens: tuple[str, ...]
    maps: dict[str, Floats]
    """'plain', 'modulated' and 'change'"""

    def records(self) -> Iterator[Record]:
        for line, query in enumerate(self.tokens):
            for place, key in enumerate(self.tokens):
                numbers = {name: float(values[line, place]) for name, values in self.maps.items()}
                yield {"query": query, "key": key, **numbers}


def figures_of(reproduction: Reproduction, runs: Runs) -> list[RenderedFigure]:
    """The figure of a table that the paper shows as one, of its fullest panel; empty where nothing was measured."""
    declaration = reproduction.declaration
    if declaration.figure is None or reproduction.skipped:
        return []
    grid = max(reproduction.grids, key=lambda grid: grid.filled)  # the first of the fullest
    title = f": {grid.panel.title}" if grid is not reproduction.grids[0] else ""
    figure = partial(render, declaration.name, f"{declaration.title}{title}")
    if declaration.figure == "bars":
        bars = Bars.of(grid, declaration.figure_of)
        alt = "A bar with its interval for each row, a panel for each column; a diamond is the paper's number."
        return [figure(alt, bars, partial(draw_bars, bars))]
    if declaration.figure == "heatmap":
        heat = Heatmap.of(grid)
        return [figure("Numbers shaded within each row.", heat, partial(draw_heat, heat))]
    spec = next(declaration.specs())
    arrays = attention_maps(spec, source_of(runs).fine_tunings(spec)[0], runs)
    weights = {name.removeprefix("attention-"): weights_of(arrays) for name, weights_of in ATTENTION.items()}
    maps = AttentionMaps(tuple(map(str, arrays["tokens"])), weights)
    alt = "Attention from each token to each, without modulation, with it, and the difference."
    return [figure(alt, maps, partial(draw_maps, maps))]


def draw_bars(display: Bars) -> "Figure":
    """Bars from 0 with intervals; a diamond where the paper has a number."""
    lines = -(-len(display.columns) // PANELS)
    across = min(PANELS, len(display.columns))
    figure, axes = figure_of(
        3.2 * across, lines * (0.9 + 0.3 * len(display.rows)), nrows=lines, ncols=across, sharey=True
    )
    places = np.arange(len(display.rows))[::-1]
    colours = [SERIES[line % len(SERIES)] for line in range(len(display.rows))]
    flat = list(np.atleast_1d(axes).flat)
    for one, heading, values in zip(flat, display.columns, display.values, strict=False):
        mean, low, high, paper = values.T
        one.barh(places, np.nan_to_num(mean), color=colours, height=0.62)
        shown = np.isfinite(low)
        one.hlines(places[shown], low[shown], high[shown], color=INK, linewidth=1.1)
        one.plot(paper, places, "D", color=MUTED, markersize=4.5, markerfacecolor="none")
        one.set_title(heading)
        one.grid(axis="y", visible=False)
        one.set_yticks(places, display.rows)
    for spare in flat[len(display.columns) :]:
        spare.set_visible(False)
    return figure


def draw_heat(display: Heatmap) -> "Figure":
    """Each number in its cell, darker the higher it is within its row."""
    figure, axes = figure_of(1.6 + 1.2 * len(display.columns), 0.7 + 0.34 * len(display.rows))
    axes.imshow(display.shades, cmap="Blues", vmin=-0.4, vmax=1.8, aspect="auto")
    for line, values in enumerate(display.values):
        for place, value in enumerate(values):
            axes.text(place, line, number(value, 3), ha="center", va="center", color=INK)
    axes.set_xticks(range(len(display.columns)), display.columns)
    axes.set_yticks(range(len(display.rows)), display.rows)
    axes.grid(visible=False)
    return figure


def draw_maps(display: AttentionMaps) -> "Figure":
    """Three maps; the colours of the last are symmetric around 0."""
    figure, axes = figure_of(11.0, 4.2, ncols=3, sharey=True)
    maps = display.maps
    top = max(maps["plain"].max(), maps["modulated"].max())
    reach = float(np.abs(maps["change"]).max()) or 1.0
    parts = (
        ("Without modulation", maps["plain"], "Blues", 0.0, top),
        ("With modulation", maps["modulated"], "Blues", 0.0, top),
        ("Difference", maps["change"], "RdBu_r", -reach, reach),
    )
    for one, (title, values, colours, low, high) in zip(axes, parts, strict=True):
        image = one.imshow(values, cmap=colours, vmin=low, vmax=high)
        figure.colorbar(image, ax=one, shrink=0.75)
        one.set_title(title)
        one.grid(visible=False)
        one.set_xticks(range(len(display.tokens)), display.tokens, rotation=90)
        one.set_xlabel("key")
    axes[0].set_yticks(range(len(display.tokens)), display.tokens)
    axes[0].set_ylabel("query")
    return figure
