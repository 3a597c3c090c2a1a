"""Texts to the logits of every token and pass: the one place where a method is run over a token classifier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.runtime import Runtime, TorchRuntime
from uatlite.classifier.settings import Settings
from uatlite.classifier.tags import Decoded, TagScheme, decode
from uatlite.classifier.tags import log_odds as log_odds_of
from uatlite.errors import ModelError
from uatlite.methods.method import Method
from uatlite.model.spans import LocatedText, LocatedTexts, TaggedText, locate
from uatlite.model.tokens import Batch, Tokens
from uatlite.predictive import PassLogits
from uatlite.trust.answers import Answers
from uatlite.values import Floats, Integers

if TYPE_CHECKING:
    from torch import Tensor

Choose = Callable[[int, Floats], Sequence[int]]
"""From the number of a window and the logits of its tokens (tokens, tags) to the tokens whose variance is asked for."""

MISSED_LIMIT = 20.0
"""Log-odds of a missed entity are cut to this; a text without words outside of entities has minus so much."""


@dataclass(frozen=True, eq=False)
class TokenOutputs:
    """What a method says about some texts, token by token."""

    located: LocatedTexts
    logits: tuple[Floats, ...]
    """(passes, tokens, tags) of each text"""
    variances: tuple[Floats, ...] | None
    """(tokens,) of each text: of the margin, NaN where it was not asked for; None where the method does not know it"""
    representations: Floats | None
    """(texts, units): the mean over the tokens of a text of what the encoder gives for them"""
    decoded: tuple[Decoded, ...]
    """the entities of each text"""

    @classmethod
    def nothing(cls) -> TokenOutputs:
        """Of no texts."""
        return cls(LocatedTexts((), (), Tokens(None, (), ())), (), None, None, ())

    @property
    def cut(self) -> Integers:
        """(texts,): tokens that were cut off."""
        return np.array(self.located.tokens.cut, dtype=np.int64)

    @property
    def passes(self) -> Integers:
        """(texts,): passes run for each text."""
        return np.array([len(one) for one in self.logits], dtype=np.int64)

    def text_outputs(self, scheme: TagScheme) -> PassLogits:
        """What tells whether a text is in scope: logits of having no entity and of having one, and representations."""
        outside, logits = scheme.outside, np.zeros((1, len(self.logits), 2))
        for row, one in enumerate(self.logits):
            if one.shape[1] and outside is not None:
                mean = one.mean(axis=0)
                logits[0, row, 1] = (np.delete(mean, outside, axis=1).max(axis=1) - mean[:, outside]).max()
        return PassLogits(logits, representations=self.representations)

    def tokens(self, chosen: Sequence[Sequence[int]]) -> PassLogits:
        """What is said about some tokens of each text; rows are these tokens."""
        logits = np.concatenate([one[:, list(some)] for one, some in zip(self.logits, chosen, strict=True)], axis=1)
        if self.variances is None:
            return PassLogits(logits)
        given = [one[list(some)] for one, some in zip(self.variances, chosen, strict=True)]
        return PassLogits(logits, np.nan_to_num(np.concatenate(given)))


def run_tokens(
    runtime: Runtime, texts: Sequence[TaggedText], settings: Settings, scheme: TagScheme, strategy: str | None
) -> TokenOutputs:
    """The method's passes over texts, and the entities that come out.

    A method that knows variances without sampling gives that of the weakest word of each entity.
    """
    located = locate_texts(runtime, texts, settings)
    return run_located(runtime, located, settings.method, scheme, strategy, weakest_words(located, scheme, strategy))[0]


def locate_texts(runtime: Runtime, texts: Sequence[TaggedText], settings: Settings) -> LocatedTexts:
    """The tokens of texts, long ones cut or in windows as the settings say."""
    tokenizer: Any = runtime.tokenizer
    return locate(tokenizer, texts, settings.max_length, windows=settings.windows)


def run_located(
    runtime: Runtime,
    located: LocatedTexts,
    method: Method,
    scheme: TagScheme,
    strategy: str | None,
    choose: Choose,
    groups: Sequence[Sequence[int]] | None = None,
) -> tuple[TokenOutputs, tuple[NDArray[np.float32], ...] | None]:
    """The method's passes over located texts; and what the encoder gives for each token, (tokens, units) a text.

    With `groups` only these windows are run, those of a group in the same batches; the tokens of others have zeros.
    """
    if not isinstance(runtime, TorchRuntime):
        raise ModelError("an exported model cannot tag texts; use the checkpoint that it was exported from.")
    count = len(located.windows)
    logits: list[Any] = [None] * count
    variances: list[Any] = [None] * count
    read: list[Any] = [None] * count
    every = [range(count)] if groups is None else groups
    for batch in (batch for group in every for batch in located.tokens.batches(group)):
        passes = method.run_tokens(runtime.model, batch.inputs, _candidates(located, batch, choose))
        whole, variance = _array(passes.logits), _array(passes.margin_variance)
        representation = _array(passes.representation)
        assert whole is not None
        for place, window in enumerate(batch.rows):
            inner = located.inner(window)
            logits[window] = whole[:, place, inner].astype(np.float64)
            variances[window] = None if variance is None else variance[place, inner].astype(np.float64)
            read[window] = None if representation is None else representation[place, inner]
    _fill(located, (logits, 1), (variances, 0), (read, 0))
    known, seen = variances[0] is not None, read[0] is not None
    of_texts = located.stitched(logits, axis=1)
    states = tuple(located.stitched(read)) if seen else None
    outputs = TokenOutputs(
        located=located,
        logits=tuple(of_texts),
        variances=tuple(located.stitched(variances)) if known else None,
        representations=None if states is None else _means(states),
        decoded=tuple(decode(text, one, scheme, strategy) for text, one in zip(located.texts, of_texts, strict=True)),
    )
    return outputs, states


def _fill(located: LocatedTexts, *lists: tuple[list[Any], int]) -> None:
    """Give windows that were not run zeros, in the shape of those that were; `int` is the axis of tokens."""
    for values, axis in lists:
        like = next((value for value in values if value is not None), None)
        if like is None:
            continue
        for number, window in enumerate(located.windows):
            if values[number] is None:
                shape = list(like.shape)
                shape[axis] = window.stop - window.start
                values[number] = np.zeros(shape, dtype=like.dtype)


def _array(value: Tensor | None) -> NDArray[np.float32] | None:
    return None if value is None else value.detach().cpu().numpy()


def _means(states: Sequence[NDArray[np.float32]]) -> Floats:
    """The mean over the tokens of each text, (texts, units); 0 of a text without tokens."""
    units = states[0].shape[1]
    found = [one.mean(axis=0, dtype=np.float64) if len(one) else np.zeros(units) for one in states]
    return np.stack(found)


def _candidates(located: LocatedTexts, batch: Batch, choose: Choose) -> Callable[[Tensor, Tensor], Tensor]:
    """The chosen tokens of each window as a mask over a padded batch."""
    import torch

    def find(rows: Tensor, logits: Tensor) -> Tensor:
        mask = torch.zeros(logits.shape[:2], dtype=torch.bool)
        for place, row in enumerate(rows.tolist()):
            window = batch.rows[row]
            inner = located.inner(window)
            values = logits[place, inner].double().cpu().numpy()
            mask[place, [inner.start + token for token in choose(window, values)]] = True
        return mask

    return find


def weakest_words(located: LocatedTexts, scheme: TagScheme, strategy: str | None) -> Choose:
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


def fixed_tokens(located: LocatedTexts, chosen: Sequence[Sequence[int]]) -> Choose:
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


def entity_answers(outputs: TokenOutputs, variances: Sequence[Floats] | None = None) -> Answers:
    """One answer for each entity, text by text: is it right as a whole, its span and its type?

    Its log-odds are those of its probability, its variance that of its weakest word's margin, or over passes that of
    the log-odds. `variances` take the place of the outputs' own. The mean probability of its tags is the only feature:
    what says nothing of the model's confidence, such as an entity's length, tells right from wrong in one domain and
    misleads in the next.
    """
    pairs = [(row, entity) for row, one in enumerate(outputs.decoded) for entity in one.entities]
    known = outputs.variances if variances is None else variances
    if known is not None:
        of_entities = np.array([known[row][entity.token] for row, entity in pairs], dtype=np.float64)
    else:
        of_entities = np.array([entity.spread for _, entity in pairs], dtype=np.float64)
    sampled = bool(len(outputs.logits)) and len(outputs.logits[0]) > 1
    return Answers(
        text=np.array([row for row, _ in pairs], dtype=np.int64),
        kind=np.array([entity.type for _, entity in pairs], dtype=np.int64),
        log_odds=log_odds_of([entity.probability for _, entity in pairs]),
        variance=np.nan_to_num(of_entities) if known is not None or sampled else None,
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


PRIOR = 0.1
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
    return np.asarray((found + PRIOR) / (found + wrong + others + 2 * PRIOR))
