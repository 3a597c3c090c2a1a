"""An explanation in a terminal, or as a file: HTML, PNG, SVG or JSON by the extension.

The HTML page is one file without scripts or requests. In a terminal without colours, the numbers remain.
"""

import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

import uatlite
from uatlite.attribution.first_order import LAYER_COMPONENTS
from uatlite.classifier.explanation import Explanation
from uatlite.classifier.summary import Comparison, listed
from uatlite.errors import ConfigurationError, nearest
from uatlite.lab.report.build import style_sheet, template
from uatlite.lab.report.explanation import (
    LABELS,
    Heatmaps,
    LayerBars,
    chances,
    draw_heatmaps,
    draw_layers,
    draw_sheet,
    masked,
    notes,
    shading_of,
    sources,
    threshold,
    verdict,
)
from uatlite.lab.report.figures import DPI, METADATA, RenderedFigure, render, themed
from uatlite.lab.report.words import Shading, reach
from uatlite.text.write import atomic_file
from uatlite.values import WordAttribution

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import EntityExplanation, LabelExplanation

BACKGROUNDS = (None, "#fbe9de", "#f6d3bf", "#f0b898", "#e99a6e", "#e27b45")
COLD_BACKGROUNDS = (None, "#e0ebf5", "#c1d8eb", "#9cbfdf", "#74a5d1", "#5290c6")
"""The background of a word of each shade; the text on it is black, readable on light and dark terminals."""
TABULATED = 24
"""Words of the table in a terminal; of a longer text, those with the largest shares."""
WIDTH = 32
MARKS = {"embedding": "▒", "attention": "█", "feed_forward": "░", "classifier": "▒"}
"""The character of each component in a bar, to tell them apart without colours."""
COLOURS = {"embedding": "cyan", "attention": "blue", "feed_forward": "yellow", "classifier": "magenta"}


def _html(explanation: Explanation, maps: Heatmaps | None, shading: Shading) -> bytes:
    """The page; every text in it is escaped by the template engine and by matplotlib."""
    compared = Comparison.of(explanation.prediction)
    html: str = template("explanation.html.j2").render(
        css=style_sheet(),
        shading=shading,
        reach=reach,
        explanation=explanation,
        summary=explanation.summary,
        likely=listed(explanation.prediction.probabilities),
        threshold=compared and threshold(compared),
        version=uatlite.__version__,
        verdict=verdict(explanation),
        sources=sources(explanation),
        masked=masked(explanation),
        notes=notes(explanation),
        labels=LABELS,
        split=LAYER_COMPONENTS,
        bars=_bars(explanation),
        heatmaps=None if maps is None else _heatmaps(maps),
        which=None if maps is None else maps.which,
    )
    return html.encode()


def _bars(explanation: Explanation) -> RenderedFigure:
    bars = LayerBars(explanation.layers)
    alt = "A bar for each layer. " + ", ".join(f"{layer.name} {layer.share:.1%}" for layer in bars.layers) + "."
    return render("layers", "Variance by layer", alt, bars, partial(draw_layers, bars))


def _heatmaps(maps: Heatmaps) -> RenderedFigure:
    row, column = divmod(int(abs(maps.difference).argmax()), len(maps.tokens))
    alt = (
        f"Three maps of attention between {len(maps.tokens)} tokens. The largest difference is "
        f"{maps.difference[row, column]:+.4f}, from {maps.tokens[row]} to {maps.tokens[column]}."
    )
    return render("attention", "Attention with and without modulation", alt, maps, partial(draw_heatmaps, maps))


def terminal_view(explanation: Explanation, *, shading: str = "share") -> RenderableType:
    """The explanation in sentences, as coloured words and as tables; words are shaded by one of `SHADINGS`."""
    summary, shades = explanation.summary, shading_of(explanation, shading)
    parts: list[RenderableType] = [Text(summary.says, style="bold"), Text(f"{summary.decision} {summary.doubt}")]
    parts += [Text(note, style="yellow") for note in notes(explanation)]
    parts += [Text(), *(_coloured(run, shades) for run in explanation.segments)]
    parts += [Text(shades.caption(explanation.label), style="dim"), Text(), _words(explanation)]
    parts += [Text(one) for one in (masked(explanation), chances(explanation)) if one]
    return Group(*parts, Text(), _layers(LayerBars(explanation.layers)), Text(sources(explanation), style="dim"))


def _coloured(run: Sequence[WordAttribution], shading: Shading) -> Text:
    text = Text()
    for word in run:
        shade = shading.shade(word)
        background = COLD_BACKGROUNDS[-shade] if shade < 0 else BACKGROUNDS[shade]
        text.append(word.word.text, style=Style(color="black", bgcolor=background) if background else Style())
        text.append(" ")
    return text


def _words(explanation: "Explanation | LabelExplanation | EntityExplanation") -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("word", overflow="fold")
    masks = isinstance(explanation, Explanation)  # of several answers, no word is masked
    for heading in ("of the variance", *(["confidence if masked"] if masks else []), "uncertainty U"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = explanation.words
    if len(shown) > TABULATED:
        shown = tuple(sorted(shown, key=lambda word: -word.share)[:TABULATED])
    for word in (*shown, *explanation.special_tokens):
        after = ["" if word.masked_confidence is None else f"{word.masked_confidence:.1%}"] if masks else []
        style = "dim" if word.word.special else ""
        table.add_row(Text(word.word.text), f"{word.share:.1%}", *after, f"{word.uncertainty:.3f}", style=style)
    if left := len(explanation.words) - len(shown):
        rest = sum(word.share for word in explanation.words) - sum(word.share for word in shown)
        table.add_row(f"{left} other words", f"{rest:.1%}", style="dim")
    return table


def _layers(bars: LayerBars) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    key = Text("  ").join(Text(f"{MARKS[name]} {LABELS[name]}", style=COLOURS[name]) for name in MARKS)
    table.add_column(key, no_wrap=True)
    table.add_column("variance", justify="right", no_wrap=True)
    for layer in bars.layers:
        error = "" if layer.error is None else f" ± {layer.error:.3f}"
        bar = Text()
        for name, length in bars.parts(layer).items():
            bar.append(MARKS[name] * round(WIDTH * length / bars.longest), style=COLOURS[name])
        table.add_row(layer.name, f"{layer.share:.1%}", bar, f"{layer.contribution:.3f}{error}")
    return table


def answer_view(explanation: "LabelExplanation | EntityExplanation", *, shading: str = "share") -> RenderableType:
    """One label, or one entity, of a text explained: a sentence, coloured words, and the shares of words and layers."""
    shades = Shading(explanation.words, 1.0, shading)
    layers = Table("layer", "share", "", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    largest = max([*explanation.layers.values(), 1e-9])
    for name, share in explanation.layers.items():
        layers.add_row(name, f"{share:.1%}", MARKS["attention"] * round(WIDTH * max(share, 0.0) / largest))
    parts = [Text(explanation.says, style="bold"), Text(), _coloured(explanation.words, shades)]
    return Group(*parts, Text(shades.caption(""), style="dim"), Text(), _words(explanation), Text(), layers)


def write_answer(explanation: "LabelExplanation | EntityExplanation", path: Path) -> None:
    """Write the explanation of one label or one entity as JSON."""
    check_answer_target(path)
    with atomic_file(path) as file:
        file.write((json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode())


def check_answer_target(path: Path) -> None:
    """Raise a ConfigurationError unless the explanation of one of several answers can be written under this name."""
    if path.suffix.lower() != ".json":
        raise ConfigurationError(
            f"{path.name} has the extension {path.suffix!r}; an entity or a label is explained in the terminal, on the "
            "page of 'uatlite serve', or as .json."
        )


def _json(explanation: Explanation, maps: Heatmaps | None, shading: Shading) -> bytes:
    return (json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode()


def _image(explanation: Explanation, maps: Heatmaps | None, shading: Shading, kind: str) -> bytes:
    content = io.BytesIO()
    with themed():
        sheet = draw_sheet(explanation, maps, shading)
        sheet.savefig(content, format=kind, dpi=DPI, facecolor="white", metadata=METADATA[kind])
    return content.getvalue()


# extension -> the bytes of the file
EXTENSIONS: dict[str, Callable[[Explanation, Heatmaps | None, Shading], bytes]] = {
    ".html": _html,
    ".png": partial(_image, kind="png"),
    ".svg": partial(_image, kind="svg"),
    ".json": _json,
}


def check_target(path: Path) -> None:
    """Raise a ConfigurationError unless the extension is one of `EXTENSIONS`; call it before anything runs."""
    if path.suffix.lower() not in EXTENSIONS:
        hint = nearest(path.suffix, EXTENSIONS)
        raise ConfigurationError(
            f"{path.name} has the extension {path.suffix!r}; allowed are {', '.join(EXTENSIONS)}.{hint}"
        )


def write_explanation(
    explanation: Explanation,
    path: Path,
    *,
    shading: str = "share",
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write an explanation as HTML, PNG, SVG or JSON.

    Words are shaded by one of `SHADINGS`. The maps of attention are those of a layer and a head, counted from 1; JSON
    has all of them.
    """
    check_target(path)
    maps = Heatmaps.of(explanation, layer, head)
    content = EXTENSIONS[path.suffix.lower()](explanation, maps, shading_of(explanation, shading))
    with atomic_file(path) as file:
        file.write(content)
