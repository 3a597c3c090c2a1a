"""The tokenizer of an exported model gives what transformers' tokenizer of the same file gives."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer

from uatlite import codec
from uatlite.errors import ModelError
from uatlite.model.tokens import FILE, FastTokenizer, TokenizerSettings, tokenize
from uatlite.model.windows import windowed
from uatlite.values import Choices


@pytest.fixture(params=["right", "left"])
def both(request: pytest.FixtureRequest, tokenizer: BertTokenizer, tmp_path: Path) -> tuple[Any, FastTokenizer]:
    """transformers' tokenizer that pads on a side, and ours of its file."""
    tokenizer.save_pretrained(tmp_path)
    theirs = BertTokenizer.from_pretrained(tmp_path, padding_side=request.param, truncation_side=request.param)
    stored = codec.dump(TokenizerSettings.of(theirs))
    settings = codec.load(TokenizerSettings, stored, advice="")
    return theirs, FastTokenizer(tmp_path, settings)


def test_texts_pairs_and_choices(both: tuple[Any, FastTokenizer], made_texts: Callable[..., list[str]]) -> None:
    theirs, ours = both
    long, other, *short = made_texts(6)
    texts = [*short, (long, other), (other, ""), Choices(long, ("a1", "a2 a3"))]
    for length in (1 << 30, 9):
        expected, found = tokenize(theirs, texts, length), tokenize(ours, texts, length)
        assert found.rows == expected.rows
        assert found.fingerprint == expected.fingerprint
        assert (found.truncated_texts, found.truncated_tokens) == (expected.truncated_texts, expected.truncated_tokens)
    assert ours.num_special_tokens_to_add(pair=True) == theirs.num_special_tokens_to_add(pair=True) == 3


def test_windows(both: tuple[Any, FastTokenizer], made_texts: Callable[..., list[str]]) -> None:
    theirs, ours = both
    texts = [" ".join(made_texts(8)), (" ".join(made_texts(5)), "a1 a2"), "a3"]
    expected, found = windowed(theirs, texts, 12), windowed(ours, texts, 12)
    assert found.tokens.rows == expected.tokens.rows
    assert found.counts.tolist() == expected.counts.tolist()
    assert found.counts.max() > 3


def test_padding_is_that_of_transformers_on_the_right(
    both: tuple[Any, FastTokenizer], made_texts: Callable[..., list[str]]
) -> None:
    theirs, ours = both
    tokens = tokenize(ours, [*made_texts(4), "a1", ("a1", "a2")], 40)
    rows = [dict(row[0]) for row in tokens.rows]
    expected = theirs.pad(rows, padding=True, padding_side="right", return_tensors="np")  # whatever it prefers
    for name, array in tokens.padded(range(len(tokens))).items():
        np.testing.assert_array_equal(array, expected[name])


def test_what_cannot_be_read_is_said(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    settings = TokenizerSettings.of(tokenizer)
    with pytest.raises(ModelError, match=f"holds no {FILE}"):
        FastTokenizer(tmp_path, settings)
    with pytest.raises(ModelError, match="slow tokenizer"):
        TokenizerSettings.of(SimpleNamespace(is_fast=False))
