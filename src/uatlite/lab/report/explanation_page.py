"""An explanation in a terminal, or as a file: HTML, PNG, SVG or JSON by the extension.

The sentences are the same in a terminal, on the page and in an image; in a terminal without colours, the numbers
remain.
"""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from uatlite.attribution.first_order import LAYER_COMPONENTS
from uatlite.classifier.explanation import AnswerExplanation, Comparison, Explanation
from uatlite.classifier.explanation import listed as by_size
from uatlite.errors import ConfigurationError, nearest
from uatlite.lab.report.explanation import (
    Shading,
    chances,
    masked,
    notes,
    shading_of,
    sources,
    threshold,
    verdict,
)
from uatlite.lab.report.figures import DPI, METADATA, themed
from uatlite.lab.report.maps import COMPONENTS, AttentionMaps, LayerBars
from uatlite.lab.report.page import page_html
from uatlite.lab.report.sheet import draw_sheet
from uatlite.lab.report.tables import Column, Entry, Row, Table, terminal
from uatlite.text.write import atomic_file
from uatlite.values import WordAttribution

BACKGROUNDS = (None, "#fbe9de", "#f6d3bf", "#f0b898", "#e99a6e", "#e27b45")
COLD_BACKGROUNDS = (None, "#e0ebf5", "#c1d8eb", "#9cbfdf", "#74a5d1", "#5290c6")
"""The background of a word of each shade; the text on it is black, readable on light and dark terminals."""
TABULATED = 24
"""Words of the table in a terminal; of a longer text, those with the largest shares."""
_SHOWN = 40
"""At most so many words are tabulated on a page without being asked for."""
BAR = 32
MARKS = {"embedding": "▒", "attention": "█", "feed_forward": "░", "classifier": "▒"}
"""The character of each component in a bar, to tell them apart without colours."""
_COLOURS = {"embedding": "cyan", "attention": "blue", "feed_forward": "yellow", "classifier": "magenta"}


def words_table(explanation: AnswerExplanation, most: int | None = None) -> Table:
    """The values of each word; of more than `most` words those with the largest shares, and the rest together."""
    masks = isinstance(explanation, Explanation)  # of several answers, no word is masked
    words = explanation.words
    if most is not None and len(words) > most:
        words = tuple(sorted(words, key=lambda word: -word.share)[:most])
    rows = [_word_row(word, masks) for word in (*words, *explanation.special_tokens)]
    if left := len(explanation.words) - len(words):
        rest = sum(word.share for word in explanation.words) - sum(word.share for word in words)
        rows.append(Row(f"{left} other words", (Entry(f"{rest:.1%}"), *[Entry("")] * (1 + masks))))
    columns = ("of the variance", *(["confidence if masked"] if masks else []), "uncertainty U")
    return Table(title="", corner="word", columns=tuple(map(Column, columns)), rows=tuple(rows))


def _word_row(word: WordAttribution, masks: bool) -> Row:
    masked = Entry("" if word.masked_confidence is None else f"{word.masked_confidence:.1%}")
    values = (Entry(f"{word.share:.1%}"), *([masked] if masks else []), Entry(f"{word.uncertainty:.3f}"))
    return Row(word.word.text, values, note="special token" if word.word.special else "")


def layers_table(explanation: Explanation) -> Table:
    """The contribution of each layer and of its components."""

    def contribution(value: float | None, error: float | None) -> Entry:
        return Entry("" if value is None else f"{value:.4f}", spread="" if error is None else f"{error:.4f}")

    def row(name: str, share: float, values: Sequence[Entry]) -> Row:
        return Row(name, (Entry(f"{share:.1%}"), *values))

    rows = []
    for layer in explanation.layers:
        errors = layer.component_errors or {}
        split = [contribution(layer.components.get(name), errors.get(name)) for name in LAYER_COMPONENTS]
        rows.append(row(layer.name, layer.share, [contribution(layer.contribution, layer.error), *split]))
    names = ("Share", "Variance", *(COMPONENTS[name] for name in LAYER_COMPONENTS))
    title = "Contributions to the variance of the margin"
    return Table(title=title, corner="Layer", columns=tuple(map(Column, names)), rows=tuple(rows))


def _html(explanation: Explanation, maps: AttentionMaps | None, shading: Shading) -> bytes:
    compared, words = Comparison.of(explanation.prediction), words_table(explanation)
    sure = f"{explanation.prediction.confidence:.1%}"
    html = page_html(
        "explanation.html.j2",
        tab=verdict(explanation),
        explanation=explanation,
        notes=notes(explanation),
        shading=shading,
        masked=masked(explanation),
        words_table=replace(words, caption=f"Confidence is that in {explanation.label}; with every word it is {sure}."),
        long=len(explanation.words) > _SHOWN,
        threshold=None if compared is None else threshold(compared),
        chances=by_size(explanation.prediction.probabilities),
        sources=sources(explanation),
        layers_figure=LayerBars(explanation.layers).figure(),
        layers_table=layers_table(explanation),
        maps=maps,
    )
    return html.encode()


def terminal_view(explanation: Explanation, *, shading: str = "share") -> RenderableType:
    """The explanation in sentences, as coloured words and as tables; words are shaded by one of `SHADINGS`."""
    summary, shades = explanation.summary, shading_of(explanation, shading)
    lines: list[RenderableType] = [Text(summary.says, style="bold"), Text(f"{summary.decision} {summary.doubt}")]
    lines += [Text(note, style="yellow") for note in notes(explanation)]
    lines += [Text(), *(_coloured(run, shades) for run in explanation.segments)]
    lines += [Text(shades.caption(explanation.label), style="dim"), Text()]
    lines.append(terminal(words_table(explanation, TABULATED)))
    lines += [Text(sentence) for sentence in (masked(explanation), chances(explanation)) if sentence]
    return Group(*lines, Text(), _layers(LayerBars(explanation.layers)), Text(sources(explanation), style="dim"))


def _coloured(run: Sequence[WordAttribution], shading: Shading) -> Text:
    text = Text()
    for word in run:
        shade = shading.shade(word)
        background = COLD_BACKGROUNDS[-shade] if shade < 0 else BACKGROUNDS[shade]
        text.append(word.word.text, style=Style(color="black", bgcolor=background) if background else Style())
        text.append(" ")
    return text


def _layers(bars: LayerBars) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    key = Text("  ").join(Text(f"{MARKS[name]} {COMPONENTS[name]}", style=_COLOURS[name]) for name in MARKS)
    table.add_column(key, no_wrap=True)
    table.add_column("variance", justify="right", no_wrap=True)
    for layer in bars.layers:
        error = "" if layer.error is None else f" ± {layer.error:.3f}"
        bar = Text()
        for name, length in bars.parts(layer).items():
            bar.append(MARKS[name] * round(BAR * length / bars.longest), style=_COLOURS[name])
        table.add_row(layer.name, f"{layer.share:.1%}", bar, f"{layer.contribution:.3f}{error}")
    return table


def answer_view(explanation: AnswerExplanation, *, shading: str = "share") -> RenderableType:
    """One label, or one entity, of a text explained: a sentence, coloured words, and the shares of words and layers."""
    shades = Shading(explanation.words, 1.0, shading)
    layers = RichTable("layer", "share", "", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    largest = max(*(layer.share for layer in explanation.layers), 1e-9)
    for layer in explanation.layers:
        bar = MARKS["attention"] * round(BAR * max(layer.share, 0.0) / largest)
        layers.add_row(layer.name, f"{layer.share:.1%}", bar)
    parts = [Text(explanation.says, style="bold"), Text(), _coloured(explanation.words, shades)]
    return Group(
        *parts,
        Text(shades.caption(""), style="dim"),
        Text(),
        terminal(words_table(explanation)),
        Text(),
        layers,
    )


def write_answer(explanation: AnswerExplanation, path: Path) -> None:
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


def _json(explanation: Explanation, maps: AttentionMaps | None, shading: Shading) -> bytes:
    return (json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode()


def _image(explanation: Explanation, maps: AttentionMaps | None, shading: Shading, kind: str) -> bytes:
    content = io.BytesIO()
    with themed():
        sheet = draw_sheet(explanation, maps, shading)
        sheet.savefig(content, format=kind, dpi=DPI, facecolor="white", metadata=METADATA[kind])
    return content.getvalue()


# extension -> the bytes of the file
EXTENSIONS: dict[str, Callable[[Explanation, AttentionMaps | None, Shading], bytes]] = {
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
    maps = AttentionMaps.of(explanation, layer, head)
    content = EXTENSIONS[path.suffix.lower()](explanation, maps, shading_of(explanation, shading))
    with atomic_file(path) as file:
        file.write(content)
