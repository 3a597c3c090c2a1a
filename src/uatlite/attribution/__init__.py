"""Where predictive variance comes from: layers, components, words, and what modulation does to attention."""

from uatlite.attribution.attention import AttentionShift, attention_shift
from uatlite.attribution.layers import ESTIMATORS, Attribution, Propagation, attribute, propagate
from uatlite.attribution.words import TokenAttribution, attribute_tokens, tokens_of, words_of
from uatlite.values import Word, WordAttribution

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
    "tokens_of",
    "words_of",
]
