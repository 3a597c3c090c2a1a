"""Long texts in overlapping windows: as what a classifier takes, and as tokens whose places in the text are known.

windows = windowed(tokenizer, texts, max_length)
windows.mean(values)       # of every window, to those of every text

tokens = locate(tokenizer, texts, max_length, windows=True)
for batch in tokens.windows.batches():
    ...
tokens.stitched(values)    # of every window's tokens, to those of every text's

Windows overlap. Each token counts in the window where it is farther from the edge, and a word is not cut in two unless
it is longer than the overlap: so the tokens of a long text are again one sequence, in which an entity stands once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError, ModelError
from uatlite.model.tokens import FIELDS, TOKENIZING, Features, Joined, Tokens, sequences, tokenize
from uatlite.values import Integers, Text, Words

if TYPE_CHECKING:
    from uatlite.model.tokens import Tokenizer

OVERLAP = 0.25
"""The share of a window that the next one repeats, so that a sentence cut by one is whole in the other."""
LEAST_ROOM = 0.25
"""The smallest share of a sequence for the windowed part of a pair; with less, the pair is cut instead."""

TaggedText = str | Words


def window_ranges(size: int, room: int) -> list[tuple[int, int]]:
    """What each window of so many tokens shows, (start, stop): `room` of them, a quarter of which the next repeats."""
    step = max(1, room - int(OVERLAP * room))
    ranges = [(0, min(size, room))]
    while ranges[-1][1] < size:
        start = ranges[-1][0] + step
        ranges.append((start, min(size, start + room)))
    return ranges


def _shown(features: Features, segment: slice, start: int, stop: int) -> Features:
    """The features of a window that shows the tokens `start` to `stop` of a part of a sequence, and all others."""
    return {
        name: [*values[: segment.start], *values[segment][start:stop], *values[segment.stop :]]
        for name, values in features.items()
    }


@dataclass(frozen=True, eq=False)
class Windows:
    """Tokens of every window; the windows of a text are consecutive."""

    tokens: Tokens
    counts: NDArray[np.int64]
    """(texts,): windows per text, 1 or more"""

    def mean(self, values: NDArray[np.floating], axis: int = 0) -> NDArray[np.float64]:
        """The mean over the windows of each text: the axis (windows) becomes (texts)."""
        starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        sums = np.add.reduceat(values.astype(np.float64), starts, axis=axis)
        shape = [1] * values.ndim
        shape[axis] = len(self.counts)
        return np.asarray(sums / self.counts.reshape(shape))


def windowed(tokenizer: Tokenizer, texts: Sequence[Text], max_length: int) -> Windows:
    """As many overlapping windows as each text needs.

    In a pair the longer part is windowed, and every window has the whole of the shorter. A question with options is
    windowed option by option; an option with fewer windows than another repeats its last.
    """
    if not tokenizer.is_fast:
        raise ConfigurationError(f"windows=True needs a fast tokenizer, and {type(tokenizer).__name__} is not one.")
    rows: list[tuple[Features, ...]] = []
    counts: list[int] = []
    lost: list[int] = []
    with TOKENIZING:
        uncut = tokenize(tokenizer, list(texts), None)
        for text, row, length in zip(texts, uncut.rows, uncut.lengths, strict=True):
            of_text = [row] if length <= max_length else _windows(tokenizer, text, row, max_length)
            lost.append(0)
            if not of_text:
                cut = tokenize(tokenizer, [text], max_length)
                of_text, lost[-1] = list(cut.rows), cut.truncated_tokens
            rows += of_text
            counts.append(len(of_text))
    return Windows(Tokens(tokenizer, tuple(rows), tuple(lost)), np.array(counts, dtype=np.int64))


def _windows(
    tokenizer: Tokenizer, text: Text, row: tuple[Features, ...], max_length: int
) -> list[tuple[Features, ...]]:
    """The windows of a text, each with a sequence for every option; none if a pair leaves no room for them."""
    pairs = zip(sequences(text), row, strict=True)
    options = [_sequence_windows(tokenizer, joined, features, max_length) for joined, features in pairs]
    if not all(options):
        return []
    most = max(len(windows) for windows in options)
    return [tuple(windows[min(i, len(windows) - 1)] for windows in options) for i in range(most)]


def _sequence_windows(tokenizer: Tokenizer, joined: Joined, features: Features, max_length: int) -> list[Features]:
    """The windows of a sequence; where the tokenizer truncates on the left, the last one of the text comes first."""
    texts = _encode(tokenizer, *([joined] if isinstance(joined, str) else joined)).sequence_ids
    longer = int(texts.count(1) > texts.count(0))
    size, start = texts.count(longer), texts.index(longer)
    room = max_length - (len(texts) - size)
    if room < LEAST_ROOM * max_length:
        return []
    ranges = window_ranges(size, room)
    if tokenizer.truncation_side == "left":
        ranges = [(size - stop, size - start) for start, stop in ranges]
    return [_shown(features, slice(start, start + size), *shown) for shown in ranges]


def _encode(tokenizer: Tokenizer, text: str | tuple[str, ...], second: str | None = None) -> Any:
    """The tokens of a whole text or pair, or of the words of a text, as the tokenizer's library gives them."""
    inner: Any = tokenizer.backend_tokenizer
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = tokenizer.split_special_tokens
    return inner.encode(text, second, is_pretokenized=not isinstance(text, str))


@dataclass(frozen=True, eq=False)
class LocatedText:
    """The tokens of one text without special ones, (tokens,) each unless stated."""

    text: str
    """the string that places count in; words are joined by one space"""
    places: Integers
    """(tokens, 2): the first character of each token, and the one after its last"""
    continues: NDArray[np.bool_]
    """where transformers' pipeline takes a token for the continuation of a word"""
    words: Integers | None
    """the index of the word that each token is of, where the text was given as words"""

    def __len__(self) -> int:
        return len(self.places)

    def shown(self, start: int, stop: int) -> LocatedText:
        """The text of which only some tokens are read."""
        tokens = slice(start, stop)
        words = None if self.words is None else self.words[tokens]
        return LocatedText(self.text, self.places[tokens], self.continues[tokens], words)


@dataclass(frozen=True)
class Window:
    """A window on one text: it shows the tokens `start` to `stop`, and those from `first` to `last` count in it."""

    text: int
    start: int
    stop: int
    first: int
    last: int
    special: int
    """special tokens before them"""


@dataclass(frozen=True, eq=False)
class LocatedTexts:
    """Texts as windows that a model takes, and the way back."""

    texts: tuple[LocatedText, ...]
    windows: tuple[Window, ...]
    """in the order of the texts"""
    tokens: Tokens
    """a row for each window"""

    def inner(self, window: int) -> slice:
        """Where a window's tokens, without special ones, stand in its row."""
        special, shown = self.windows[window].special, self.windows[window].stop - self.windows[window].start
        return slice(special, special + shown)

    def stitched(self, values: Sequence[NDArray[Any]], axis: int = 0) -> list[NDArray[Any]]:
        """From values of the inner tokens of every window, which `axis` counts, to those of every text."""
        parts: list[list[NDArray[Any]]] = [[] for _ in self.texts]
        for window, value in zip(self.windows, values, strict=True):
            chosen = range(window.first - window.start, window.last - window.start)
            parts[window.text].append(value.take(chosen, axis=axis))
        return [values[0] if len(values) == 1 else np.concatenate(values, axis=axis) for values in parts]


def locate(tokenizer: Tokenizer, texts: Sequence[TaggedText], max_length: int, *, windows: bool) -> LocatedTexts:
    """Tokens of each text; one over `max_length` tokens is read in overlapping windows, or cut."""
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"{type(tokenizer).__name__} is a slow tokenizer, which does not say where its tokens stand in a text; use "
            "a checkpoint with a fast one."
        )
    located: list[LocatedText] = []
    spans: list[Window] = []
    rows: list[tuple[Features, ...]] = []
    cut: list[int] = []
    with TOKENIZING:
        for i, text in enumerate(texts):
            features, (before, after), tokens = _tokens(tokenizer, text)
            room = max_length - before - after
            ranges = window_ranges(len(tokens), room) if windows else [(0, min(len(tokens), room))]
            inner = slice(before, before + len(tokens))
            rows += [(_shown(features, inner, start, stop),) for start, stop in ranges]
            spans += _shares(i, ranges, tokens.continues, before)
            read = ranges[-1][1]
            cut.append(len(tokens) - read)
            located.append(tokens.shown(0, read))
    return LocatedTexts(tuple(located), tuple(spans), Tokens(tokenizer, tuple(rows), tuple(cut)))


def _tokens(tokenizer: Tokenizer, text: TaggedText) -> tuple[Features, tuple[int, int], LocatedText]:
    """The features of a whole text, its special tokens before and after, and the tokens between."""
    string = text.text if isinstance(text, Words) else text
    encoding = _encode(tokenizer, text.tokens if isinstance(text, Words) else text)
    mask = np.array(encoding.special_tokens_mask, dtype=bool)
    real = np.flatnonzero(~mask)
    before = int(real[0]) if len(real) else int(mask.sum()) - int(mask.sum()) // 2
    after = len(mask) - 1 - int(real[-1]) if len(real) else int(mask.sum()) // 2
    middle = slice(before, len(mask) - after)
    places, words = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)[middle], None
    if isinstance(text, Words):
        words = np.array([-1 if word is None else word for word in encoding.word_ids[middle]], dtype=np.int64)
        begins = np.array([start for start, _ in text.spans], dtype=np.int64)
        places = places + begins[words][:, None]
    continues = _continues(tokenizer, encoding, middle, string, places)
    names = [name for name in FIELDS if name == "input_ids" or name in tokenizer.model_input_names]
    features = {name: getattr(encoding, FIELDS[name]) for name in names}
    return features, (before, after), LocatedText(string, places, continues, words)


def _continues(tokenizer: Tokenizer, encoding: Any, tokens: slice, text: str, places: Integers) -> NDArray[np.bool_]:
    """Where the pipeline takes a token for the continuation of a word, by its own rule."""
    inner: Any = tokenizer.backend_tokenizer
    starts, ends = places.T
    in_vocabulary = np.array(encoding.ids[tokens], dtype=np.int64) != tokenizer.unk_token_id
    if getattr(inner.model, "continuing_subword_prefix", None):
        sizes = np.array([len(piece) for piece in encoding.tokens[tokens]], dtype=np.int64)
        return np.asarray(in_vocabulary & (sizes != ends - starts))
    inside = [start > 0 and " " not in text[start - 1 : start + 1] for start in starts.tolist()]
    return np.asarray(in_vocabulary & np.array(inside, dtype=bool))


def _shares(text: int, ranges: list[tuple[int, int]], continues: NDArray[np.bool_], special: int) -> list[Window]:
    """The windows of a text. Two of them share their overlap in the middle, at the word that begins nearest to it."""
    limits = [0]
    for (_, stop), (start, _) in itertools.pairwise(ranges):
        middle = (start + stop) // 2
        begins = start + np.flatnonzero(~continues[start:stop])
        limits.append(int(begins[np.abs(begins - middle).argmin()]) if len(begins) else middle)
    limits.append(ranges[-1][1])
    return [
        Window(text, start, stop, first, last, special)
        for (start, stop), first, last in zip(ranges, limits, limits[1:], strict=False)
    ]
