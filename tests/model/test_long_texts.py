"""Overlapping windows: every token is read."""

import numpy as np
import pytest
from transformers import BertTokenizer

from uatlite.errors import ConfigurationError
from uatlite.model.windows import OVERLAP, windowed
from uatlite.values import Choices

WORDS = [f"a{number % 56}" for number in range(100)]


def overflowing(tokenizer: BertTokenizer, text: str | tuple[str, str], max_length: int) -> list[dict[str, list[int]]]:
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
def test_windows_begin_where_those_of_transformers_do(
    tokenizer: BertTokenizer, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "truncation_side", side)
    text = " ".join(WORDS)
    for given in (text, (text, "a1 a2"), ("a1 a2", text), (text, " ".join(WORDS[:3]))):
        for length in (9, 16, 20):
            expected = overflowing(tokenizer, given, length)  # type: ignore[arg-type]
            windows = windowed(tokenizer, ["a1 a2", given], length)
            assert [dict(row) for (row,) in windows.tokens.rows[1:]] == expected
            assert windows.counts.tolist() == [1, len(expected)]
            assert (windows.tokens.truncated_texts, windows.tokens.truncated_tokens) == (0, 0)


def test_a_pair_of_two_long_parts_is_cut_and_counted(tokenizer: BertTokenizer) -> None:
    pair = (" ".join(WORDS[:30]), " ".join(WORDS[:40]))
    windows = windowed(tokenizer, [pair], 20)
    assert windows.counts.tolist() == [1]
    assert (windows.tokens.truncated_texts, windows.tokens.truncated_tokens) == (1, 30 + 40 + 3 - 20)


def test_options_of_unequal_length_get_as_many_windows(tokenizer: BertTokenizer) -> None:
    question = Choices(" ".join(WORDS[:40]), ("a1", " ".join(WORDS[:8])))
    windows = windowed(tokenizer, [question], 20)
    assert windows.counts[0] == len(windows.tokens)
    assert all(len(row) == 2 for row in windows.tokens.rows)


def test_truncation_is_one_window_each(tokenizer: BertTokenizer) -> None:
    windows = windowed(tokenizer, [" ".join(WORDS), "a1"], 18, windows=False)
    assert windows.counts.tolist() == [1, 1]
    assert windows.tokens.truncated_tokens == 100 + 2 - 18
    values = np.arange(4.0).reshape(2, 2)
    assert np.array_equal(windows.mean(values), values)


def test_a_slow_tokenizer_is_refused(tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(tokenizer), "is_fast", False)
    with pytest.raises(ConfigurationError, match="needs a fast tokenizer"):
        windowed(tokenizer, ["a1"], 18)
