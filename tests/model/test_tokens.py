"""Texts to tensors: lengths, cuts, batches, order, windows; a tokenizer without transformers gives the same."""

from types import SimpleNamespace

import numpy as np
import pytest
from transformers import BertTokenizer

from uatlite import codec
from uatlite.errors import ConfigurationError, ModelError
from uatlite.model.tokens import FILE, FastTokenizer, TokenizerSettings, longest, tokenize
from uatlite.model.windows import OVERLAP, windowed
from uatlite.values import Choices

WORDS = "[PAD] [UNK] [CLS] [SEP] a b c d e f".split()  # noqa: SIM905
TEXTS = ["a b c", "d", "a b c d e f a b c d", "e f"]


@pytest.fixture(scope="module")
def few_words():
    return BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)})


def test_a_text_a_pair_and_choices_are_encoded_as_the_tokenizer_does(few_words):
    question = Choices("a b", ("c", "d e"))
    tokens = tokenize(few_words, ["a b c", ("a", "b c"), question], 40)
    assert [dict(sequence) for sequence in tokens.rows[0]] == [dict(few_words("a b c"))]
    assert [dict(sequence) for sequence in tokens.rows[1]] == [dict(few_words("a", "b c"))]
    assert [dict(s) for s in tokens.rows[2]] == [dict(few_words("a b", "c")), dict(few_words("a b", "d e"))]
    assert (tokens.truncated_texts, tokens.truncated_tokens) == (0, 0)


def test_what_was_cut_is_counted(few_words):
    tokens = tokenize(few_words, [*TEXTS, Choices("a a a a a", ("b", "b b b"))], 7)
    # 10 words + 2 marks lose 5; 5 + 1 + 3 marks lose 2; 5 + 3 + 3 marks lose 4. The two options are one text.
    assert (tokens.truncated_texts, tokens.truncated_tokens) == (2, 5 + 2 + 4)
    assert max(tokens.lengths) == 7


@pytest.mark.parametrize(("most_tokens", "most_texts"), [(10_000, 64), (12, 64), (1, 64), (10_000, 1), (26, 2)])
def test_batches_hold_every_text_once_within_their_bounds(few_words, most_tokens, most_texts):
    tokens = tokenize(few_words, TEXTS, 40)
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


def test_a_batch_has_no_more_padding_than_it_may(few_words):
    tokens = tokenize(few_words, TEXTS, 40)  # of 5, 3, 12 and 4 tokens
    assert [batch.rows for batch in tokens.batches(most_padding=3)] == [(1, 3, 0), (2,)]
    assert [batch.rows for batch in tokens.batches(most_padding=2)] == [(1, 3), (0,), (2,)]
    assert [batch.rows for batch in tokens.batches(most_padding=0)] == [(1,), (3,), (0,), (2,)]


def test_batches_of_some_rows_only(few_words):
    tokens = tokenize(few_words, TEXTS, 40)
    assert [batch.rows for batch in tokens.batches([2, 1])] == [(1, 2)]


def test_questions_with_different_numbers_of_options_do_not_share_a_batch(few_words):
    texts = [Choices("a", ("b", "c")), Choices("a", ("b", "c", "d")), Choices("b", ("c", "d"))]
    shapes = [tuple(batch.inputs["input_ids"].shape) for batch in tokenize(few_words, texts, 40).batches()]
    assert shapes == [(2, 2, 5), (1, 3, 5)]


def test_the_fingerprint_is_what_the_model_sees(few_words):
    whole = tokenize(few_words, TEXTS, 40)
    assert whole.fingerprint == tokenize(few_words, [text.upper() for text in TEXTS], 40).fingerprint
    assert whole.fingerprint != tokenize(few_words, TEXTS, 7).fingerprint
    # one text against the same words as a pair: equal ids need not mean equal types
    assert tokenize(few_words, ["a b"], 40).fingerprint != tokenize(few_words, [("a", "b")], 40).fingerprint


def test_the_longest_sequence_leaves_out_reserved_positions(shared, few_words):
    assert longest(shared("bert"), few_words) == 40
    assert longest(shared("roberta"), few_words) == 38
    assert longest(shared("bert"), few_words, 16) == 16
    with pytest.raises(ConfigurationError, match="max_length=3 leaves no room"):
        longest(shared("bert"), few_words, 3)


@pytest.fixture(params=["right", "left"])
def both(request, tokenizer, tmp_path):
    """transformers' tokenizer that pads on a side, and ours of its file."""
    tokenizer.save_pretrained(tmp_path)
    theirs = BertTokenizer.from_pretrained(tmp_path, padding_side=request.param, truncation_side=request.param)
    stored = codec.dump(TokenizerSettings.of(theirs))
    settings = codec.load(TokenizerSettings, stored, advice="")
    return theirs, FastTokenizer(tmp_path, settings)


def test_texts_pairs_and_choices(both, made_texts):
    theirs, ours = both
    long, other, *short = made_texts(6)
    texts = [*short, (long, other), (other, ""), Choices(long, ("a1", "a2 a3"))]
    for length in (1 << 30, 9):
        expected, found = tokenize(theirs, texts, length), tokenize(ours, texts, length)
        assert found.rows == expected.rows
        assert found.fingerprint == expected.fingerprint
        assert (found.truncated_texts, found.truncated_tokens) == (expected.truncated_texts, expected.truncated_tokens)
    assert ours.num_special_tokens_to_add(pair=True) == theirs.num_special_tokens_to_add(pair=True) == 3


def test_windows(both, made_texts):
    theirs, ours = both
    texts = [" ".join(made_texts(8)), (" ".join(made_texts(5)), "a1 a2"), "a3"]
    expected, found = windowed(theirs, texts, 12), windowed(ours, texts, 12)
    assert found.tokens.rows == expected.tokens.rows
    assert found.counts.tolist() == expected.counts.tolist()
    assert found.counts.max() > 3


def test_padding_is_that_of_transformers_on_the_right(both, made_texts):
    theirs, ours = both
    tokens = tokenize(ours, [*made_texts(4), "a1", ("a1", "a2")], 40)
    rows = [dict(row[0]) for row in tokens.rows]
    expected = theirs.pad(rows, padding=True, padding_side="right", return_tensors="np")  # whatever it prefers
    for name, array in tokens.padded(range(len(tokens))).items():
        np.testing.assert_array_equal(array, expected[name])


def test_what_cannot_be_read_is_said(tokenizer, tmp_path):
    settings = TokenizerSettings.of(tokenizer)
    with pytest.raises(ModelError, match=f"holds no {FILE}"):
        FastTokenizer(tmp_path, settings)
    with pytest.raises(ModelError, match="slow tokenizer"):
        TokenizerSettings.of(SimpleNamespace(is_fast=False))


# ── windows of long texts: every token is read ──

LONG = [f"a{number % 56}" for number in range(100)]


def overflowing(tokenizer, text, max_length):
    """The windows that transformers cuts, by its own overlap in tokens."""
    first, second = (text, None) if isinstance(text, str) else text
    sizes = [len(tokenizer(part or "", add_special_tokens=False)["input_ids"]) for part in (first, second)]
    room = max_length - tokenizer.num_special_tokens_to_add(pair=second is not None) - min(sizes)
    cut = "only_first" if sizes[0] >= sizes[1] else "only_second"
    whole = tokenizer(
        first, second, truncation=cut, max_length=max_length, stride=int(OVERLAP * room), return_overflowing_tokens=True
    )
    names = [name for name in whole if name != "overflow_to_sample_mapping"]
    return [{name: whole[name][i] for name in names} for i in range(len(whole["input_ids"]))]


@pytest.mark.parametrize("side", ["right", "left"])
def test_windows_begin_where_those_of_transformers_do(tokenizer, side, monkeypatch):
    monkeypatch.setattr(tokenizer, "truncation_side", side)
    text = " ".join(LONG)
    for given in (text, (text, "a1 a2"), ("a1 a2", text), (text, " ".join(LONG[:3]))):
        for length in (9, 16, 20):
            expected = overflowing(tokenizer, given, length)
            windows = windowed(tokenizer, ["a1 a2", given], length)
            assert [dict(row) for (row,) in windows.tokens.rows[1:]] == expected
            assert windows.counts.tolist() == [1, len(expected)]
            assert (windows.tokens.truncated_texts, windows.tokens.truncated_tokens) == (0, 0)


def test_a_pair_of_two_long_parts_is_cut_and_counted(tokenizer):
    pair = (" ".join(LONG[:30]), " ".join(LONG[:40]))
    windows = windowed(tokenizer, [pair], 20)
    assert windows.counts.tolist() == [1]
    assert (windows.tokens.truncated_texts, windows.tokens.truncated_tokens) == (1, 30 + 40 + 3 - 20)


def test_options_of_unequal_length_get_as_many_windows(tokenizer):
    question = Choices(" ".join(LONG[:40]), ("a1", " ".join(LONG[:8])))
    windows = windowed(tokenizer, [question], 20)
    assert windows.counts[0] == len(windows.tokens)
    assert all(len(row) == 2 for row in windows.tokens.rows)


def test_a_slow_tokenizer_is_refused(tokenizer, monkeypatch):
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    with pytest.raises(ConfigurationError, match="needs a fast tokenizer"):
        windowed(tokenizer, ["a1"], 18)
