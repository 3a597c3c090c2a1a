"""Where predictive variance comes from: layers, components, words, and what modulation does to attention."""

from uatlite.attribution.attention import AttentionShift, attention_shift
from uatlite.attribution.layers import ESTIMATORS, Attribution, attribute, propagate
from uatlite.attribution.words import attribute_words, words_of

__all__ = [
    "ESTIMATORS",
    "AttentionShift",
    "Attribution",
    "attention_shift",
    "attribute",
    "attribute_words",
    "propagate",
    "words_of",
]
