"""How dark a word is: wherever words are coloured by their uncertainty, the page, the image and the terminal alike."""

from collections.abc import Sequence

from uatlite.values import WordAttribution

SHADES = 6
HEAT = (200, 85, 30)
"""The colour of the most uncertain word on a light ground; `--heat` of the style sheet."""
OPACITY = (0.0, 0.1, 0.2, 0.3, 0.42, 0.55)
"""How much of it each shade has; `.s0` to `.s5` of the style sheet."""


def shade(word: WordAttribution, words: Sequence[WordAttribution]) -> int:
    """0 to SHADES - 1: where a word lies between the least and the most uncertain of its text."""
    values = [one.uncertainty for one in words]
    low, high = min(values), max(values)
    if high == low:
        return 0
    return round((SHADES - 1) * (word.uncertainty - low) / (high - low))
