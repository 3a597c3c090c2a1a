"""From the logits of a text's tokens to its entities, and the probability of each entity as a whole.

Words and entities are joined as `transformers.pipeline("token-classification")` joins them:

    simple     each token is a word of its own
    first      the first token of a word decides its tag
    average    the mean of the tokens' probabilities decides
    max        the token with the highest probability decides
    words      for texts that are given as words: the first token of each of these decides

A word of type T that follows one of the same type belongs to the same entity, unless its tag begins with B-.

With words independent given a pass, an entity of type T at the words i..j comes out with the probability

    P(i begins T) · Π P(k is I-T), k = i+1..j · P(j+1 is not I-T),

    P(i begins T) = P(i is B-T) + P(i is I-T)·(1 - P(i-1 is B-T or I-T)),

and the probability of its boundaries is the sum of that over all types. Over several passes it is the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from uatlite.errors import ConfigurationError, check_choice
from uatlite.model.windows import LocatedText
from uatlite.predictive import softmax
from uatlite.values import Floats, Integers

STRATEGIES = ("simple", "first", "average", "max", "words")
_OUTSIDE = "O"
_LEAST = 1e-9
"""Probabilities nearer to 0 or 1 than this count as this near, so that log-odds are finite."""


@dataclass(frozen=True)
class TagScheme:
    """The tags of a model: which type each is of, and whether it begins an entity."""

    tags: tuple[str, ...]
    """by column"""

    @cached_property
    def split(self) -> tuple[tuple[bool, str], ...]:
        """Whether each tag begins an entity, and its type as entities are joined by."""
        return tuple((tag.startswith("B-"), tag[2:] if tag[:2] in ("B-", "I-") else tag) for tag in self.tags)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The types of entities, in the order of their first tag."""
        return tuple(dict.fromkeys(name for _, name in self.split if name != _OUTSIDE))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the pipeline calls each type."""
        first = {kind: tag for tag, (_, kind) in reversed(list(zip(self.tags, self.split, strict=True)))}
        return tuple(first[kind].split("-", 1)[-1] for kind in self.types)

    @cached_property
    def outside(self) -> int | None:
        """The column of the tag of no entity; None where there is none."""
        return self.tags.index(_OUTSIDE) if _OUTSIDE in self.tags else None

    @cached_property
    def type_of(self) -> Integers:
        """(tags,): the index of each tag's type; -1 of no entity."""
        return np.array([-1 if name == _OUTSIDE else self.types.index(name) for _, name in self.split])

    @cached_property
    def begins(self) -> Floats:
        """(tags, types): 1 where a tag begins an entity of that type."""
        return self._indicator(begins=True)

    @cached_property
    def inside(self) -> Floats:
        """(tags, types): 1 where a tag may continue an entity of that type."""
        return self._indicator(begins=False)

    def _indicator(self, *, begins: bool) -> Floats:
        found = np.zeros((len(self.tags), len(self.types)))
        for column, (begin, name) in enumerate(self.split):
            if name != _OUTSIDE and begin == begins:
                found[column, self.types.index(name)] = 1.0
        return found


@dataclass(frozen=True)
class Entity:
    """An entity that the model finds in a text, before calibration."""

    start: int
    """its first character"""
    end: int
    """the character after its last"""
    type: int
    """the index of its type"""
    probability: float
    """that exactly this entity comes out, as a whole"""
    boundaries: float
    """that an entity of any type has these boundaries"""
    token: int
    """the token that decides the tag of its weakest word, by its place among the text's tokens"""
    tokens: tuple[int, ...]
    """those of all of its words"""
    spread: float
    """over passes, the variance of the log-odds of `probability`; NaN for one pass"""
    score: float
    """the mean probability of its words' tags: what the pipeline calls its score"""


@dataclass(frozen=True)
class Decoded:
    """What one text's logits say."""

    entities: tuple[Entity, ...]
    missed: float
    """log-odds that a word outside of all entities belongs to one"""
    place: tuple[int, int] | None
    """the characters of the word outside that is likeliest to belong to one; None where there is no word outside"""
    place_probability: float
    """how likely that is"""
    words_outside: int


def check_strategy(name: str | None) -> None:
    """Raise unless it is a way to join tokens, or None."""
    if name is not None:
        check_choice("aggregation_strategy", name, STRATEGIES)


def strategy_of(name: str | None, text: LocatedText) -> str:
    """How to join the tokens of a text; where nothing was asked for, 'words' for words and 'first' for a string."""
    if name is None:
        return "first" if text.words is None else "words"
    if name == "words" and text.words is None:
        raise ConfigurationError(
            "aggregation_strategy='words' is for texts that are given as words; for a string use 'first', 'simple', "
            "'average' or 'max'."
        )
    return name


def word_starts(text: LocatedText, strategy: str) -> Integers:
    """The first token of each word, (words,)."""
    if strategy == "simple":
        return np.arange(len(text))
    if strategy == "words":
        assert text.words is not None
        return np.flatnonzero(np.diff(text.words, prepend=-2) != 0)
    begins = ~text.continues
    begins[:1] = True
    return np.flatnonzero(begins)


def decode(text: LocatedText, logits: Floats, scheme: TagScheme, strategy: str | None = None) -> Decoded:
    """The entities of a text from the logits of its tokens (passes, tokens, tags)."""
    strategy = strategy_of(strategy, text)
    if not len(text):
        return Decoded((), -np.inf, None, 0.0, 0)
    starts = word_starts(text, strategy)
    ends = np.append(starts[1:], len(text)) - 1
    tokens = softmax(logits.mean(axis=0))
    chosen = _deciding(tokens, starts, ends) if strategy == "max" else starts
    decided = _joined(tokens, starts, chosen, strategy)
    passes = decided[None] if len(logits) == 1 else _joined(softmax(logits), starts, chosen, strategy)
    tags = decided.argmax(axis=-1)
    found, inside = [], np.zeros(len(starts), dtype=bool)
    chances = _Chances(passes @ scheme.begins, passes @ scheme.inside)
    for first, last in _groups(tags, scheme):
        kind = int(scheme.type_of[tags[first]])
        inside[first : last + 1] = True
        own = decided[np.arange(first, last + 1), tags[first : last + 1]]
        of_types = chances.of(first, last)  # (passes, types)
        of_pass = of_types[:, kind]
        odds = log_odds(of_pass)
        found.append(
            Entity(
                start=int(text.places[starts[first], 0]),
                end=int(text.places[ends[last], 1]),
                type=kind,
                probability=float(of_pass.mean()),
                boundaries=float(of_types.sum(axis=1).mean()),
                token=int(chosen[first + own.argmin()]),
                tokens=tuple(chosen[first : last + 1].tolist()),
                spread=float(odds.var(ddof=1)) if len(odds) > 1 else float("nan"),
                score=float(own.mean()),
            )
        )
    return _with_missed(tuple(found), decided, inside, text, starts, ends, scheme)


def _joined(tokens: Floats, starts: Integers, chosen: Integers, strategy: str) -> Floats:
    """Probabilities of words (..., words, tags) from those of tokens (..., tokens, tags)."""
    if strategy != "average":
        return tokens[..., chosen, :]
    sums = np.add.reduceat(tokens, starts, axis=-2)
    sizes = np.diff(np.append(starts, tokens.shape[-2]))
    return np.asarray(sums / sizes[:, None])


def _deciding(tokens: Floats, starts: Integers, ends: Integers) -> Integers:
    """The token of each word with the highest probability, the first of equals."""
    highest = tokens.max(axis=-1)
    return np.array(
        [start + highest[start : end + 1].argmax() for start, end in zip(starts, ends, strict=True)], dtype=np.int64
    )


def _groups(tags: Integers, scheme: TagScheme) -> list[tuple[int, int]]:
    """The first and last word of each entity."""
    groups: list[tuple[int, int]] = []
    last_type = -1
    for word, tag in enumerate(tags.tolist()):
        kind = int(scheme.type_of[tag])
        if kind >= 0:
            if kind == last_type and not scheme.split[tag][0]:
                groups[-1] = groups[-1][0], word
            else:
                groups.append((word, word))
        last_type = kind
    return groups


@dataclass(frozen=True, eq=False)
class _Chances:
    """Of every word, the probability of tags that begin and that continue each type: (passes, words, types)."""

    begins: Floats
    inside: Floats

    def of(self, first: int, last: int) -> Floats:
        """The probability of an entity of each type at the words from first to last, (passes, types)."""
        begin = self.begins[:, first] + self.inside[:, first]
        if first > 0:
            before = self.begins[:, first - 1] + self.inside[:, first - 1]
            begin = self.begins[:, first] + self.inside[:, first] * (1.0 - before)
        whole = begin * self.inside[:, first + 1 : last + 1].prod(axis=1)
        if last + 1 < self.inside.shape[1]:
            whole = whole * (1.0 - self.inside[:, last + 1])
        return np.asarray(whole)


def _with_missed(
    entities: tuple[Entity, ...],
    words: Floats,
    inside: np.ndarray,
    text: LocatedText,
    starts: Integers,
    ends: Integers,
    scheme: TagScheme,
) -> Decoded:
    """The entities, and whether one may be missed among the words outside of them."""
    outside = np.flatnonzero(~inside)
    if not len(outside) or scheme.outside is None:
        return Decoded(entities, -np.inf, None, 0.0, 0)
    none = np.clip(words[outside, scheme.outside], _LEAST, 1.0 - _LEAST)
    total = float(np.log(none).sum())
    likeliest = int(none.argmin())
    word = outside[likeliest]
    return Decoded(
        entities=entities,
        missed=float(np.log(-np.expm1(total)) - total),
        place=(int(text.places[starts[word], 0]), int(text.places[ends[word], 1])),
        place_probability=float(1.0 - none[likeliest]),
        words_outside=len(outside),
    )


def log_odds(probabilities: Floats | Sequence[float]) -> Floats:
    """log p - log(1 - p), with p at least `_LEAST` away from 0 and 1."""
    p = np.clip(np.asarray(probabilities, dtype=np.float64), _LEAST, 1.0 - _LEAST)
    return np.asarray(np.log(p) - np.log1p(-p))
