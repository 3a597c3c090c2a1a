"""An explanation for a reader: its sentences, the shades of its words, and both with tables in a terminal.

Sentences and shades are the same on a page and in an image; in a terminal without colours, the numbers remain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from uatlite.classifier.explanation import AnswerExplanation, Comparison, Explanation
from uatlite.classifier.explanation import listed as by_size
from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.report.maps import COMPONENTS, LayerBars
from uatlite.lab.report.tables import Column, Entry, Row, Table, terminal
from uatlite.values import WordAttribution

SHADES = 6
_FAINT = 0.1
"""Shares and changes up to this one are never shaded darkest, however small all others are."""
SHADINGS = {
    "share": "The darker a word, the larger its share of the variance.",
    "masking": "Orange: without the word the model is less sure of {label}. Blue: without it, it is surer.",
    "uncertainty": "The darker a word, the more its embedding moves under dropout (U), whatever the word means.",
}
"""What words are shaded by -> what their colours mean."""
_HOW = {
    "delta": "first order, from one forward and one backward pass",
    "isolated": "each layer alone drops units, {samples} passes each",
    "total-variance": "law of total variance, {samples} pairs of passes for each component",
}
_DIFFERS = 0.1
"""By how much of the attributed variance the method's own may differ without a word."""
BACKGROUNDS = (None, "#fbe9de", "#f6d3bf", "#f0b898", "#e99a6e", "#e27b45")
COLD_BACKGROUNDS = (None, "#e0ebf5", "#c1d8eb", "#9cbfdf", "#74a5d1", "#5290c6")
"""The background of a word of each shade; the text on it is black, readable on light and dark terminals."""
_TABULATED = 24
"""Words of the table in a terminal; of a longer text, those with the largest shares."""
_BAR = 32
_MARKS = {"embedding": "▒", "attention": "█", "feed_forward": "░", "classifier": "▒"}
"""The character of each component in a bar, to tell them apart without colours."""
_COLOURS = {"embedding": "cyan", "attention": "blue", "feed_forward": "yellow", "classifier": "magenta"}


@dataclass(frozen=True)
class Shading:
    """How the words of one text are shaded, compared with one another."""

    words: tuple[WordAttribution, ...]
    confidence: float = 1.0
    """in the predicted class, with every word"""
    by: str = "share"

    def __post_init__(self) -> None:
        check_choice("shading", self.by, SHADINGS)
        if self.by == "masking" and all(word.masked_confidence is None for word in self.words):
            raise ConfigurationError("no word was masked, so none can be shaded by it; explain with occlusion=True.")

    def shade(self, word: WordAttribution) -> int:
        """0 to SHADES - 1, the darker the larger; below 0 for a word whose masking makes the model surer."""
        values = [self._value(other) for other in self.words]
        low = min(values) if self.by == "uncertainty" else 0.0
        high = max(values) if self.by == "uncertainty" else max(_FAINT, *(abs(value) for value in values))
        return round((SHADES - 1) * (self._value(word) - low) / (high - low)) if high > low else 0

    def style(self, word: WordAttribution) -> str:
        """The class of a word in the style sheet."""
        shade = self.shade(word)
        return f"c{-shade}" if shade < 0 else f"s{shade}"

    def caption(self, label: str) -> str:
        """What the colours mean."""
        return SHADINGS[self.by].format(label=label)

    def _value(self, word: WordAttribution) -> float:
        if self.by == "masking":
            return 0.0 if word.masked_confidence is None else self.confidence - word.masked_confidence
        return word.share if self.by == "share" else word.uncertainty

    def numbers(self, word: WordAttribution) -> str:
        """What a pointer shows of a word."""
        masked = "" if word.masked_confidence is None else f", {word.masked_confidence:.1%} sure if masked"
        return f"{word.share:.1%} of the variance{masked}, U {word.uncertainty:.3f}"


def shading_of(explanation: AnswerExplanation, by: str) -> Shading:
    """How the words of an explanation are shaded: by their share, by masking or by their uncertainty."""
    sure = explanation.prediction.confidence if isinstance(explanation, Explanation) else 1.0
    return Shading(explanation.words, sure, by)


# ── sentences ──────────────────────────────────────────────────────────────────────────────────────────────────────


def verdict(explanation: Explanation) -> str:
    """A title: 'negative, 83.5% sure, abstains'"""
    prediction = explanation.prediction
    said = f"{explanation.label}, {prediction.confidence:.1%} sure"
    if prediction.among.rule is None:
        return said
    return f"{said}, {'abstains' if prediction.abstain else 'answers'}"


def chances(explanation: Explanation) -> str:
    """The probability of each class, the likeliest first, and the threshold."""
    likely = ", ".join(f"{name} {value:.1%}" for name, value in by_size(explanation.prediction.probabilities))
    compared = Comparison.of(explanation.prediction)
    return f"Probabilities: {likely}.{'' if compared is None else f' {threshold(compared)}'}"


def threshold(compared: Comparison) -> str:
    """What the rule compares: 'Threshold: logit margin above 1.134; here 0.402.'"""
    at = {math.inf: "nothing is answered", -math.inf: "everything is answered"}
    where = at.get(compared.threshold, f"answered above {compared.threshold:.4g}")
    return f"Threshold of the {compared.name}: {where}; here {compared.value:.4g}."


def sources(explanation: Explanation) -> str:
    """The variance that words and layers divide, and its estimator."""
    attribution, band = explanation.attribution, explanation.band
    total = float(attribution.total[0])
    error = "" if attribution.total_error is None else f" ± {float(attribution.total_error[0]):.3f}"
    how = _HOW[attribution.estimator].format(samples=attribution.samples)
    said = f"Variance of the margin {total:.3f}{error}; {attribution.estimator}: {how}."
    if band is None or abs(band.spread**2 - total) <= _DIFFERS * total:
        return said
    return f"{said} For the prediction the method {explanation.method} puts it at {band.spread**2:.3f}."


def masked(explanation: Explanation) -> str:
    """The effect of masking the word that matters most; empty where no word was masked."""
    before = explanation.prediction.confidence
    moved = [(word.masked_confidence, word) for word in explanation.words if word.masked_confidence is not None]
    if not moved:
        return ""
    after, most = max(moved, key=lambda pair: abs(pair[0] - before))
    return f"With “{most.word.text}” masked it would be {after:.1%} sure of {explanation.label}, not {before:.1%}."


def notes(explanation: Explanation) -> list[str]:
    """Warnings: text that was cut off, and a pass without dropout that predicts another class."""
    warnings = []
    if cut := explanation.prediction.cut_tokens:
        warnings.append(f"{cut:,} tokens of the text were cut off and are not explained.")
    if explanation.quiet_label != explanation.label:
        warnings.append(
            f"The pass without dropout that is attributed says {explanation.quiet_label}: the two are close."
        )
    return warnings


# ── in a terminal ──────────────────────────────────────────────────────────────────────────────────────────────────


def words_table(explanation: AnswerExplanation, most: int | None = None) -> Table:
    """The values of each word; of more than `most` words those with the largest shares, and the rest together."""
    masks = isinstance(explanation, Explanation)  # of several answers, no word is masked

    def row(word: WordAttribution) -> Row:
        masked = "" if word.masked_confidence is None else f"{word.masked_confidence:.1%}"
        values = (f"{word.share:.1%}", *([masked] if masks else []), f"{word.uncertainty:.3f}")
        return Row(word.word.text, tuple(map(Entry, values)), note="special token" if word.word.special else "")

    words = explanation.words
    if most is not None and len(words) > most:
        words = tuple(sorted(words, key=lambda word: -word.share)[:most])
    rows = [row(word) for word in (*words, *explanation.special_tokens)]
    if left := len(explanation.words) - len(words):
        rest = sum(word.share for word in explanation.words) - sum(word.share for word in words)
        rows.append(Row(f"{left} other words", (Entry(f"{rest:.1%}"), *[Entry("")] * (1 + masks))))
    columns = ("of the variance", *(["confidence if masked"] if masks else []), "uncertainty U")
    caption = ""
    if masks:
        sure = f"{explanation.prediction.confidence:.1%}"
        caption = f"Confidence is that in {explanation.label}; with every word it is {sure}."
    return Table(title="", corner="word", columns=tuple(map(Column, columns)), rows=tuple(rows), caption=caption)


def terminal_view(explanation: AnswerExplanation, *, shading: str = "share") -> RenderableType:
    """The explanation in sentences, as coloured words and as tables; words are shaded by one of `SHADINGS`."""
    shades, bars = shading_of(explanation, shading), LayerBars(explanation.layers)
    if not isinstance(explanation, Explanation):
        return Group(
            Text(explanation.says, style="bold"),
            Text(),
            _coloured(explanation.words, shades),
            Text(shades.caption(""), style="dim"),
            Text(),
            terminal(words_table(explanation)),
            Text(),
            _shares(bars),
        )
    summary = explanation.summary
    lines: list[RenderableType] = [Text(summary.says, style="bold"), Text(f"{summary.decision} {summary.doubt}")]
    lines += [Text(note, style="yellow") for note in notes(explanation)]
    lines += [Text(), *(_coloured(run, shades) for run in explanation.segments)]
    lines += [Text(shades.caption(explanation.label), style="dim"), Text()]
    lines.append(terminal(words_table(explanation, _TABULATED)))
    lines += [Text(sentence) for sentence in (masked(explanation), chances(explanation)) if sentence]
    return Group(*lines, Text(), _components(bars), Text(sources(explanation), style="dim"))


def _coloured(run: Sequence[WordAttribution], shading: Shading) -> Text:
    text = Text()
    for word in run:
        shade = shading.shade(word)
        background = COLD_BACKGROUNDS[-shade] if shade < 0 else BACKGROUNDS[shade]
        text.append(word.word.text, style=Style(color="black", bgcolor=background) if background else Style())
        text.append(" ")
    return text


def _shares(bars: LayerBars) -> RichTable:
    """The share of each layer with a bar."""
    table = RichTable("layer", "share", "", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for layer in bars.layers:
        bar = _MARKS["attention"] * round(_BAR * max(layer.share, 0.0) / bars.longest)
        table.add_row(layer.name, f"{layer.share:.1%}", bar)
    return table


def _components(bars: LayerBars) -> RichTable:
    """The share of each layer with a bar of its components, and its variance."""
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("layer", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    key = Text("  ").join(Text(f"{_MARKS[name]} {COMPONENTS[name]}", style=_COLOURS[name]) for name in _MARKS)
    table.add_column(key, no_wrap=True)
    table.add_column("variance", justify="right", no_wrap=True)
    for layer in bars.layers:
        error = "" if layer.error is None else f" ± {layer.error:.3f}"
        bar = Text()
        for name, length in bars.parts(layer).items():
            bar.append(_MARKS[name] * round(_BAR * length / bars.longest), style=_COLOURS[name])
        table.add_row(layer.name, f"{layer.share:.1%}", bar, f"{layer.contribution:.3f}{error}")
    return table
