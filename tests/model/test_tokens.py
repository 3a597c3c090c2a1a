"""Texts to tensors: lengths, cuts and their count, batches, order; a tokenizer without transformers gives the same."""

from collections.abc import Callable

import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite.errors import ConfigurationError, InputError
from uatlite.model.tokens import longest, tokenize
from uatlite.values import Choices

Tiny = Callable[..., PreTrainedModel]

WORDS = "[PAD] [UNK] [CLS] [SEP] a b c d e f".split()  # noqa: SIM905
TEXTS = ["a b c", "d", "a b c d e f a b c d", "e f"]


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)})


def test_a_text_a_pair_and_choices_are_encoded_as_the_tokenizer_does(tokenizer: BertTokenizer) -> None:
    question = Choices("a b", ("c", "d e"))
    tokens = tokenize(tokenizer, ["a b c", ("a", "b c"), question], 40)
    assert [dict(sequence) for sequence in tokens.rows[0]] == [dict(tokenizer("a b c"))]
    assert [dict(sequence) for sequence in tokens.rows[1]] == [dict(tokenizer("a", "b c"))]
    assert [dict(s) for s in tokens.rows[2]] == [dict(tokenizer("a b", "c")), dict(tokenizer("a b", "d e"))]
    assert (tokens.truncated_texts, tokens.truncated_tokens) == (0, 0)


def test_what_was_cut_is_counted(tokenizer: BertTokenizer) -> None:
    tokens = tokenize(tokenizer, [*TEXTS, Choices("a a a a a", ("b", "b b b"))], 7)
    # 10 words + 2 marks lose 5; 5 + 1 + 3 marks lose 2; 5 + 3 + 3 marks lose 4. The two options are one text.
    assert (tokens.truncated_texts, tokens.truncated_tokens) == (2, 5 + 2 + 4)
    assert max(tokens.lengths) == 7


@pytest.mark.parametrize(("most_tokens", "most_texts"), [(10_000, 64), (12, 64), (1, 64), (10_000, 1), (26, 2)])
def test_batches_hold_every_text_once_within_their_bounds(
    tokenizer: BertTokenizer, most_tokens: int, most_texts: int
) -> None:
    tokens = tokenize(tokenizer, TEXTS, 40)
    batches = list(tokens.batches(most_tokens=most_tokens, most_texts=most_texts))
    assert sorted(row for batch in batches for row in batch.rows) == [0, 1, 2, 3]
    for batch in batches:
        assert len(batch.rows) <= most_texts
        assert batch.inputs["input_ids"].numel() <= most_tokens or len(batch.rows) == 1
    widths = [batch.inputs["input_ids"].shape[1] for batch in batches]
    assert widths == sorted(widths)
    lengths = {
        row: int(length)
        for batch in batches
        for row, length in zip(batch.rows, batch.inputs["attention_mask"].sum(dim=1), strict=True)
    }
    assert [lengths[row] for row in range(4)] == list(tokens.lengths) == [5, 3, 12, 4]


def test_a_batch_has_no_more_padding_than_it_may(tokenizer: BertTokenizer) -> None:
    tokens = tokenize(tokenizer, TEXTS, 40)  # of 5, 3, 12 and 4 tokens
    assert [batch.rows for batch in tokens.batches(most_padding=3)] == [(1, 3, 0), (2,)]
    assert [batch.rows for batch in tokens.batches(most_padding=2)] == [(1, 3), (0,), (2,)]
    assert [batch.rows for batch in tokens.batches(most_padding=0)] == [(1,), (3,), (0,), (2,)]


def test_batches_of_some_rows_only(tokenizer: BertTokenizer) -> None:
    tokens = tokenize(tokenizer, TEXTS, 40)
    assert [batch.rows for batch in tokens.batches([2, 1])] == [(1, 2)]


def test_questions_with_different_numbers_of_options_do_not_share_a_batch(tokenizer: BertTokenizer) -> None:
    texts = [Choices("a", ("b", "c")), Choices("a", ("b", "c", "d")), Choices("b", ("c", "d"))]
    shapes = [tuple(batch.inputs["input_ids"].shape) for batch in tokenize(tokenizer, texts, 40).batches()]
    assert shapes == [(2, 2, 5), (1, 3, 5)]


def test_the_fingerprint_is_what_the_model_sees(tokenizer: BertTokenizer) -> None:
    whole = tokenize(tokenizer, TEXTS, 40)
    assert whole.fingerprint == tokenize(tokenizer, [text.upper() for text in TEXTS], 40).fingerprint
    assert whole.fingerprint != tokenize(tokenizer, TEXTS, 7).fingerprint
    # one text against the same words as a pair: equal ids need not mean equal types
    assert tokenize(tokenizer, ["a b"], 40).fingerprint != tokenize(tokenizer, [("a", "b")], 40).fingerprint


def test_the_longest_sequence_leaves_out_reserved_positions(shared: Tiny, tokenizer: BertTokenizer) -> None:
    assert longest(shared("bert"), tokenizer) == 40
    assert longest(shared("roberta"), tokenizer) == 38
    assert longest(shared("bert"), tokenizer, 16) == 16
    with pytest.raises(ConfigurationError, match="max_length=3 leaves no room"):
        longest(shared("bert"), tokenizer, 3)


@pytest.mark.parametrize("text", [None, 3, ("a",), ("a", "b", "c"), ("a", None)])
def test_what_is_no_text_is_named(tokenizer: BertTokenizer, text: object) -> None:
    with pytest.raises(InputError, match=r"texts\[1\] is .*; allowed are a string, a pair"):
        tokenize(tokenizer, ["a", text], 40)  # type: ignore[list-item]
    with pytest.raises(InputError, match="a list of texts"):
        tokenize(tokenizer, "a b", 40)
