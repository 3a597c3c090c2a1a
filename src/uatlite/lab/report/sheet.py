"""An explanation as an image: sentences, shaded words, layers and maps on one sheet."""

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from uatlite.classifier.explanation import Explanation
from uatlite.lab.report.explanation import COLD, HEAT, OPACITY, Shading, chances, masked, notes, sources
from uatlite.lab.report.figures import MUTED
from uatlite.lab.report.maps import HEIGHT, WIDTH, AttentionMaps, LayerBars, literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

GAP = 2
"""Characters between words: room for the edges of their backgrounds."""
ADVANCE = 0.602 * 9 / 72 / WIDTH
"""The width of a character of the fixed-width font at 9 points, as a share of the sheet's width."""


def draw_sheet(explanation: Explanation, maps: AttentionMaps | None, shading: Shading) -> "Figure":
    """Sentences, words, layers and maps on one sheet."""
    from matplotlib.figure import Figure

    bars = LayerBars(explanation.layers)
    written = _written(explanation, shading)
    heights = [written.height, 0.9 + 0.24 * len(bars.layers), *([HEIGHT] if maps else [])]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    _write(parts[0], written)
    bars.draw_on(parts[1].subplots())
    if maps is not None:
        maps.draw_on(parts[2].subplots(ncols=3))
    return figure


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
    below = " ".join(sentence for sentence in [*said, sources(explanation), *notes(explanation)] if sentence)
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
    for i, line in enumerate(written.lead):
        weight: Any = {"fontsize": 10} if i else {"fontsize": 12, "fontweight": "bold"}
        figure.text(0.02, y, literal(line), va="center", **weight)
        y -= 0.22 * unit
    y -= 0.06 * unit
    for words in written.words:
        x = 0.02
        for text, shade in words:
            red, green, blue = (channel / 255 for channel in (COLD if shade < 0 else HEAT))
            background = to_hex((red, green, blue, OPACITY[abs(shade)]), keep_alpha=True)
            box = {"facecolor": background, "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            figure.text(x, y, literal(text), family="monospace", fontsize=9, va="center", bbox=box)
            x += ADVANCE * (len(text) + GAP)
        y -= 0.28 * unit
    figure.text(0.02, y + 0.1 * unit, literal("\n".join(written.small)), fontsize=8, color=MUTED, va="top")
