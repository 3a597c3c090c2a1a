"""An explanation drawn by matplotlib: the layers' bars, the three maps, and all of it on one sheet."""

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier import Explanation
from uatlite.report.drawing import figure_of, percent
from uatlite.report.explained.displays import LABELS, Heatmaps, LayerBars
from uatlite.report.explained.wording import masked, notes, sources, verdict
from uatlite.report.shading import HEAT, OPACITY, shade
from uatlite.report.theme import INK, MUTED, SERIES, WRONG

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLOURS = dict(zip(LABELS, (SERIES[4], SERIES[0], SERIES[1], SERIES[3]), strict=True))
LOWER, HIGHER = SERIES[0], WRONG
LABELLED = 48
"""Maps of more tokens name every second, third, ... of them."""
CELLS = 64
"""Maps of more tokens are pixels inside the SVG: a path for each cell would make it too large."""
GAP = 2
"""Between words, in characters: room for the edges of their grounds."""
WIDTH, MAPS = 9.0, 4.1
"""Inches: of everything, and the height of the maps."""
ADVANCE = 0.602 * 9 / 72 / WIDTH
"""The width of a character of the fixed-width font at 9 points, as a share of the sheet."""


def draw_layers(bars: LayerBars) -> "Figure":
    """A bar for each layer, the first on top."""
    figure, axes = figure_of(4.6, 0.9 + 0.26 * len(bars.layers))
    _bars(axes, bars)
    return figure


def draw_heatmaps(maps: Heatmaps) -> "Figure":
    """With modulation, without, and the difference, side by side."""
    figure, axes = figure_of(WIDTH, MAPS, ncols=3)
    _maps(axes, maps)
    return figure


def draw_sheet(explanation: Explanation, maps: Heatmaps | None) -> "Figure":
    """Words, layers and maps on one sheet."""
    from matplotlib.figure import Figure

    bars = LayerBars.of(explanation)
    lines = _lines(explanation)
    heights = [0.9 + 0.3 * len(lines), 0.9 + 0.24 * len(bars.layers), *([MAPS] if maps else [])]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    _written(parts[0], explanation, lines, heights[0])
    _bars(parts[1].subplots(), bars)
    if maps is not None:
        _maps(parts[2].subplots(ncols=3), maps)
    return figure


def _bars(axes: "Axes", bars: LayerBars) -> None:
    places = np.arange(len(bars.layers))[::-1]
    named: set[str] = set()
    for place, layer in zip(places, bars.layers, strict=True):
        left = 0.0
        for name, length in bars.parts(layer).items():
            label = "_" if name in named else LABELS[name]
            axes.barh(place, length, 0.72, left=left, color=COLOURS[name], label=label)
            named.add(name)
            left += length
        if layer.error is not None:
            error = layer.error * layer.share / layer.contribution if layer.contribution else 0.0
            axes.errorbar(layer.share, place, xerr=abs(error), color=INK, elinewidth=0.9, capsize=2)
    axes.set_yticks(places, [layer.name for layer in bars.layers])
    axes.set_xlabel("Share of the variance of the margin")
    axes.grid(axis="y", visible=False)
    # Above the bars, where none can run into it.
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8, handlelength=0.9, handleheight=0.9)
    percent(axes, "x")


def _maps(axes: Any, maps: Heatmaps) -> None:
    step = -(-len(maps.tokens) // LABELLED)
    ticks = np.arange(0, len(maps.tokens), step)
    names = [_plain(maps.tokens[tick]) for tick in ticks]
    size = 7.5 if len(names) <= 24 else 5.0
    for ax, (title, values) in zip(axes, maps.panels.items(), strict=True):
        signed = title == "difference"
        top = float(np.abs(values).max()) or 1.0
        ax.pcolormesh(
            values,
            cmap=_diverging() if signed else _rising(),
            vmin=-top if signed else 0.0,
            vmax=top,
            rasterized=len(values) > CELLS,
        )
        # No colour bar: its ramp would be a picture, which cannot follow a dark ground.
        ax.set_title(f"{title}, {f'±{top:.2g}' if signed else f'0 to {top:.2g}'}")
        ax.set_aspect("equal")
        ax.invert_yaxis()
        ax.grid(visible=False)
        ax.set_xticks(ticks + 0.5, names, rotation=90, fontsize=size)
        ax.set_yticks(ticks + 0.5, [], fontsize=size)
        ax.tick_params(length=0)
    axes[0].set_yticks(ticks + 0.5, names, fontsize=size)
    axes[0].set_ylabel("query token")
    axes[1].set_xlabel(f"key token · {maps.which}")


def _rising() -> Any:
    """From nothing to a full colour: on any ground the page's own shines through."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    return LinearSegmentedColormap.from_list("rising", [to_rgba(LOWER, 0.0), to_rgba(LOWER, 1.0)])


def _diverging() -> Any:
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    ends = [to_rgba(LOWER, 1.0), to_rgba(LOWER, 0.0), to_rgba(HIGHER, 0.0), to_rgba(HIGHER, 1.0)]
    return LinearSegmentedColormap.from_list("diverging", list(zip((0.0, 0.5, 0.5, 1.0), ends, strict=True)))


def _lines(explanation: Explanation, width: int = 110) -> list[list[tuple[str, int]]]:
    """The words and their shades, broken to lines."""
    lines: list[list[tuple[str, int]]] = []
    for run in explanation.segments:
        lines.append([])
        used = 0
        for word in run:
            text = _plain(word.word.text)
            if used and used + len(text) > width:
                lines.append([])
                used = 0
            lines[-1].append((text, shade(word, explanation.words)))
            used += len(text) + GAP
    return lines


def _written(figure: "SubFigure", explanation: Explanation, lines: list[list[tuple[str, int]]], height: float) -> None:
    """Verdict, coloured words and what is said of them."""
    from matplotlib.colors import to_hex

    unit = 1 / height
    top = 1 - 0.22 * unit
    figure.text(0.02, top, _plain(verdict(explanation)), fontsize=12, fontweight="bold", va="center")
    red, green, blue = (channel / 255 for channel in HEAT)
    for row, line in enumerate(lines):
        x = 0.02
        for text, dark in line:
            ground = to_hex((red, green, blue, OPACITY[dark]), keep_alpha=True)
            box = {"facecolor": ground, "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            figure.text(
                x, top - (0.33 + 0.28 * row) * unit, text, family="monospace", fontsize=9, va="center", bbox=box
            )
            x += ADVANCE * (len(text) + GAP)
    said = " ".join([masked(explanation), sources(explanation), *notes(explanation)])
    below = top - (0.33 + 0.28 * len(lines)) * unit
    figure.text(0.02, below, "\n".join(wrap(_plain(said), 120)), fontsize=8, color=MUTED, va="top")


def _plain(text: str) -> str:
    """A text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")
