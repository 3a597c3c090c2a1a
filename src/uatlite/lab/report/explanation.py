"""One explanation: its displays (bars of layers, maps of attention), its sentences, and both drawn by matplotlib.

The sentences are the same in a terminal, on a page and in an image.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.explanation import COMPONENT_NAMES, ExplainedLayer, Explanation
from uatlite.classifier.summary import Comparison, listed
from uatlite.lab.report.figures import INK, MUTED, SERIES, WRONG, Record, figure_of, percent
from uatlite.lab.report.words import COLD, HEAT, OPACITY, Shading
from uatlite.values import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


LABELS = dict(zip(COMPONENT_NAMES, ("embedding", "attention", "feed-forward", "head"), strict=True))
"""component -> its name for a reader"""
HOW = {
    "delta": "first order, from one forward and one backward pass",
    "isolated": "each layer alone drops units, {samples} passes each",
    "total-variance": "law of total variance, {samples} pairs of passes for each component",
}
COLOURS = dict(zip(LABELS, (SERIES[4], SERIES[0], SERIES[1], SERIES[3]), strict=True))
LOWER, HIGHER = SERIES[0], WRONG
LABELLED = 48
"""At most this many tokens are named on an axis; of a longer text, every second, third, … token is."""
DIFFERS = 0.1
"""By how much of the attributed variance the method's own may differ without a word."""
CELLS = 64
"""A map of at most this many tokens has a path for each cell; a larger one is an image inside the SVG."""
GAP = 2
"""Characters between words: room for the edges of their backgrounds."""
WIDTH, MAPS = 9.0, 4.1
"""Inches: the width of the sheet and the height of the maps."""
ADVANCE = 0.602 * 9 / 72 / WIDTH
"""The width of a character of the fixed-width font at 9 points, as a share of the sheet's width."""


@dataclass(frozen=True)
class LayerBars:
    """A bar for each layer: its share of the variance, split by component."""

    layers: tuple[ExplainedLayer, ...]

    def parts(self, layer: ExplainedLayer) -> dict[str, float]:
        """The share of each component of a layer; 0 where sampling made its contribution negative.

        The layer's share is divided in proportion to its components, because those of 'isolated' need not sum to it.
        """
        positive = {name: max(value, 0.0) for name, value in layer.components.items()}
        whole = sum(positive.values()) or 1.0
        return {name: max(layer.share, 0.0) * value / whole for name, value in positive.items()}

    @property
    def longest(self) -> float:
        """The largest share, but always above 0."""
        return max(*(layer.share for layer in self.layers), 1e-9)

    def records(self) -> Iterator[Record]:
        for layer in self.layers:
            errors = layer.component_errors or {}
            whole: Record = {"layer": layer.name, "component": "all", "contribution": layer.contribution}
            yield whole | {"standard_error": layer.error, "share": layer.share}
            for name, value in layer.components.items():
                part: Record = {"layer": layer.name, "component": name, "contribution": value}
                yield part | {"standard_error": errors.get(name), "share": None}


@dataclass(frozen=True, eq=False)
class Heatmaps:
    """Mean attention with modulation, without it, and the difference: (query tokens, key tokens) each."""

    tokens: tuple[str, ...]
    which: str
    """the layer and head, in words"""
    modulated: Floats
    plain: Floats
    difference: Floats

    @classmethod
    def of(cls, explanation: Explanation, layer: int | None = None, head: int | None = None) -> "Heatmaps | None":
        """The maps of one layer and head, counted from 1, or the mean over all; of a question, of the chosen option."""
        if explanation.token_attention is None:
            return None
        found = explanation.token_attention.chosen(layer, head)
        names = tuple(token.text for token in explanation.chosen_tokens)
        maps = (values[0, 0].double().cpu().numpy() for values in (found.modulated, found.plain, found.difference))
        return cls(names, _which(layer, head), *maps)

    @property
    def panels(self) -> dict[str, Floats]:
        """The three maps by title, in drawing order."""
        return {"with modulation": self.modulated, "without": self.plain, "difference": self.difference}

    def records(self) -> Iterator[Record]:
        for i, query in enumerate(self.tokens):
            for j, key in enumerate(self.tokens):
                place: Record = {"query": i, "query_token": query, "key": j, "key_token": key}
                values = {"modulated": self.modulated, "plain": self.plain, "difference": self.difference}
                yield place | {name: float(weights[i, j]) for name, weights in values.items()}


def _which(layer: int | None, head: int | None) -> str:
    layers = "all layers" if layer is None else f"layer {layer}"
    return f"{layers}, {'mean over heads' if head is None else f'head {head}'}"


def shading_of(explanation: Explanation, by: str) -> Shading:
    """How the words of an explanation are shaded: by their share, by masking or by their uncertainty."""
    return Shading(explanation.words, explanation.prediction.confidence, by)


def verdict(explanation: Explanation) -> str:
    """A title: 'negative, 83.5% sure, abstains'"""
    prediction = explanation.prediction
    said = f"{explanation.label}, {prediction.confidence:.1%} sure"
    if prediction.among.rule is None:
        return said
    return f"{said}, {'abstains' if prediction.abstain else 'answers'}"


def chances(explanation: Explanation) -> str:
    """The probability of each class, the likeliest first, and the threshold."""
    found = ", ".join(f"{name} {value:.1%}" for name, value in listed(explanation.prediction.probabilities))
    compared = Comparison.of(explanation.prediction)
    return f"Probabilities: {found}.{'' if compared is None else f' {threshold(compared)}'}"


def threshold(compared: Comparison) -> str:
    """What the rule compares: 'Threshold: logit margin above 1.134; here 0.402.'"""
    at = {np.inf: "nothing is answered", -np.inf: "everything is answered"}
    where = at.get(compared.threshold, f"answered above {compared.threshold:.4g}")
    return f"Threshold of the {compared.name}: {where}; here {compared.value:.4g}."


def sources(explanation: Explanation) -> str:
    """The variance that words and layers divide, and its estimator."""
    found, band = explanation.attribution, explanation.band
    total = float(found.total[0])
    error = "" if found.total_error is None else f" ± {float(found.total_error[0]):.3f}"
    how = HOW[found.estimator].format(samples=found.samples)
    said = f"Variance of the margin {total:.3f}{error}; {found.estimator}: {how}."
    if band is None or abs(band.spread**2 - total) <= DIFFERS * total:
        return said
    return f"{said} For the prediction the method {explanation.method} puts it at {band.spread**2:.3f}."


def masked(explanation: Explanation) -> str:
    """The effect of masking the word that matters most; empty where no word was masked."""
    before = explanation.prediction.confidence
    moved = [(word.masked_confidence, word) for word in explanation.words if word.masked_confidence is not None]
    if not moved:
        return ""
    after, most = max(moved, key=lambda one: abs(one[0] - before))
    return f"With “{most.word.text}” masked it would be {after:.1%} sure of {explanation.label}, not {before:.1%}."


def notes(explanation: Explanation) -> list[str]:
    """Warnings: text that was cut off, and a pass without dropout that predicts another class."""
    found = []
    if explanation.truncated_tokens:
        found.append(f"{explanation.truncated_tokens:,} tokens of the text were cut off and are not explained.")
    if explanation.quiet_label != explanation.label:
        found.append(f"The pass without dropout that is attributed says {explanation.quiet_label}: the two are close.")
    return found


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


def draw_sheet(explanation: Explanation, maps: Heatmaps | None, shading: Shading) -> "Figure":
    """Sentences, words, layers and maps on one sheet."""
    from matplotlib.figure import Figure

    bars = LayerBars(explanation.layers)
    written = _written(explanation, shading)
    heights = [written.height, 0.9 + 0.24 * len(bars.layers), *([MAPS] if maps else [])]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    _write(parts[0], written)
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
            cmap=_colour_map(signed=signed),
            vmin=-top if signed else 0.0,
            vmax=top,
            rasterized=len(values) > CELLS,
        )
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
    axes[1].set_xlabel(f"key token · {maps.which}")


def _colour_map(*, signed: bool) -> Any:
    """From transparent, so that the page shows through, to a full colour; to one of two for signed values."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    rising = [(0.0, to_rgba(LOWER, 0.0)), (1.0, to_rgba(LOWER, 1.0))]
    lower, higher = ([to_rgba(colour, 1.0), to_rgba(colour, 0.0)] for colour in (LOWER, HIGHER))
    diverging = list(zip((0.0, 0.5, 0.5, 1.0), [*lower, *higher[::-1]], strict=True))
    return LinearSegmentedColormap.from_list("attention", diverging if signed else rising)


@dataclass(frozen=True)
class Written:
    """The text of a sheet, in lines."""

    lead: list[str]
    words: list[list[tuple[str, int]]]
    """the words and their shades"""
    small: list[str]

    @property
    def height(self) -> float:
        """Inches."""
        return 0.35 + 0.22 * len(self.lead) + 0.28 * len(self.words) + 0.16 * len(self.small)


def _written(explanation: Explanation, shading: Shading) -> Written:
    summary = explanation.summary
    lead = [*wrap(summary.says, 95), *wrap(f"{summary.decision} {summary.doubt}", 112)]
    said = [shading.caption(explanation.label), masked(explanation), chances(explanation)]
    below = " ".join(one for one in [*said, sources(explanation), *notes(explanation)] if one)
    return Written(lead, _lines(explanation, shading), wrap(below, 130))


def _lines(explanation: Explanation, shading: Shading, width: int = 110) -> list[list[tuple[str, int]]]:
    """The words and their shades, in lines of at most `width` characters."""
    lines: list[list[tuple[str, int]]] = []
    for run in explanation.segments:
        lines.append([])
        used = 0
        for word in run:
            text = word.word.text
            if used and used + len(text) > width:
                lines.append([])
                used = 0
            lines[-1].append((text, shading.shade(word)))
            used += len(text) + GAP
    return lines


def _write(figure: "SubFigure", written: Written) -> None:
    """The first sentence in bold, the others, the shaded words, and the small print below them."""
    from matplotlib.colors import to_hex

    unit = 1 / written.height
    y = 1 - 0.2 * unit
    for place, line in enumerate(written.lead):
        weight: Any = {"fontsize": 10} if place else {"fontsize": 12, "fontweight": "bold"}
        figure.text(0.02, y, _plain(line), va="center", **weight)
        y -= 0.22 * unit
    y -= 0.06 * unit
    for words in written.words:
        x = 0.02
        for text, shade in words:
            red, green, blue = (channel / 255 for channel in (COLD if shade < 0 else HEAT))
            background = to_hex((red, green, blue, OPACITY[abs(shade)]), keep_alpha=True)
            box = {"facecolor": background, "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            figure.text(x, y, _plain(text), family="monospace", fontsize=9, va="center", bbox=box)
            x += ADVANCE * (len(text) + GAP)
        y -= 0.28 * unit
    figure.text(0.02, y + 0.1 * unit, _plain("\n".join(written.small)), fontsize=8, color=MUTED, va="top")


def _plain(text: str) -> str:
    """A text with its dollar signs escaped, so that matplotlib does not typeset it as mathematics."""
    return text.replace("$", r"\$")
