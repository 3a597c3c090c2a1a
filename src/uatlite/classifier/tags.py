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

from uatlite.errors import ConfigurationError
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
        return np.asarray(self._of_type * np.array([[begin] for begin, _ in self.split]))

    @cached_property
    def inside(self) -> Floats:
        """(tags, types): 1 where a tag may continue an entity of that type."""
        return self._of_type - self.begins

    @property
    def _of_type(self) -> Floats:
        """(tags, types): 1 where a tag is of that type."""
        return np.asarray(self.type_of[:, None] == np.arange(len(self.types)), dtype=np.float64)


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
    missed_at: tuple[int, int] | None
    """the characters of the word outside that is likeliest to belong to one; None where there is no word outside"""
    words_outside: int

    @property
    def weakest(self) -> list[int]:
        """The tokens that decide the weakest words of its entities."""
        return [entity.token for entity in self.entities]

    @property
    def spans(self) -> tuple[tuple[int, int, int], ...]:
        """Start, end and type of each entity."""
        return tuple((entity.start, entity.end, entity.type) for entity in self.entities)


def word_starts(text: LocatedText, strategy: str) -> Integers:
    """The first token of each word, (words,)."""
    if strategy == "simple":
        return np.arange(len(text))
    if strategy == "words":
        if text.words is None:
            raise ConfigurationError(
                "aggregation_strategy='words' is for texts that are given as words; for a string use 'first', "
                "'simple', 'average' or 'max'."
            )
        return np.flatnonzero(np.diff(text.words, prepend=-2) != 0)
    begins = ~text.continues
    begins[:1] = True
    return np.flatnonzero(begins)


def decode(text: LocatedText, logits: Floats, scheme: TagScheme, strategy: str | None = None) -> Decoded:
    """The entities of a text from the logits of its tokens (passes, tokens, tags).

    Without a strategy the first token of a word decides, of a text that is given as words those of its words.
    """
    strategy = strategy or ("first" if text.words is None else "words")
    starts = word_starts(text, strategy)
    if not len(text):
        return Decoded((), -np.inf, None, 0)
    ends = np.append(starts[1:], len(text)) - 1
    spans = np.column_stack([text.places[starts, 0], text.places[ends, 1]])
    tokens = softmax(logits.mean(axis=0))
    chosen = starts
    if strategy == "max":  # the first of equals
        highest, pairs = tokens.max(axis=-1), zip(starts, ends, strict=True)
        chosen = np.array([first + highest[first : last + 1].argmax() for first, last in pairs], dtype=np.int64)
    decided = _joined(tokens, starts, chosen, strategy)
    passes = decided[None] if len(logits) == 1 else _joined(softmax(logits), starts, chosen, strategy)
    tags = decided.argmax(axis=-1)
    entities, outside = [], np.ones(len(starts), dtype=bool)
    begins, inside = passes @ scheme.begins, passes @ scheme.inside
    for first, last in _groups(tags, scheme):
        kind, words = int(scheme.type_of[tags[first]]), slice(first, last + 1)
        outside[words] = False
        probs = decided[np.arange(first, last + 1), tags[words]]
        of_types = _chances(begins, inside, first, last)
        odds = log_odds(of_types[:, kind])
        entities.append(
            Entity(
                start=int(spans[first, 0]),
                end=int(spans[last, 1]),
                type=kind,
                probability=float(of_types[:, kind].mean()),
                boundaries=float(of_types.sum(axis=1).mean()),
                token=int(chosen[first + probs.argmin()]),
                tokens=tuple(chosen[words].tolist()),
                spread=float(odds.var(ddof=1)) if len(odds) > 1 else float("nan"),
                score=float(probs.mean()),
            )
        )
    if scheme.outside is None or not outside.any():
        return Decoded(tuple(entities), -np.inf, None, 0)
    none = np.clip(decided[outside, scheme.outside], _LEAST, 1.0 - _LEAST)
    total, likeliest = float(np.log(none).sum()), int(none.argmin())
    start, end = spans[outside][likeliest].tolist()
    missed = float(np.log(-np.expm1(total)) - total)
    return Decoded(tuple(entities), missed, (start, end), len(none))


def _joined(tokens: Floats, starts: Integers, chosen: Integers, strategy: str) -> Floats:
    """Probabilities of words (..., words, tags) from those of tokens (..., tokens, tags)."""
    if strategy != "average":
        return tokens[..., chosen, :]
    sizes = np.diff(np.append(starts, tokens.shape[-2]))
    return np.asarray(np.add.reduceat(tokens, starts, axis=-2) / sizes[:, None])


def _groups(tags: Integers, scheme: TagScheme) -> list[tuple[int, int]]:
    """The first and last word of each entity."""
    groups: list[tuple[int, int]] = []
    last_type = -1
    for word, tag in enumerate(tags.tolist()):
        kind = int(scheme.type_of[tag])
        if kind >= 0 and kind == last_type and not scheme.split[tag][0]:
            groups[-1] = groups[-1][0], word
        elif kind >= 0:
            groups.append((word, word))
        last_type = kind
    return groups


def _chances(begins: Floats, inside: Floats, first: int, last: int) -> Floats:
    """The probability of an entity of each type at the words from first to last, (passes, types).

    `begins` and `inside` are of every word, of tags that begin and that continue each type: (passes, words, types).
    """
    begin = begins[:, first] + inside[:, first]
    if first > 0:
        begin = begins[:, first] + inside[:, first] * (1.0 - (begins[:, first - 1] + inside[:, first - 1]))
    chance = begin * inside[:, first + 1 : last + 1].prod(axis=1)
    return np.asarray(chance * (1.0 - inside[:, last + 1]) if last + 1 < inside.shape[1] else chance)


def log_odds(probabilities: Floats | Sequence[float]) -> Floats:
    """log p - log(1 - p), with p at least `_LEAST` away from 0 and 1."""
    p = np.clip(np.asarray(probabilities, dtype=np.float64), _LEAST, 1.0 - _LEAST)
    return np.asarray(np.log(p) - np.log1p(-p))
