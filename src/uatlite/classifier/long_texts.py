"""Texts that are longer than the model takes: overlapping windows of them."""

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from uatlite.backbone.tokens import Features, Tokens, tokenize
from uatlite.errors import ConfigurationError
from uatlite.predictive import mean_logits
from uatlite.values import Choices, Text

OVERLAP = 0.25
"""The share of a window that the next one repeats, so that no sentence is read only in halves."""

TOKENIZING = threading.Lock()
"""A fast tokenizer is set to cut and then asked to, so two threads must not use one at the same time."""

LEAST_ROOM = 0.25
"""The share of a sequence that the windowed part of a pair must have, or the pair is cut and not windowed."""


@dataclass(frozen=True, eq=False)
class Windows:
    """Tokens of every window; the windows of one text stand together."""

    tokens: Tokens
    counts: NDArray[np.int64]
    """(texts,): how many windows each text has, 1 or more"""

    @property
    def _starts(self) -> NDArray[np.int64]:
        """(texts,): where the windows of each text begin."""
        return np.concatenate([[0], np.cumsum(self.counts)[:-1]])

    def most(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The largest over the windows of each text: (windows,) to (texts,)."""
        return np.asarray(np.maximum.reduceat(values, self._starts))

    def mean_passes(self, logits: NDArray[np.floating], counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The mean over windows of logits (passes, windows, classes) of which each window ran the first `counts`.

        A text has as many passes as its window with the most. In those that another of its windows did not run, that
        window stands with its mean, so that the mean over passes is the mean over windows of their means.
        """
        whole = np.where(np.isnan(logits), mean_logits(logits.astype(np.float64), counts), logits)
        result = self.mean(whole, axis=1)
        result[np.arange(len(logits))[:, None] >= self.most(counts)] = np.nan
        return result

    def mean(self, values: NDArray[np.floating], axis: int = 0) -> NDArray[np.float64]:
        """The mean over the windows of each text: the axis (windows) becomes (texts)."""
        if len(self.counts) == len(self.tokens):
            return np.array(values, dtype=np.float64)
        sums = np.add.reduceat(values.astype(np.float64), self._starts, axis=axis)
        shape = [1] * values.ndim
        shape[axis] = len(self.counts)
        return np.asarray(sums / self.counts.reshape(shape))


def truncated(tokenizer: PreTrainedTokenizerBase, texts: list[Text], max_length: int) -> Windows:
    """One window for each text, cut where it is too long."""
    with TOKENIZING:
        return Windows(tokenize(tokenizer, texts, max_length), np.ones(len(texts), dtype=np.int64))


def windowed(tokenizer: PreTrainedTokenizerBase, texts: list[Text], max_length: int) -> Windows:
    """As many overlapping windows as each text needs.

    Of a pair the longer part is windowed and the shorter stands whole in every window. A question with options is
    windowed option by option; an option with fewer windows than another repeats its last.
    """
    if not tokenizer.is_fast:
        raise ConfigurationError(f"windows=True needs a fast tokenizer, and {type(tokenizer).__name__} is not one.")
    with TOKENIZING:
        return _windowed(tokenizer, texts, max_length)


def _windowed(tokenizer: PreTrainedTokenizerBase, texts: list[Text], max_length: int) -> Windows:
    whole = tokenize(tokenizer, texts, 1 << 30)
    rows: list[tuple[Features, ...]] = []
    counts: list[int] = []
    lost: list[int] = []
    for text, row, length in zip(texts, whole.rows, whole.lengths, strict=True):
        windows = [row] if length <= max_length else _windows(tokenizer, text, max_length)
        if not windows:
            cut = tokenize(tokenizer, [text], max_length)
            windows = list(cut.rows)
            lost.append(cut.truncated_tokens)
        rows += windows
        counts.append(len(windows))
    return Windows(Tokens(tokenizer, tuple(rows), len(lost), sum(lost)), np.array(counts, dtype=np.int64))


def _windows(tokenizer: PreTrainedTokenizerBase, text: Text, max_length: int) -> list[tuple[Features, ...]]:
    """The windows of a text, each a sequence for every option; empty where a pair leaves no room for them."""
    if isinstance(text, Choices):
        pairs: list[tuple[str, str | None]] = [(text.question, option) for option in text.options]
    else:
        pairs = [(text, None)] if isinstance(text, str) else [text]
    options = [_sequence_windows(tokenizer, first, second, max_length) for first, second in pairs]
    if not all(options):
        return []
    most = max(len(windows) for windows in options)
    return [tuple(windows[min(index, len(windows) - 1)] for windows in options) for index in range(most)]


def _sequence_windows(
    tokenizer: PreTrainedTokenizerBase, first: str, second: str | None, max_length: int
) -> list[Features]:
    sizes = [
        len(tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]) for part in (first, second or "")
    ]
    room = max_length - tokenizer.num_special_tokens_to_add(pair=second is not None) - min(sizes)
    if room < LEAST_ROOM * max_length:
        return []
    encoded = tokenizer(
        first,
        second,
        truncation="only_first" if sizes[0] >= sizes[1] else "only_second",
        max_length=max_length,
        stride=int(OVERLAP * room),
        return_overflowing_tokens=True,
        verbose=False,
    )
    names = [name for name in encoded if name != "overflow_to_sample_mapping"]
    return [{name: encoded[name][index] for name in names} for index in range(len(encoded["input_ids"]))]
