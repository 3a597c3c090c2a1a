"""An explanation as one HTML file with everything in it: no script, no network."""

from functools import partial

import uatlite
from uatlite.attribution.parts import COMPONENTS
from uatlite.classifier import Explanation
from uatlite.report.explained.displays import LABELS, Heatmaps, LayerBars
from uatlite.report.explained.drawing import draw_heatmaps, draw_layers
from uatlite.report.explained.wording import masked, notes, sources, verdict
from uatlite.report.figures import Figure, render
from uatlite.report.page import style_sheet, template
from uatlite.report.shading import shade


def to_html(explanation: Explanation, maps: Heatmaps | None) -> str:
    """The page; every text in it is escaped by the template engine and by matplotlib."""
    page = template("explanation.html.j2")
    html: str = page.render(
        css=style_sheet(),
        shade=shade,
        explanation=explanation,
        version=uatlite.__version__,
        verdict=verdict(explanation),
        sources=sources(explanation),
        masked=masked(explanation),
        notes=notes(explanation),
        labels=LABELS,
        split=COMPONENTS,
        bars=_bars(explanation),
        heatmaps=None if maps is None else _heatmaps(maps),
        which=None if maps is None else maps.which,
    )
    return html


def _bars(explanation: Explanation) -> Figure:
    bars = LayerBars.of(explanation)
    alt = "A bar for each layer. " + ", ".join(f"{layer.name} {layer.share:.1%}" for layer in bars.layers) + "."
    return render("layers", "Variance by layer", alt, bars, partial(draw_layers, bars))


def _heatmaps(maps: Heatmaps) -> Figure:
    row, column = divmod(int(abs(maps.difference).argmax()), len(maps.tokens))
    alt = (
        f"Three maps of attention between {len(maps.tokens)} tokens. The largest difference is "
        f"{maps.difference[row, column]:+.4f}, from {maps.tokens[row]} to {maps.tokens[column]}."
    )
    return render("attention", "Attention with and without modulation", alt, maps, partial(draw_heatmaps, maps))
