"""The numbers behind the figures of a reproduction, taken from its cells or kept arrays; nothing is computed here.

The figures of a reproduction, drawn from their displays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uatlite.lab.paper.grid import Grid
from uatlite.lab.paper.models import Workshop
from uatlite.lab.paper.probes import attention_maps
from uatlite.lab.paper.reproduction import Reproduction
from uatlite.lab.paper.texts import number
from uatlite.lab.report.figures import INK, MUTED, SERIES, Record, RenderedFigure, figure_of, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn


Floats = NDArray[np.float64]


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
        values = np.full((len(shown), len(rows), 4), np.nan)
        for place, column in enumerate(shown):
            for line, row in enumerate(rows):
                cell = grid.cells[row.key, column.key]
                if cell.measured is not None:
                    found = cell.measured.interval()
                    values[place, line, :3] = [
                        cell.measured.point,
                        np.nan if found is None else found.low,
                        np.nan if found is None else found.high,
                    ]
                if cell.paper is not None:
                    values[place, line, 3] = cell.paper
        return cls(tuple(row.heading for row in rows), tuple(column.heading for column in shown), values)

    def records(self) -> Iterator[Record]:
        for place, column in enumerate(self.columns):
            for line, row in enumerate(self.rows):
                mean, low, high, paper = self.values[place, line].tolist()
                yield {"column": column, "row": row, "mean": mean, "low": low, "high": high, "paper": paper}


@dataclass(frozen=True)
class Heat:
    """A grid of numbers, shaded within each row from its best to its worst cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """(rows, columns)"""
    shades: Floats
    """(rows, columns): 0 for the least of a row, 1 for the most"""

    @classmethod
    def of(cls, grid: Grid) -> "Heat":
        rows, columns = grid.panel.rows, grid.panel.columns
        cells = [[grid.cells[row.key, column.key].measured for column in columns] for row in rows]
        values = np.array([[np.nan if one is None else one.point for one in line] for line in cells])
        low = np.where(np.isnan(values), np.inf, values).min(axis=1, keepdims=True)
        high = np.where(np.isnan(values), -np.inf, values).max(axis=1, keepdims=True)
        shades = (values - low) / np.where(high > low, high - low, 1.0)
        return cls(tuple(row.heading for row in rows), tuple(one.heading for one in columns), values, shades)

    def records(self) -> Iterator[Record]:
        for line, row in enumerate(self.rows):
            for place, column in enumerate(self.columns):
                yield {"row": row, "column": column, "value": float(self.values[line, place])}


@dataclass(frozen=True)
class Maps:
    """Attention (tokens, tokens) without modulation, with it, and the difference."""

    tokens: tuple[str, ...]
    plain: Floats
    modulated: Floats
    change: Floats

    def records(self) -> Iterator[Record]:
        for line, query in enumerate(self.tokens):
            for place, key in enumerate(self.tokens):
                yield {
                    "query": query,
                    "key": key,
                    "plain": float(self.plain[line, place]),
                    "modulated": float(self.modulated[line, place]),
                    "change": float(self.change[line, place]),
                }


ACROSS = 3
"""Panels of bars side by side."""


def figures_of(reproduction: Reproduction, workshop: Workshop) -> list[RenderedFigure]:
    """The figure of a table that the paper shows as one; none where nothing of it could be had."""
    kind, name = reproduction.declaration.figure, reproduction.declaration.name
    if kind is None or reproduction.skipped:
        return []
    title = reproduction.declaration.title
    if kind == "bars":
        bars = Bars.of(reproduction.grids[0], reproduction.declaration.figure_of)
        alt = "A bar with its interval for each row, a panel for each column; a diamond is the paper's number."
        return [render(name, title, alt, bars, partial(draw_bars, bars))]
    if kind == "heatmap":
        heat = Heat.of(reproduction.grids[0])
        return [render(name, title, "Numbers shaded within each row.", heat, partial(draw_heat, heat))]
    maps = _maps(reproduction, workshop)
    alt = "Attention from each token to each, without modulation, with it, and the difference."
    return [render(name, title, alt, maps, partial(draw_maps, maps))]


def _maps(reproduction: Reproduction, workshop: Workshop) -> Maps:
    ask = next(ask for _, _, _, ask in reproduction.declaration.asks())
    arrays = attention_maps(ask, workshop.fits(ask)[0], workshop)
    tokens = tuple(str(token) for token in arrays["tokens"])
    return Maps(tokens, arrays["plain"], arrays["modulated"], arrays["modulated"] - arrays["plain"])


def draw_bars(display: Bars) -> "Drawn":
    """Bars from 0 with intervals; a diamond where the paper has a number."""
    lines = -(-len(display.columns) // ACROSS)
    across = min(ACROSS, len(display.columns))
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


def draw_heat(display: Heat) -> "Drawn":
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


def draw_maps(display: Maps) -> "Drawn":
    """Three maps; the last one's colours run from less to more attention around 0."""
    figure, axes = figure_of(11.0, 4.2, ncols=3, sharey=True)
    top = max(display.plain.max(), display.modulated.max())
    reach = float(np.abs(display.change).max()) or 1.0
    parts = (
        ("Without modulation", display.plain, "Blues", 0.0, top),
        ("With modulation", display.modulated, "Blues", 0.0, top),
        ("Difference", display.change, "RdBu_r", -reach, reach),
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
