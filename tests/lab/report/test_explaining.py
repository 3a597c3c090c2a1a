"""Texts word by word, from a tiny model."""

from collections.abc import Callable

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.lab.report.words import explain
from uatlite.model.load import Checkpoint
from uatlite.values import Choices, Example

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##bear", "##able", "film", "so", "long"]


@pytest.fixture
def checkpoint(tiny: Callable[..., PreTrainedModel]) -> Checkpoint:
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(WORDS)})
    return Checkpoint("tiny", tiny("bert", id2label={0: "bad", 1: "fair", 2: "good"}, rate=0.1), tokenizer)


def test_pieces_are_words_and_special_tokens_are_left_out(checkpoint: Checkpoint) -> None:
    examples = [Example("one", "unbearable film", 2), Example("pair", ("film", "so long"), None)]
    single, pair = explain(checkpoint, examples, ("bad", "fair", "good"))
    assert [word.word.text for word in single.words] == ["unbearable", "film"]
    assert [word.word.text for word in pair.words] == ["film", "so", "long"]
    assert (single.gold, pair.gold) == ("good", None)
    assert single.predicted in ("bad", "fair", "good")
    assert all(word.uncertainty > 0 and word.confidence_change is not None for word in single.words)
    assert 0 < sum(word.share for word in single.words) < 1  # the special tokens have the rest


def test_questions_with_choices_are_left_out(checkpoint: Checkpoint) -> None:
    assert explain(checkpoint, [Example("x", Choices("so", ("film", "long")), 0)], ("A", "B")) == ()
