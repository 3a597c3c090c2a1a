"""An explanation for a reader: its sentences, and the shades of its words.

Both are the same on a page, in an image and in a terminal.
"""

import math
from dataclasses import dataclass

from uatlite.classifier.explanation import Comparison, Explanation
from uatlite.classifier.explanation import listed as by_size
from uatlite.errors import ConfigurationError, check_choice
from uatlite.values import WordAttribution

SHADES = 6
HEAT, COLD = (200, 85, 30), (31, 111, 180)
"""The colours of the darkest words on a light background; `--heat` and `--cold` in the style sheet."""
OPACITY = (0.0, 0.1, 0.2, 0.3, 0.42, 0.55)
"""The opacity of each shade; `.s0` to `.s5` and `.c1` to `.c5` in the style sheet."""
FAINT = 0.1
"""Shares and changes up to this one are never shaded darkest, however small all others are."""
SHADINGS = {
    "share": "The darker a word, the larger its share of the variance.",
    "masking": "Orange: without the word the model is less sure of {label}. Blue: without it, it is surer.",
    "uncertainty": "The darker a word, the more its embedding moves under dropout (U), whatever the word means.",
}
"""What words are shaded by -> what their colours mean."""
HOW = {
    "delta": "first order, from one forward and one backward pass",
    "isolated": "each layer alone drops units, {samples} passes each",
    "total-variance": "law of total variance, {samples} pairs of passes for each component",
}
DIFFERS = 0.1
"""By how much of the attributed variance the method's own may differ without a word."""


@dataclass(frozen=True)
class Shading:
    """How the words of one text are shaded, compared with one another."""

    words: tuple[WordAttribution, ...]
    confidence: float
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
        high = max(values) if self.by == "uncertainty" else max(FAINT, *(abs(value) for value in values))
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
    how = HOW[attribution.estimator].format(samples=attribution.samples)
    said = f"Variance of the margin {total:.3f}{error}; {attribution.estimator}: {how}."
    if band is None or abs(band.spread**2 - total) <= DIFFERS * total:
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
    if explanation.truncated_tokens:
        warnings.append(f"{explanation.truncated_tokens:,} tokens of the text were cut off and are not explained.")
    if explanation.quiet_label != explanation.label:
        warnings.append(
            f"The pass without dropout that is attributed says {explanation.quiet_label}: the two are close."
        )
    return warnings
