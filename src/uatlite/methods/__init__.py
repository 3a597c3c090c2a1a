"""Methods: a model and tokenised texts to the logits of every pass. One contract, one file for each kind."""

from uatlite.methods.method import Method, Passes
from uatlite.methods.registry import METHOD_ALIASES, METHODS, method_from_dict
from uatlite.methods.spelling import parse_method

__all__ = ["METHODS", "METHOD_ALIASES", "Method", "Passes", "method_from_dict", "parse_method"]
