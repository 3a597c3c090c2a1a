"""Where predictive variance comes from: layers, components, tokens, and what modulation does to attention."""

from uatlite.attribution.analytic import Propagation, propagate
from uatlite.attribution.attention import AttentionShift, attention_shift
from uatlite.attribution.layers import ESTIMATORS, Attribution, attribute
from uatlite.attribution.tokens import TokenAttribution, WordAttribution, attribute_tokens
from uatlite.attribution.words import Word, words_of

__all__ = [
    "ESTIMATORS",
    "AttentionShift",
    "Attribution",
    "Propagation",
    "TokenAttribution",
    "Word",
    "WordAttribution",
    "attention_shift",
    "attribute",
    "attribute_tokens",
    "propagate",
    "words_of",
]
