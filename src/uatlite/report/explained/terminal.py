"""An explanation in a terminal: coloured words, then a bar for each layer. Without colours the figures remain."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from uatlite.classifier import Explanation
from uatlite.report.explained.displays import LABELS, LayerBars
from uatlite.report.explained.wording import masked, notes, sources, verdict
from uatlite.report.shading import shade
from uatlite.values import WordAttribution

GROUNDS = (None, "#fbe9de", "#f6d3bf", "#f0b898", "#e99a6e", "#e27b45")
"""Behind a word of each shade; the ink on it is dark, so that it reads on light and on dark terminals."""
WIDTH = 32
MARKS = {"embedding": "▒", "attention": "█", "feed_forward": "░", "classifier": "▒"}
"""A component's part of a bar: apart also without colours."""
COLOURS = {"embedding": "cyan", "attention": "blue", "feed_forward": "yellow", "classifier": "magenta"}


def render(explanation: Explanation) -> RenderableType:
    """The verdict, the words, the layers."""
    parts: list[RenderableType] = [Text(verdict(explanation), style="bold"), Text()]
    parts += [_coloured(run, explanation.words) for run in explanation.segments]
    parts += [Text(), _words(explanation), Text(masked(explanation)), Text()]
    parts += [_layers(LayerBars.of(explanation)), Text(sources(explanation), style="dim")]
    return Group(*parts, *(Text(note, style="yellow") for note in notes(explanation)))


def _coloured(run: Sequence[WordAttribution], words: Sequence[WordAttribution]) -> Text:
    text = Text()
    for word in run:
        ground = GROUNDS[shade(word, words)]
        text.append(word.word.text, style=Style(color="black", bgcolor=ground) if ground else Style())
        text.append(" ")
    return text


def _words(explanation: Explanation) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("word", overflow="fold")
    for heading in ("uncertainty U", "of the variance", "confidence if masked"):
        table.add_column(heading, justify="right", no_wrap=True)
    for word in (*explanation.words, *explanation.special_tokens):
        change = "" if word.confidence_change is None else f"{100 * word.confidence_change:+.1f} points"
        style = "dim" if word.word.special else ""
        table.add_row(Text(word.word.text), f"{word.uncertainty:.3f}", f"{word.share:.1%}", change, style=style)
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
