"""An explanation of one answer for a reader: in a terminal, or as a file: HTML, PNG, SVG or JSON by the extension.

Sentences and shades are the same everywhere; in a terminal without colours, the numbers remain. An image has all on one
sheet.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any, ClassVar, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from uatlite.classifier.display import listed
from uatlite.classifier.explanation import AnswerExplanation, Comparison, Explanation
from uatlite.errors import ConfigurationError, check_choice, nearest
from uatlite.lab.report.figures import MUTED, filled, saved, themed
from uatlite.lab.report.maps import COMPONENTS, HEIGHT, WIDTH, AttentionMaps, LayerBars, literal
from uatlite.lab.report.tables import Entry, Row, Table, columns, terminal
from uatlite.text.write import atomic_file
from uatlite.values import WordAttribution

SHADES = 6
SHADINGS = {
    "share": "The darker a word, the larger its share of the variance.",
    "masking": "Orange: without the word the model is less sure of {label}. Blue: without it, it is surer.",
    "uncertainty": "The darker a word, the more its embedding moves under dropout (U) beside the other words.",
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
    """How the words of one text are shaded: by values from 0 to `darkest`, or by U compared with one another."""

    words: tuple[WordAttribution, ...]
    confidence: float = 1.0
    """in the predicted class, with every word"""
    by: str = "share"
    darkest: ClassVar[float] = 0.5
    """shares and changes from this one on are shaded darkest, whatever those of the other words are"""

    def __post_init__(self) -> None:
        check_choice("shading", self.by, SHADINGS)
        if self.by == "masking" and all(word.masked_confidence is None for word in self.words):
            raise ConfigurationError("no word was masked, so none can be shaded by it; explain with occlusion=True.")

    def shade(self, word: WordAttribution) -> int:
        """0 to SHADES - 1, the darker the larger; below 0 for a word whose masking makes the model surer."""
        values = [self._value(other) for other in self.words]
        low, high = (min(values), max(values)) if self.by == "uncertainty" else (0.0, self.darkest)
        strength = (self._value(word) - low) / (high - low) if high > low else 0.0
        return round((SHADES - 1) * min(1.0, max(-1.0, strength)))

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


def shading_of(explanation: AnswerExplanation, by: str) -> Shading:
    """How the words of an explanation are shaded: by their share, by masking or by their uncertainty."""
    sure = explanation.prediction.confidence if isinstance(explanation, Explanation) else 1.0
    return Shading(explanation.words, sure, by)


# ── sentences ──────────────────────────────────────────────────────────────────────────────────────────────────────


def chances(explanation: Explanation) -> str:
    """The probability of each class, the likeliest first, and the threshold."""
    likely = ", ".join(f"{name} {value:.1%}" for name, value in listed(explanation.prediction.probabilities))
    return f"Probabilities: {likely}. {threshold(explanation)}".rstrip()


def threshold(explanation: Explanation) -> str:
    """What the rule compares: 'Threshold: logit margin above 1.134; here 0.402.'; empty without a rule."""
    if (compared := Comparison.of(explanation.prediction)) is None:
        return ""
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


def estimated(explanation: AnswerExplanation) -> str:
    """Which estimate U is."""
    return f"U is that of {explanation.method}: {explanation.uncertainty_estimate}."


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
    words, left = explanation.words, len(explanation.words) - (most or len(explanation.words))
    if left > 0:
        words = tuple(sorted(words, key=lambda word: -word.share)[:most])
    rows = []
    for word in (*words, *explanation.special_tokens):
        masked = "" if word.masked_confidence is None else f"{word.masked_confidence:.1%}"
        values = (f"{word.share:.1%}", *([masked] if masks else []), f"{word.uncertainty:.3f}")
        rows.append(Row(word.word.text, tuple(map(Entry, values)), note="special token" if word.word.special else ""))
    if left > 0:
        rest = sum(word.share for word in explanation.words) - sum(word.share for word in words)
        rows.append(Row(f"{left} other words", (Entry(f"{rest:.1%}"), *[Entry("")] * (1 + masks))))
    headings = ("of the variance", *(["confidence if masked"] if masks else []), "uncertainty U")
    caption = estimated(explanation)
    if masks:
        sure = f"with every word it is {explanation.prediction.confidence:.1%}"
        caption = f"Confidence is that in {explanation.label}; {sure}. {caption}"
    return Table(title="", corner="word", columns=columns((), headings), rows=tuple(rows), caption=caption)


def terminal_view(explanation: AnswerExplanation, *, shading: str = "share") -> RenderableType:
    """The explanation in sentences, as coloured words and as tables; words are shaded by one of `SHADINGS`."""
    shades, layers = shading_of(explanation, shading), _layers(LayerBars(explanation.layers))
    if not isinstance(explanation, Explanation):
        words, key = _coloured(explanation.words, shades), Text(shades.caption(""), style="dim")
        says, table = Text(explanation.says, style="bold"), terminal(words_table(explanation))
        return Group(says, Text(), words, key, Text(), table, Text(), layers, Text(estimated(explanation), style="dim"))
    summary = explanation.summary
    lines: list[RenderableType] = [Text(summary.says, style="bold"), Text(f"{summary.decision} {summary.doubt}")]
    lines += [Text(note, style="yellow") for note in notes(explanation)]
    lines += [Text(), *(_coloured(run, shades) for run in explanation.segments)]
    lines += [Text(shades.caption(explanation.label), style="dim"), Text()]
    lines.append(terminal(words_table(explanation, _TABULATED)))
    lines += map(Text, filter(None, (tell(explanation) for tell in (estimated, masked, chances))))
    return Group(*lines, Text(), layers, Text(sources(explanation), style="dim"))


def _coloured(run: Sequence[WordAttribution], shading: Shading) -> Text:
    text = Text()
    for word in run:
        background = _background(shading.shade(word))
        text.append(word.word.text, style=Style(color="black", bgcolor=background) if background else Style())
        text.append(" ")
    return text


def _background(shade: int) -> str | None:
    return COLD_BACKGROUNDS[-shade] if shade < 0 else BACKGROUNDS[shade]


def _layers(bars: LayerBars) -> RenderableType:
    """The share of each layer with a bar of its components, and its variance; within 80 columns."""
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    key = Text("  ").join(Text(f"{_MARKS[name]} {COMPONENTS[name]}", style=_COLOURS[name]) for name in _MARKS)
    for heading in ("layer", "share", "", "variance"):
        table.add_column(heading, justify="right" if heading in ("share", "variance") else "left", no_wrap=True)
    for layer in bars.layers:
        error = "" if layer.error is None else f" ± {layer.error:.3f}"
        bar = Text()
        for name, length in bars.parts(layer).items():
            bar.append(_MARKS[name] * round(_BAR * length / bars.longest), style=_COLOURS[name])
        table.add_row(layer.name, f"{layer.share:.1%}", bar, f"{layer.contribution:.3f}{error}")
    return Group(key, table)


# ── as a file ──────────────────────────────────────────────────────────────────────────────────────────────────────

_SHOWN = 40
"""At most so many words are tabulated on a page without being asked for."""
_GAP = 2
"""Characters between words of a sheet: room for the edges of their backgrounds."""
_ADVANCE = 0.602 * 9 / 72 / WIDTH
"""The width of a character of the fixed-width font at 9 points, as a share of the sheet's width."""
_LINE = 110
"""At most this many characters of words on a line."""


def _html(explanation: Explanation, maps: AttentionMaps | None, shading: Shading) -> bytes:
    html = filled(
        "explanation.html.j2",
        explanation=explanation,
        notes=notes(explanation),
        shading=shading,
        masked=masked(explanation),
        words_table=words_table(explanation),
        long=len(explanation.words) > _SHOWN,
        threshold=threshold(explanation),
        chances=listed(explanation.prediction.probabilities),
        sources=sources(explanation),
        layers_figure=LayerBars(explanation.layers).figure(),
        components=COMPONENTS,
        maps=maps,
    )
    return html.encode()


@themed()
def _image(
    explanation: Explanation, maps: AttentionMaps | None, shading: Shading, kind: Literal["svg", "png"]
) -> bytes:
    """Sentences, words, layers and maps on one sheet."""
    from matplotlib.figure import Figure

    bars, summary = LayerBars(explanation.layers), explanation.summary
    lead = [*wrap(summary.says, 95), *wrap(f"{summary.decision} {summary.doubt}", 112)]
    told = [shading.caption(explanation.label), *(tell(explanation) for tell in (masked, chances, estimated, sources))]
    small = wrap(" ".join(filter(None, [*told, *notes(explanation)])), 130)
    words = _lines(explanation, shading)
    written = 0.35 + 0.22 * len(lead) + 0.28 * len(words) + 0.16 * len(small)
    heights = [written, 0.9 + 0.24 * len(bars.layers), *([HEIGHT] if maps else [])]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    unit = 1 / written  # an inch of the first part
    y = 1 - 0.2 * unit
    for i, line in enumerate(lead):
        weight: Any = {"fontsize": 10} if i else {"fontsize": 12, "fontweight": "bold"}
        parts[0].text(0.02, y, literal(line), va="center", **weight)
        y -= 0.22 * unit
    y -= 0.06 * unit
    for of_line in words:
        x = 0.02
        for text, shade in of_line:
            bbox = {"facecolor": _background(shade) or "none", "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            parts[0].text(x, y, literal(text), family="monospace", fontsize=9, va="center", bbox=bbox)
            x += _ADVANCE * (len(text) + _GAP)
        y -= 0.28 * unit
    parts[0].text(0.02, y + 0.1 * unit, literal("\n".join(small)), fontsize=8, color=MUTED, va="top")
    bars.draw(parts[1].subplots())
    if maps is not None:
        maps.draw(parts[2].subplots(ncols=3))
    return saved(figure, kind)


def _lines(explanation: Explanation, shading: Shading) -> list[list[tuple[str, int]]]:
    """The words and their shades, in lines."""
    lines: list[list[tuple[str, int]]] = []
    for run in explanation.segments:
        lines.append([])
        used = 0
        for word in run:
            text = word.word.text
            if used and used + len(text) > _LINE:
                lines.append([])
                used = 0
            lines[-1].append((text, shading.shade(word)))
            used += len(text) + _GAP
    return lines


def _json(explanation: AnswerExplanation, *_: object) -> bytes:
    return (json.dumps(explanation.to_dict(), ensure_ascii=False) + "\n").encode()


EXTENSIONS: dict[str, Callable[[Explanation, AttentionMaps | None, Shading], bytes]] = {
    ".html": _html,
    ".png": partial(_image, kind="png"),
    ".svg": partial(_image, kind="svg"),
    ".json": _json,
}
"""extension -> the bytes of the file"""


def check_target(path: Path, *, several: bool = False) -> None:
    """Raise a ConfigurationError unless an explanation can be written under this name; call it before anything runs.

    One of `several` answers is written as JSON alone.
    """
    extension = path.suffix.lower()
    if several and extension != ".json":
        allowed = "an entity or a label is explained in the terminal, on the page of 'uatlite serve', or as .json."
    elif extension not in EXTENSIONS:
        allowed = f"allowed are {', '.join(EXTENSIONS)}.{nearest(path.suffix, EXTENSIONS)}"
    else:
        return
    raise ConfigurationError(f"{path.name} has the extension {path.suffix!r}; {allowed}")


def write_explanation(
    explanation: AnswerExplanation,
    path: Path,
    *,
    shading: str = "share",
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Write an explanation as HTML, PNG, SVG or JSON; of an entity or a label as JSON.

    Words are shaded by one of `SHADINGS`. The maps of attention are those of a layer and a head, counted from 1; JSON
    has all of them.
    """
    check_target(path, several=not isinstance(explanation, Explanation))
    if isinstance(explanation, Explanation):
        maps = AttentionMaps.of(explanation, layer, head)
        content = EXTENSIONS[path.suffix.lower()](explanation, maps, shading_of(explanation, shading))
    else:
        content = _json(explanation)
    with atomic_file(path) as file:
        file.write(content)
