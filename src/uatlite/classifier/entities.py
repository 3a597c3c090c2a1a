"""Entities: which of them are reported, where one may be missed, and whether a person should look."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from uatlite.classifier.predictions import LOG_ODDS, Predictions, Wording
from uatlite.classifier.reasons import BELOW, MISSED, NO_PROMISE
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.settings import Settings
from uatlite.classifier.tags import Decoded, TagScheme
from uatlite.classifier.token_run import (
    TokenOutputs,
    entity_answers,
    missed_answers,
    recall_scores,
    run_tokens,
    text_log_odds,
)
from uatlite.errors import InputError
from uatlite.predictive import sigmoid
from uatlite.text.examples import text_fault
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.rule import Rule
from uatlite.values import Floats, Kind, Marks, Text, Words, strings


@dataclass(frozen=True)
class FoundEntity:
    """An entity that is found in a text."""

    start: int
    """its first character"""
    end: int
    """the character after its last"""
    text: str
    label: str | int
    """its type, by name (or by column, as the tagger was told)"""
    confidence: float
    """that it is right as a whole, span and type; calibrated where the tagger is"""
    boundaries: float
    """the probability that an entity of any type has exactly these boundaries, before calibration"""
    variance: float | None
    """of its log-odds under dropout; None where it is not known"""
    reported: bool
    """whether the rule reports it; without a rule every entity is reported"""

    def __str__(self) -> str:
        return f"{self.text} {self.label} {self.confidence:.0%}{'' if self.reported else ' (withheld)'}"


ENTITY_EXAMPLE = [asdict(FoundEntity(0, 3, "Ada", "person", 0.9, 0.9, 0.1, True))]
"""A value of the column `entities`, from which a table takes its type."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EntityPredictions(Predictions):
    """The entities of texts."""

    by_text = (*Predictions.by_text, "decoded", "missed")
    shown = ("entities", "abstain", "reason", "scope")
    words = Wording(
        model="entities",
        classes="types of entities",
        task="token-classification",
        usage="pred.entities, pred.missed, pred.reasons",
        advice="report entities by; ask for one: calibrate(texts, entities, target_risk=0.1), or target_recall=0.9.",
        deciding="reporting",
        options="--target-risk or --target-recall",
        example="--target-risk 0.1",
    )

    decoded: tuple[Decoded, ...]
    """the entities of each text, before calibration"""
    missed: Floats
    """(texts,): the probability that an entity of the text is not found, or not as it is"""

    @property
    def recall_rule(self) -> Rule | None:
        """The rule by which a person should look at texts where entities may be missed; None without one."""
        return next((rule for rule in self.rules if rule.kind == "recall"), None)

    @cached_property
    def too_much_missed(self) -> Marks:
        """(texts,): True where the rule for recall does not answer a text, as an entity may be missed in it."""
        if self.recall_rule is None:
            return np.zeros(len(self), dtype=np.bool_)
        return ~self.recall_rule.reports(recall_scores(self.decoded))

    @cached_property
    def entities(self) -> list[tuple[FoundEntity, ...]]:
        """For each text all entities that are found in it, reported or not."""
        variance = self.answers.variance
        numbers = iter(range(len(self.answers)))
        return [
            tuple(
                FoundEntity(
                    start=entity.start,
                    end=entity.end,
                    text=strings(text)[0][entity.start : entity.end],
                    label=self.names[entity.type],
                    confidence=float(self.sure[i]),
                    boundaries=entity.boundaries,
                    variance=None if variance is None else float(variance[i]),
                    reported=bool(self.reports[i]),
                )
                for entity, i in zip(decoded.entities, numbers, strict=False)
            )
            for text, decoded in zip(self.texts, self.decoded, strict=True)
        ]

    @property
    def reported(self) -> list[tuple[FoundEntity, ...]]:
        """For each text the entities that are reported."""
        return [tuple(entity for entity in entities if entity.reported) for entities in self.entities]

    @property
    def missed_at(self) -> list[tuple[int, int] | None]:
        """For each text the characters of the word outside of all entities that is likeliest to belong to one."""
        return [decoded.place for decoded in self.decoded]

    @cached_property
    def log_odds(self) -> Floats:
        """(texts,): the lowest log-odds of an entity, or of no entity being missed; a shift is told by it."""
        return text_log_odds(self.decoded, self.answers)

    @cached_property
    def confidence(self) -> Floats:
        """(texts,): that of its least sure entity; 1 of a text without one."""
        least = np.ones(len(self))
        np.minimum.at(least, self.answers.text, self.sure)
        return least

    def scores(self, name: str) -> Floats:
        return self.answers.log_odds if name == LOG_ODDS else self.sure

    def text_scores(self, name: str) -> Floats:
        return self.log_odds

    @property
    def outcomes(self) -> Sequence[object]:
        return [tuple((entity.start, entity.end, entity.type) for entity in text.entities) for text in self.decoded]

    def _reported_by(self, rule: Rule | None) -> Marks:
        if rule is None:
            return np.ones(len(self.answers), dtype=np.bool_)
        return rule.reports(self.scores(rule.score), self.answers.text)

    def _cases(self) -> dict[str, Marks]:
        """An entity is withheld, or one may be missed."""
        withheld = np.zeros(len(self), dtype=np.bool_)
        withheld[self.answers.text[~self.reports]] = True
        unsure = withheld | self.too_much_missed
        promised = all(rule.promised for rule in self.rules)
        return {NO_PROMISE: unsure & (not promised), MISSED: self.too_much_missed, BELOW: unsure}

    def _above(self) -> Floats:
        """The lowest score of an entity minus the threshold; infinite of a text without one."""
        lowest = np.full(len(self), np.inf)
        if self.rule is not None:
            np.minimum.at(lowest, self.answers.text, self.scores(self.rule.score) - self.rule.threshold)
        return lowest

    def _columns(self) -> dict[str, Any]:
        names = ("entities", "confidence", "log_odds", "missed", "missed_at")
        return {name: getattr(self, name) for name in names}

    def _counted(self) -> str:
        return f"{len(self.answers):,} entities, {int(self.reports.sum()):,} reported"


@dataclass(frozen=True, eq=False)
class EntityCalibrator:
    """The probability that an entity is right as a whole, and that one is missed in a text."""

    found: AnswerCalibrator
    missed: AnswerCalibrator


@dataclass(frozen=True)
class Entities:
    """A text has entities: an `AnswerKind`."""

    name: Kind = "entities"
    words: ClassVar[Wording] = EntityPredictions.words

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        return TagScheme(model.class_names).names

    def texts(self, given: Iterable[object], classes: Sequence[str]) -> list[Text]:
        checked: list[Text] = []
        for i, value in enumerate(given):
            text = Words(tuple(value)) if isinstance(value, list | tuple) else value
            words = text.tokens if isinstance(text, Words) else ("a",)
            if not isinstance(text, str | Words) or not all(isinstance(word, str) and word.strip() for word in words):
                raise InputError(
                    f"texts[{i}] is {value!r:.80}; allowed are a string, or a list of words, none of them empty."
                )
            if not (words and (text.strip() if isinstance(text, str) else True)):
                raise InputError(f"texts[{i}] is empty; leave it out.")
            checked.append(text)
        return checked

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        if not isinstance(text, str | Words):
            return "a pair of texts or a question, and entities are sought in one text"
        return text_fault(strings(text)[0], chooses=False)

    def read(
        self, model: Runtime, texts: Sequence[Text], settings: Settings, like: TokenOutputs | None = None
    ) -> TokenOutputs:
        return run_tokens(model, texts, settings, like)

    def say(
        self,
        texts: Sequence[Text],
        reading: TokenOutputs,
        calibrator: EntityCalibrator | None,
        classes: tuple[str, ...],
    ) -> EntityPredictions:
        answers, missed = entity_answers(reading), missed_answers(reading.decoded)
        return EntityPredictions(
            texts=tuple(texts),
            classes=classes,
            decoded=reading.decoded,
            answers=answers,
            sure=sigmoid(answers.log_odds) if calibrator is None else calibrator.found.confidence(answers),
            missed=sigmoid(missed.log_odds) if calibrator is None else calibrator.missed.confidence(missed),
            passes=reading.passes,
            cut=reading.cut,
        )


ENTITIES = Entities()
