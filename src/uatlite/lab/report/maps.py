"""Bars and maps: what each layer adds to a variance, attention between tokens, and the cells of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.explanation import ExplainedLayer, Explanation
from uatlite.lab.report.figures import INK, MUTED, SERIES, WRONG, RenderedFigure, percent, render
from uatlite.lab.report.tables import Record, number, records_of
from uatlite.passes import config
from uatlite.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPONENTS = dict(zip(config.COMPONENTS, ("embedding", "attention", "feed-forward", "head"), strict=True))
"""component -> its name for a reader"""
_COLOURS = dict(zip(COMPONENTS, (SERIES[4], SERIES[0], SERIES[1], SERIES[3]), strict=True))
_LOWER, _HIGHER = SERIES[0], WRONG
_LABELLED = 48
"""At most this many tokens are named on an axis; of a longer text, every second, third, … token is."""
_CELLS = 64
"""A map of at most this many tokens has a path for each cell; a larger one is an image inside the SVG."""
WIDTH, HEIGHT = 9.0, 4.1
"""Inches of three maps side by side."""
_PANELS = 3
"""Panels of bars side by side."""


@dataclass(frozen=True)
class LayerBars:
    """A bar for each layer: its share of the variance, split by component."""

    layers: tuple[ExplainedLayer, ...]

    def parts(self, layer: ExplainedLayer) -> dict[str, float]:
        """The share of each component of a layer; 0 where sampling made its contribution negative.

        The layer's share is divided in proportion to its components, because those of 'isolated' need not sum to it.
        """
        positive = {name: max(value, 0.0) for name, value in layer.components.items()}
        total = sum(positive.values()) or 1.0
        return {name: max(layer.share, 0.0) * value / total for name, value in positive.items()}

    @property
    def longest(self) -> float:
        """The largest share, but always above 0."""
        return max(*(layer.share for layer in self.layers), 1e-9)

    def records(self) -> Iterator[Record]:
        """One for each layer and one for each of its components."""
        names = ("layer", "component", "contribution", "standard_error", "share")
        for layer in self.layers:
            yield dict(zip(names, (layer.name, "all", layer.contribution, layer.error, layer.share), strict=True))
            for name, value in layer.components.items():
                error = (layer.component_errors or {}).get(name)
                yield dict(zip(names, (layer.name, name, value, error, None), strict=True))

    def figure(self) -> RenderedFigure:
        """A bar for each layer, the first on top."""
        alt = "A bar for each layer. " + ", ".join(f"{layer.name} {layer.share:.1%}" for layer in self.layers) + "."
        size = 4.6, 0.9 + 0.26 * len(self.layers)
        return render("layers", "Variance by layer", alt, self.records(), self.draw, size)

    def draw(self, axes: "Axes") -> None:
        """A bar for each layer, split by component, with its standard error."""
        heights = np.arange(len(self.layers))[::-1]
        named: set[str] = set()
        for height, layer in zip(heights, self.layers, strict=True):
            left = 0.0
            for name, length in self.parts(layer).items():
                label = "_" if name in named else COMPONENTS[name]
                axes.barh(height, length, 0.72, left=left, color=_COLOURS[name], label=label)
                named.add(name)
                left += length
            if layer.error is not None:
                error = layer.error * layer.share / layer.contribution if layer.contribution else 0.0
                axes.errorbar(layer.share, height, xerr=abs(error), color=INK, elinewidth=0.9, capsize=2)
        axes.set_yticks(heights, [layer.name for layer in self.layers])
        axes.set_xlabel("Share of the variance of the margin")
        axes.grid(axis="y", visible=False)
        # Above the bars, where none can run into it.
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8, handlelength=0.9, handleheight=0.9)
        percent(axes, "x")


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Mean attention with modulation, without it, and the difference: (query tokens, key tokens) each."""

    tokens: tuple[str, ...]
    which: str
    """the layer and head, in words"""
    modulated: Floats
    plain: Floats
    difference: Floats

    @classmethod
    def of(cls, explanation: Explanation, layer: int | None = None, head: int | None = None) -> "AttentionMaps | None":
        """The maps of one layer and head, counted from 1, or the mean over all; of a question, of the chosen option."""
        if explanation.token_attention is None:
            return None
        shift = explanation.token_attention.chosen(layer, head)
        names = tuple(token.text for token in explanation.chosen_tokens)
        maps = (values[0, 0].cpu().double().numpy() for values in (shift.modulated, shift.plain, shift.difference))
        layers = "all layers" if layer is None else f"layer {layer}"
        return cls(names, f"{layers}, {'mean over heads' if head is None else f'head {head}'}", *maps)

    def records(self) -> Iterator[Record]:
        """One for each pair of tokens."""
        query, key = (places.ravel() for places in np.indices(self.plain.shape))
        tokens = np.array(self.tokens)
        names = {"query": query, "query_token": tokens[query], "key": key, "key_token": tokens[key]}
        maps = {name: getattr(self, name).ravel() for name in ("modulated", "plain", "difference")}
        return records_of(names | maps)

    def figure(self, name: str, title: str) -> RenderedFigure:
        """With modulation, without, and the difference, side by side."""
        row, column = divmod(int(abs(self.difference).argmax()), len(self.tokens))
        alt = (
            f"Three maps of attention between {len(self.tokens)} tokens. The largest difference is "
            f"{self.difference[row, column]:+.4f}, from {self.tokens[row]} to {self.tokens[column]}."
        )
        return render(name, title, alt, self.records(), self.draw, (WIDTH, HEIGHT), ncols=3)

    def draw(self, axes: Any) -> None:
        """Three maps; the colours of the last are symmetric around 0."""
        ticks = np.arange(0, len(self.tokens), -(-len(self.tokens) // _LABELLED))
        names = [literal(self.tokens[tick]) for tick in ticks]
        size = 7.5 if len(names) <= 24 else 5.0
        maps = {"with modulation": self.modulated, "without": self.plain, "difference": self.difference}
        for ax, (title, values) in zip(axes, maps.items(), strict=True):
            signed, top = title == "difference", float(np.abs(values).max()) or 1.0
            low, image = -top if signed else 0.0, len(values) > _CELLS
            ax.pcolormesh(values, cmap=_colour_map(signed=signed), vmin=low, vmax=top, rasterized=image)
            # No colour bar: it would be an image, which cannot follow the colours of a dark page.
            ax.set_title(f"{title}, {f'±{top:.2g}' if signed else f'0 to {top:.2g}'}")
            ax.set_aspect("equal")
            ax.invert_yaxis()
            ax.grid(visible=False)
            ax.set_xticks(ticks + 0.5, names, rotation=90, fontsize=size)
            ax.set_yticks(ticks + 0.5, [], fontsize=size)
            ax.tick_params(length=0)
        axes[0].set_yticks(ticks + 0.5, names, fontsize=size)
        axes[0].set_ylabel("query token")
        axes[1].set_xlabel(f"key token · {self.which}")


def _colour_map(*, signed: bool) -> Any:
    """From transparent, so that the page shows through, to a full colour; to one of two for signed values."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    rising = [(0.0, to_rgba(_LOWER, 0.0)), (1.0, to_rgba(_LOWER, 1.0))]
    lower, higher = ([to_rgba(colour, 1.0), to_rgba(colour, 0.0)] for colour in (_LOWER, _HIGHER))
    diverging = list(zip((0.0, 0.5, 0.5, 1.0), [*lower, *higher[::-1]], strict=True))
    return LinearSegmentedColormap.from_list("attention", diverging if signed else rising)


def literal(text: str) -> str:
    """A text with its dollar signs escaped, so that matplotlib does not typeset it as mathematics."""
    return text.replace("$", r"\$")


def bars_figure(name: str, title: str, rows: Sequence[str], columns: Sequence[str], values: Floats) -> RenderedFigure:
    """A panel for each column: a bar with its interval for each row, and the paper's number where it has one.

    `values` are (columns, rows, 4): mean, low, high, paper; NaN where there is none.
    """
    heights, colours = np.arange(len(rows))[::-1], [SERIES[i % len(SERIES)] for i in range(len(rows))]

    def draw(axes: Any) -> None:
        panels = list(np.atleast_1d(axes).flat)
        for panel, heading, of_rows in zip(panels, columns, values, strict=False):
            mean, low, high, paper = of_rows.T
            panel.barh(heights, np.nan_to_num(mean), color=colours, height=0.62)
            shown = np.isfinite(low)
            panel.hlines(heights[shown], low[shown], high[shown], color=INK, linewidth=1.1)
            panel.plot(paper, heights, "D", color=MUTED, markersize=4.5, markerfacecolor="none")
            panel.set_title(heading)
            panel.grid(axis="y", visible=False)
            panel.set_yticks(heights, rows)
        for spare in panels[len(columns) :]:
            spare.set_visible(False)

    records: list[Record] = []
    for column, of_rows in zip(columns, values, strict=True):
        numbers = dict(zip(("mean", "low", "high", "paper"), of_rows.T, strict=True))
        records += records_of({"row": rows} | numbers, column=column)
    alt = "A bar with its interval for each row, a panel for each column; a diamond is the paper's number."
    lines, across = -(-len(columns) // _PANELS), min(_PANELS, len(columns))
    size = 3.2 * across, lines * (0.9 + 0.3 * len(rows))
    return render(name, title, alt, records, draw, size, nrows=lines, ncols=across, sharey=True)


def cells_figure(name: str, title: str, rows: Sequence[str], columns: Sequence[str], values: Floats) -> RenderedFigure:
    """A grid of numbers (rows, columns), shaded within each row from its smallest to its largest."""

    def draw(axes: "Axes") -> None:
        low, high = (end.reduce(values, axis=1, keepdims=True) for end in (np.fmin, np.fmax))
        shades = (values - low) / np.where(high > low, high - low, 1.0)  # of a row 0 for the smallest, 1 the largest
        # From pale to half the full colour: the numbers stay readable on it, on a light page and on a dark one.
        axes.pcolormesh(shades, cmap=_colour_map(signed=False), vmin=-0.15, vmax=2.0)
        for (i, j), value in np.ndenumerate(values):
            axes.text(j + 0.5, i + 0.5, number(value, 3), ha="center", va="center", color=INK)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.invert_yaxis()
        axes.grid(visible=False)

    of_rows = zip(rows, values, strict=True)
    records = [
        record for row, of_row in of_rows for record in records_of({"column": columns, "value": of_row}, row=row)
    ]
    size = 1.6 + 1.2 * len(columns), 0.7 + 0.34 * len(rows)
    return render(name, title, "Numbers shaded within each row.", records, draw, size)
