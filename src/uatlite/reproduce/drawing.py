"""The figures of a reproduction, drawn from their displays."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from uatlite.report.drawing import figure_of
from uatlite.report.figures import Figure, render
from uatlite.report.theme import INK, MUTED, SERIES
from uatlite.reproduce.displays import Bars, Heat, Maps
from uatlite.reproduce.measures.attention import attention_maps
from uatlite.reproduce.run import Reproduction
from uatlite.reproduce.texts import number
from uatlite.reproduce.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

ACROSS = 3
"""Panels of bars side by side."""


def figures_of(reproduction: Reproduction, workshop: Workshop) -> list[Figure]:
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
