"""Texts to the logits of every token and pass: the one place where a method is run over a token classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.runtime import Runtime, Settings, TokenChoice, TokenRuntime
from uatlite.classifier.tags import Decoded, TagScheme, decode
from uatlite.classifier.tags import log_odds as log_odds_of
from uatlite.methods.method import Method
from uatlite.model.tokens import Tokens
from uatlite.model.windows import LocatedTexts, TaggedText, locate
from uatlite.predictive import ROW_AXES, PassLogits
from uatlite.trust.answers import Answers
from uatlite.values import Floats, Integers, Text

MISSED_LIMIT = 20.0
"""Log-odds of a missed entity are cut to this; a text without words outside of entities has minus so much."""


@dataclass(frozen=True, eq=False)
class TokenOutputs:
    """What a method says about some texts, token by token: a `Reading`."""

    unit: ClassVar[str] = "entities"

    located: LocatedTexts
    scheme: TagScheme
    logits: tuple[Floats, ...]
    """(passes, tokens, tags) of each text"""
    decoded: tuple[Decoded, ...]
    """the entities of each text"""
    lesson: PassLogits
    """what is said at the token that decides the weakest word of each entity: of its margin the variance"""
    representations: Floats | None = None
    """(texts, units): the mean over the tokens of a text of what the encoder gives for them"""

    @property
    def cut(self) -> Integers:
        return np.array(self.located.tokens.cut, dtype=np.int64)

    @property
    def passes(self) -> Integers:
        return np.array([len(logits) for logits in self.logits], dtype=np.int64)

    @property
    def all_logits(self) -> Floats:
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

    def taught(self, variance: Floats) -> TokenOutputs:
        """The same with these variances of the weakest words, (entities, 1)."""
        return replace(self, lesson=replace(self.lesson, given_variance=variance))


def run_located(
    model: Runtime, texts: Sequence[Text], settings: Settings, like: TokenOutputs | None = None
) -> TokenOutputs:
    """The method's passes over texts, long ones cut or in windows, and the entities that come out.

    A method that knows variances without sampling gives that of the weakest word of each entity. With `like` these are
    the words that were weakest there, and only the windows that show them are run: the tokens of others have zeros.
    """
    scheme, strategy = TagScheme(model.class_names), settings.aggregation_strategy
    if not texts:
        nothing = PassLogits(np.zeros((1, 0, len(scheme.tags))))
        return TokenOutputs(LocatedTexts((), (), Tokens(None, (), ())), scheme, (), (), nothing)
    if like is None:
        tokenizer, tagged = cast(Any, model.tokenizer), cast("Sequence[TaggedText]", texts)  # they are checked
        located = locate(tokenizer, tagged, settings.max_length, windows=settings.windows)
        choose, groups = weakest_words(located, scheme, strategy), [list(range(len(located.windows)))]
    else:
        located, choose = like.located, fixed_tokens(like.located, [text.weakest for text in like.decoded])
        counts = [len(choose(number, np.zeros((0, 0)))) for number in range(len(located.windows))]
        # Windows with as many chosen tokens share batches: texts of a batch share their backward passes.
        groups = [[i for i, count in enumerate(counts) if count == many] for many in sorted(set(counts) - {0})]
    said = _run_windows(cast(TokenRuntime, model), located, settings.method, choose, groups)
    if like is None:
        pairs = zip(located.texts, said["logits"], strict=True)
        decoded = tuple(decode(text, of_text, scheme, strategy) for text, of_text in pairs)
    else:
        decoded = like.decoded
    weakest, read = [text.weakest for text in decoded], None
    if "representations" in said:  # of a text without tokens 0
        read = np.stack([of.sum(axis=0, dtype=np.float64) / max(len(of), 1) for of in said["representations"]])
    if "given_variance" in said:  # NaN where it was not asked for
        said["given_variance"] = tuple(np.nan_to_num(of) for of in said["given_variance"])
    lesson = {
        name: np.concatenate(
            [of.take(tokens, ROW_AXES[name]) for of, tokens in zip(values, weakest, strict=True)], ROW_AXES[name]
        ).astype(np.float64)
        for name, values in said.items()
    }
    return TokenOutputs(located, scheme, said["logits"], decoded, PassLogits(**lesson), read)


def _run_windows(
    runtime: TokenRuntime, located: LocatedTexts, method: Method, choose: TokenChoice, groups: Sequence[Sequence[int]]
) -> dict[str, tuple[NDArray[Any], ...]]:
    """Logits (passes, tokens, tags), and where there are some variances (tokens, 1) and representations (tokens, units)
    of the tokens of each text.

    The windows of a group share batches. Those of no group have zeros.
    """

    def tokens(window: int, logits: Floats) -> list[int]:
        inner = located.inner(window)  # within special tokens and padding
        return [inner.start + token for token in choose(window, logits[inner])]

    of_windows: dict[str, list[Any]] = {}
    batches = [batch for group in groups for batch in located.tokens.batches(group, **runtime.batching)]
    for batch, outputs in zip(batches, runtime.run(method, batches, tokens), strict=True):
        for name, axis in ROW_AXES.items():
            if (values := getattr(outputs, name)) is None:
                continue
            of_window = of_windows.setdefault(name, [None] * len(located.windows))
            for row, window in enumerate(batch.rows):
                shown = values.take(row, axis).take(np.r_[located.inner(window)], axis)
                of_window[window] = shown.astype(np.float32) if name == "representations" else shown
    for name, values in of_windows.items():
        shape = next(list(value.shape) for value in values if value is not None)
        for number, value in enumerate(values):
            if value is None:
                inner = located.inner(number)
                shape[ROW_AXES[name]] = inner.stop - inner.start
                values[number] = np.zeros(shape)
    return {name: tuple(located.stitched(values, axis=ROW_AXES[name])) for name, values in of_windows.items()}


def weakest_words(located: LocatedTexts, scheme: TagScheme, strategy: str | None) -> TokenChoice:
    """The token that decides the weakest word of each entity; in a text of several windows those of all its words."""
    shared = np.bincount([window.text for window in located.windows], minlength=len(located.texts)) > 1

    def choose(number: int, logits: Floats) -> Sequence[int]:
        window = located.windows[number]
        shown = located.texts[window.text].shown(window.start, window.stop)
        decoded = decode(shown, logits[None], scheme, strategy)
        if shared[window.text]:
            return [token for entity in decoded.entities for token in entity.tokens]
        return decoded.weakest

    return choose


def fixed_tokens(located: LocatedTexts, chosen: Sequence[Sequence[int]]) -> TokenChoice:
    """Tokens that are chosen beforehand, by their places among those of each text."""

    def choose(number: int, logits: Floats) -> Sequence[int]:
        window = located.windows[number]
        return [token - window.start for token in chosen[window.text] if window.first <= token < window.last]

    return choose


def entity_answers(outputs: TokenOutputs) -> Answers:
    """One answer for each entity, text by text: is it right as a whole, its span and its type?

    Its log-odds are those of its probability, its variance that of its weakest word's margin, or over passes that of
    the log-odds. The mean probability of its tags is the only feature: what says nothing of the model's confidence,
    such as an entity's length, tells right from wrong in one domain and misleads in the next.
    """
    pairs = [(row, entity) for row, text in enumerate(outputs.decoded) for entity in text.entities]
    variance = outputs.lesson.given_variance
    if variance is None and len(outputs.lesson.logits) > 1:
        variance = np.array([entity.spread for _, entity in pairs], dtype=np.float64)
    return Answers(
        text=np.array([row for row, _ in pairs], dtype=np.int64),
        kind=np.array([entity.type for _, entity in pairs], dtype=np.int64),
        log_odds=log_odds_of([entity.probability for _, entity in pairs]),
        variance=None if variance is None else np.nan_to_num(variance).reshape(len(pairs)),
        texts=len(outputs.decoded),
        features=log_odds_of([entity.score for _, entity in pairs]).reshape(len(pairs), 1),
    )


def missed_answers(decoded: Sequence[Decoded]) -> Answers:
    """One answer for each text: is an entity missed in it?"""
    texts, doubts = len(decoded), [sum(1.0 - entity.probability for entity in text.entities) for text in decoded]
    features = np.column_stack([np.log1p([text.words_outside for text in decoded]), doubts]).astype(np.float64)
    none = np.zeros(texts, dtype=np.int64)
    return Answers(np.arange(texts), none, _missed_odds(decoded), None, texts, features.reshape(texts, 2))


def _missed_odds(decoded: Sequence[Decoded]) -> Floats:
    """(texts,): the log-odds that an entity is missed, cut to `MISSED_LIMIT`."""
    return np.clip([text.missed for text in decoded], -MISSED_LIMIT, MISSED_LIMIT).reshape(len(decoded))


def text_log_odds(decoded: Sequence[Decoded], answers: Answers) -> Floats:
    """The lowest log-odds of a text's entities, or of no entity being missed, (texts,): how sure the text is."""
    lowest = -_missed_odds(decoded)
    np.minimum.at(lowest, answers.text, answers.log_odds)
    return lowest


_PRIOR = 0.1
"""Entities that a text counts as having found and as having missed, besides those that it is expected to."""


def recall_scores(decoded: Sequence[Decoded]) -> Floats:
    """(right + 0.1) / (right + missed + 0.2), (texts,): what ranks texts where few entities shall be missed.

    Right is the sum of the probabilities of a text's entities; missed is what they lack to 1, and the probability that
    one is missed among the other words. Nothing is fitted for it.
    """
    right = np.array([sum(entity.probability for entity in text.entities) for text in decoded], dtype=np.float64)
    wrong = np.array([len(text.entities) for text in decoded], dtype=np.float64) - right
    others = 1.0 / (1.0 + np.exp(-_missed_odds(decoded)))
    return np.asarray((right + _PRIOR) / (right + wrong + others + 2 * _PRIOR))
