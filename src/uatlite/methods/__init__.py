"""From a model and tokenised texts to the logits of every pass: one Protocol, one registry, one family a file."""

from uatlite.methods.method import Method, Passes
from uatlite.methods.registry import METHOD_ALIASES, METHODS, method_to_dict, parse_method

__all__ = ["METHODS", "METHOD_ALIASES", "Method", "Passes", "method_to_dict", "parse_method"]
