"""Texts to the logits of every token and pass: the one place where a method is run over a token classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.runtime import Runtime, TokenChoice
from uatlite.classifier.settings import Settings
from uatlite.classifier.tags import Decoded, TagScheme, decode
from uatlite.classifier.tags import log_odds as log_odds_of
from uatlite.methods.method import Method
from uatlite.model.tokens import Batch, Tokens
from uatlite.model.windows import LocatedText, LocatedTexts, TaggedText, locate
from uatlite.predictive import PassLogits
from uatlite.trust.answers import Answers
from uatlite.values import Floats, Integers, Text

if TYPE_CHECKING:
    pass

_Choose = Callable[[int, Floats], Sequence[int]]
"""From the number of a window and the logits of its tokens (tokens, tags) to the tokens whose variance is asked for."""

MISSED_LIMIT = 20.0
"""Log-odds of a missed entity are cut to this; a text without words outside of entities has minus so much."""


@dataclass(frozen=True, eq=False)
class TokenOutputs:
    """What a method says about some texts, token by token: a `Reading`."""

    unit: ClassVar[str] = "entities"
    """what the rows of `lesson` are"""

    located: LocatedTexts
    scheme: TagScheme
    logits: tuple[Floats, ...]
    """(passes, tokens, tags) of each text"""
    decoded: tuple[Decoded, ...]
    """the entities of each text"""
    variances: tuple[Floats, ...] | None = None
    """(tokens,) of each text: of the margin, NaN where it was not asked for; None where the method does not know it"""
    representations: Floats | None = None
    """(texts, units): the mean over the tokens of a text of what the encoder gives for them"""
    weakest: tuple[tuple[int, ...], ...] = ()
    """the tokens of each text that decide the weakest words of its entities"""
    weakest_states: Floats | None = None
    """(entities, units): what the encoder gives for them"""

    @property
    def cut(self) -> Integers:
        """(texts,): tokens that were cut off."""
        return np.array(self.located.tokens.cut, dtype=np.int64)

    @property
    def passes(self) -> Integers:
        """(texts,): passes run for each text."""
        return np.array([len(logits) for logits in self.logits], dtype=np.int64)

    @property
    def all_logits(self) -> Floats:
        """(passes, tokens, tags): those of every token."""
        return np.concatenate(self.logits, axis=1)

    @property
    def scope_logits(self) -> Floats:
        """(texts, 2): of having no entity and of having one."""
        outside, of_texts = self.scheme.outside, np.zeros((len(self.logits), 2))
        for row, logits in enumerate(self.logits):
            if logits.shape[1] and outside is not None:
                mean = logits.mean(axis=0)
                of_texts[row, 1] = (np.delete(mean, outside, axis=1).max(axis=1) - mean[:, outside]).max()
        return of_texts

    @property
    def lesson(self) -> PassLogits:
        """The weakest words of all entities."""
        logits = [logits[:, list(tokens)] for logits, tokens in zip(self.logits, self.weakest, strict=True)]
        variance = None
        if self.variances is not None:
            chosen = [values[list(tokens)] for values, tokens in zip(self.variances, self.weakest, strict=True)]
            variance = np.nan_to_num(np.concatenate(chosen))[:, None]
        return PassLogits(np.concatenate(logits, axis=1), variance, self.weakest_states)

    def taught(self, variance: Floats) -> TokenOutputs:
        """The same with these variances of the weakest words, (entities, 1)."""
        ends = np.cumsum([len(tokens) for tokens in self.weakest])
        variances = tuple(np.full(len(text), np.nan) for text in self.located.texts)
        for values, tokens, end in zip(variances, self.weakest, ends.tolist(), strict=True):
            values[list(tokens)] = variance[end - len(tokens) : end, 0]
        return replace(self, variances=variances)


def run_tokens(
    runtime: Runtime, texts: Sequence[Text], settings: Settings, like: TokenOutputs | None = None
) -> TokenOutputs:
    """The method's passes over texts, and the entities that come out.

    A method that knows variances without sampling gives that of the weakest word of each entity. With `like` these are
    the words that were weakest there, and only the windows that show them are run: the tokens of others have zeros.
    """
    scheme, strategy = TagScheme(runtime.class_names), settings.aggregation_strategy
    if not texts:
        return TokenOutputs(LocatedTexts((), (), Tokens(None, (), ())), scheme, (), ())
    if like is None:
        located = locate_texts(runtime, texts, settings)
        choose, groups = weakest_words(located, scheme, strategy), [list(range(len(located.windows)))]
    else:
        located, choose = like.located, fixed_tokens(like.located, like.weakest)
        groups = _alike(located, choose)
    logits, variances, states = _run_windows(runtime, located, settings.method, choose, groups)
    of_texts = located.stitched(logits, axis=1)
    if like is None:
        decoded = tuple(decode(*text, scheme, strategy) for text in zip(located.texts, of_texts, strict=True))
        weakest = tuple(tuple(entity.token for entity in text.entities) for text in decoded)
    else:
        decoded, weakest = like.decoded, like.weakest
    read = None if states is None else located.stitched(states)
    return TokenOutputs(
        located=located,
        scheme=scheme,
        logits=tuple(of_texts),
        decoded=decoded,
        variances=None if variances is None else tuple(located.stitched(variances)),
        representations=None if read is None else _means(read),
        weakest=weakest,
        weakest_states=None if read is None else _at(read, weakest),
    )


def locate_texts(runtime: Runtime, texts: Sequence[Text], settings: Settings) -> LocatedTexts:
    """The tokens of texts, long ones cut or in windows as the settings say."""
    tokenizer: Any = runtime.tokenizer
    tagged = cast("Sequence[TaggedText]", texts)  # checked
    return locate(tokenizer, tagged, settings.max_length, windows=settings.windows)


def _run_windows(
    runtime: Runtime, located: LocatedTexts, method: Method, choose: _Choose, groups: Sequence[Sequence[int]]
) -> tuple[list[Any], list[Any] | None, list[Any] | None]:
    """Logits (passes, tokens, tags), variances (tokens,) and states (tokens, units) of the inner tokens of each window.

    The windows of a group share batches. Those of no group have zeros.
    """
    count = len(located.windows)
    logits: list[Any] = [None] * count
    variances: list[Any] = [None] * count
    states: list[Any] = [None] * count
    for batch in (batch for group in groups for batch in located.tokens.batches(group)):
        outputs = runtime.run(method, batch, _of_rows(located, batch, choose))
        for row, window in enumerate(batch.rows):
            inner = located.inner(window)
            logits[window] = outputs.logits[:, row, inner]
            if outputs.given_variance is not None:
                variances[window] = outputs.given_variance[row, inner, 0]
            if outputs.representations is not None:
                states[window] = outputs.representations[row, inner].astype(np.float32)
    for values, axis in ((logits, 1), (variances, 0), (states, 0)):
        _fill(located, values, axis=axis)
    return logits, None if variances[0] is None else variances, None if states[0] is None else states


def _fill(located: LocatedTexts, values: list[Any], *, axis: int) -> None:
    """Give windows that were not run zeros, in the shape of those that were; `axis` is that of the tokens."""
    like = next((value for value in values if value is not None), None)
    if like is None:
        return
    for number, window in enumerate(located.windows):
        if values[number] is None:
            shape = list(like.shape)
            shape[axis] = window.stop - window.start
            values[number] = np.zeros(shape, dtype=like.dtype)


def _alike(located: LocatedTexts, choose: _Choose) -> list[list[int]]:
    """The windows with chosen tokens, those with as many in one group: texts of a batch share their backward passes."""
    counts = [len(choose(number, np.zeros((0, 0)))) for number in range(len(located.windows))]
    return [[place for place, count in enumerate(counts) if count == wanted] for wanted in sorted(set(counts) - {0})]


def _means(states: Sequence[NDArray[np.float32]]) -> Floats:
    """The mean over the tokens of each text, (texts, units); 0 of a text without tokens."""
    units = states[0].shape[1]
    found = [one.mean(axis=0, dtype=np.float64) if len(one) else np.zeros(units) for one in states]
    return np.stack(found)


def _at(states: Sequence[NDArray[np.float32]], tokens: Sequence[Sequence[int]]) -> Floats:
    """The states of some tokens of each text, (tokens, units)."""
    chosen = [values[list(of_text)] for values, of_text in zip(states, tokens, strict=True)]
    return np.concatenate(chosen).astype(np.float64)


def _of_rows(located: LocatedTexts, batch: Batch, choose: _Choose) -> TokenChoice:
    """The chosen tokens of each row of a batch, a window with special tokens and padding around it."""

    def tokens(row: int, logits: Floats) -> list[int]:
        inner = located.inner(batch.rows[row])
        return [inner.start + token for token in choose(batch.rows[row], logits[inner])]

    return tokens


def weakest_words(located: LocatedTexts, scheme: TagScheme, strategy: str | None) -> _Choose:
    """The token that decides the weakest word of each entity; in a text of several windows those of all its words."""
    shared = np.bincount([window.text for window in located.windows], minlength=len(located.texts)) > 1

    def choose(number: int, logits: Floats) -> Sequence[int]:
        window = located.windows[number]
        part = shown_part(located.texts[window.text], window.start, window.stop)
        found = decode(part, logits[None], scheme, strategy).entities
        if shared[window.text]:
            return [token for entity in found for token in entity.tokens]
        return [entity.token for entity in found]

    return choose


def fixed_tokens(located: LocatedTexts, chosen: Sequence[Sequence[int]]) -> _Choose:
    """Tokens that are chosen beforehand, by their places among those of each text."""

    def choose(number: int, logits: Floats) -> Sequence[int]:
        window = located.windows[number]
        return [token - window.start for token in chosen[window.text] if window.first <= token < window.last]

    return choose


def shown_part(text: LocatedText, start: int, stop: int) -> LocatedText:
    """Some of a text's tokens."""
    some = slice(start, stop)
    words = None if text.words is None else text.words[some]
    return replace(text, places=text.places[some], continues=text.continues[some], words=words)


def entity_answers(outputs: TokenOutputs) -> Answers:
    """One answer for each entity, text by text: is it right as a whole, its span and its type?

    Its log-odds are those of its probability, its variance that of its weakest word's margin, or over passes that of
    the log-odds. The mean probability of its tags is the only feature: what says nothing of the model's confidence,
    such as an entity's length, tells right from wrong in one domain and misleads in the next.
    """
    pairs = [(row, entity) for row, one in enumerate(outputs.decoded) for entity in one.entities]
    if outputs.variances is not None:
        of_entities = np.array([outputs.variances[row][entity.token] for row, entity in pairs], dtype=np.float64)
    else:
        of_entities = np.array([entity.spread for _, entity in pairs], dtype=np.float64)
    sampled = bool(len(outputs.logits)) and len(outputs.logits[0]) > 1
    return Answers(
        text=np.array([row for row, _ in pairs], dtype=np.int64),
        kind=np.array([entity.type for _, entity in pairs], dtype=np.int64),
        log_odds=log_odds_of([entity.probability for _, entity in pairs]),
        variance=np.nan_to_num(of_entities) if outputs.variances is not None or sampled else None,
        texts=len(outputs.decoded),
        features=log_odds_of([entity.score for _, entity in pairs]).reshape(len(pairs), 1),
    )


def missed_answers(decoded: Sequence[Decoded]) -> Answers:
    """One answer for each text: is an entity missed in it?"""
    doubts = [sum(1.0 - entity.probability for entity in one.entities) for one in decoded]
    texts = len(decoded)
    return Answers(
        text=np.arange(texts),
        kind=np.zeros(texts, dtype=np.int64),
        log_odds=np.clip([one.missed for one in decoded], -MISSED_LIMIT, MISSED_LIMIT).reshape(texts),
        variance=None,
        texts=texts,
        features=np.array([(np.log1p(one.words_outside), doubt) for one, doubt in zip(decoded, doubts, strict=True)])
        .astype(np.float64)
        .reshape(texts, 2),
    )


def text_log_odds(decoded: Sequence[Decoded], answers: Answers) -> Floats:
    """The lowest log-odds of a text's entities, or of no entity being missed, (texts,): how sure the text is."""
    found = -np.clip([one.missed for one in decoded], -MISSED_LIMIT, MISSED_LIMIT).reshape(len(decoded))
    np.minimum.at(found, answers.text, answers.log_odds)
    return np.asarray(found)


_PRIOR = 0.1
"""Entities that a text counts as having found and as having missed, besides those that it is expected to."""


def recall_scores(decoded: Sequence[Decoded]) -> Floats:
    """(found + 0.1) / (found + missed + 0.2), (texts,): what ranks texts where few entities shall be missed.

    Found is the sum of the probabilities of a text's entities; missed is what they lack to 1, and the probability that
    one is missed among the other words. Nothing is fitted for it.
    """
    chances = [[entity.probability for entity in one.entities] for one in decoded]
    found = np.array([sum(some) for some in chances], dtype=np.float64)
    wrong = np.array([len(some) for some in chances], dtype=np.float64) - found
    others = 1.0 / (1.0 + np.exp(-missed_answers(decoded).log_odds))
    return np.asarray((found + _PRIOR) / (found + wrong + others + 2 * _PRIOR))
