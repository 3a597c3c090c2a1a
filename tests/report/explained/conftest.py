"""Explanations of a tiny model that carry what a careless page would let through."""

from collections.abc import Callable

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier import Explanation, UncertaintyClassifier

HOSTILE = "<script>alert(1)</script>"
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [
    *MARKS,
    *["<", ">", "/", "(", ")", "1", "script", "alert", "&", "$", "film", "so", "long", "un", "##bear", "##able"],
]
TEXT = ("so $ long $ film & unbearable", HOSTILE)


@pytest.fixture(scope="session")
def explainer(tiny: Callable[..., PreTrainedModel]) -> Callable[..., UncertaintyClassifier]:
    """`explainer(method="analytic")`: a tiny classifier with hostile class names and words of its own."""
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)})
    names = {0: "<b>bad</b>", 1: "<b>fair</b>", 2: "<b>good</b> & $x$"}

    def make(method: str = "analytic") -> UncertaintyClassifier:
        return UncertaintyClassifier(tiny("bert", id2label=names, rate=0.1), tokenizer, method)

    return make


@pytest.fixture(scope="session")
def explanation(explainer: Callable[..., UncertaintyClassifier]) -> Explanation:
    """A pair, with attention."""
    return explainer().explain(TEXT)
