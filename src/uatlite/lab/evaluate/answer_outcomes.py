"""Texts with several gold answers, what a model says about them, and its metrics: entities, or labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.entities import EntityPredictions
from uatlite.classifier.many_labels import LabelPredictions
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.errors import DataError
from uatlite.lab.evaluate.promise_check import ReportedAnswers
from uatlite.metrics.answers import AnswerRows, Found, LabelRows
from uatlite.metrics.intervals import Estimate
from uatlite.metrics.rows import Rows
from uatlite.text.labels import fold, label_matrix
from uatlite.values import Dataset, Floats, Integers, Span, Text

SeveralPredictions = EntityPredictions | LabelPredictions

ENTITY_METRICS = ("answer_nll", "answer_ece", "answer_aurc", "wrong_auroc", "f1", "precision", "recall")
LABEL_METRICS = (
    "label_nll", "label_ece", "label_brier", "pair_aurc", "micro_average_precision", "macro_average_precision",
    "micro_f1", "macro_f1",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class GoldRows:
    """The texts of a set with their gold answers, by the names of the model."""

    name: str
    source: str
    texts: list[Text]
    gold: Any
    """the entities of each text, as Spans; or its labels, (texts, labels)"""
    unknown: int
    """gold answers of kinds that the model does not know, which are not counted"""

    @classmethod
    def of(cls, dataset: Dataset, classes: Sequence[str]) -> "GoldRows":
        """The rows of a data set for a model of these types or labels; names are compared without regard to case."""
        names = {fold(name): name for name in classes}
        entities = dataset.examples[0].entities is not None
        given: list[list[Any]] = [
            list(one.entities or ()) if entities else [dataset.labels[place] for place in one.labels or ()]
            for one in dataset.examples
        ]
        known = [
            [_named(answer, names) for answer in own if fold(_label(answer)) in names]  # another kind is never found
            for own in given
        ]
        there, kept = sum(map(len, given)), sum(map(len, known))
        if there and not kept:
            raise DataError(
                f"{dataset.name}/{dataset.split}: none of its labels ({', '.join(dataset.labels)}) is one of the "
                f"model's: {', '.join(classes)}. Evaluate a model of this task."
            )
        return cls(
            name=f"{dataset.name}/{dataset.split}",
            source=dataset.source,
            texts=[example.text for example in dataset.examples],
            gold=[tuple(own) for own in known] if entities else label_matrix(known, classes),
            unknown=there - kept,
        )

    @property
    def note(self) -> str:
        """How the names of the set fit those of the model."""
        if not self.unknown:
            return "every gold answer is of a kind that the model knows"
        return f"{self.unknown:,} gold answers are of kinds that the model does not know, and are not counted"


def _label(answer: Span | str) -> str:
    return answer if isinstance(answer, str) else answer.label


def _named(answer: Span | str, names: Mapping[str, str]) -> Span | str:
    name = names[fold(_label(answer))]
    return name if isinstance(answer, str) else answer._replace(label=name)


@dataclass(frozen=True, eq=False)
class AnswerOutcome:
    """Answers with their confidence, right or wrong: what a reliability diagram and a risk–coverage curve need."""

    confidence: Floats
    """(answers,): that an entity is right, or that a label applies"""
    right: NDArray[np.bool_]
    text: Integers
    texts: int
    pairs: bool
    """whether an answer is a pair of a text and a label: a yes or a no"""

    @cached_property
    def applies(self) -> AnswerRows:
        """The confidence that an answer is right, or applies, against whether it does."""
        return AnswerRows.of(self.confidence, self.right, self.text, texts=self.texts)

    @cached_property
    def rows(self) -> Rows:
        """As rows to rank: entities by confidence, pairs by how sure their yes or no is."""
        own = self.applies
        return Rows(own.probabilities, own.labels, own.precision) if self.pairs else own

    @property
    def probabilities(self) -> Floats:
        """(answers, 2): of wrong and right."""
        return self.applies.probabilities


def outcome_of(found: SeveralPredictions, gold: GoldRows, *, usual: bool) -> AnswerOutcome:
    """The answers of predictions; with `usual`, entities have the mean probability of their words' tags."""
    if isinstance(found, LabelPredictions):
        text = np.repeat(np.arange(len(found)), len(found.classes))
        right = np.asarray(gold.gold, dtype=np.bool_).ravel()
        return AnswerOutcome(found.probabilities.ravel(), right, text, len(found), True)
    confidence = found.sure
    if usual:
        confidence = np.array([entity.score for one in found.decoded for entity in one.entities])
    pairs = zip(found.entities, map(set, gold.gold), strict=True)
    right = np.array([(e.start, e.end, e.label) in there for some, there in pairs for e in some], dtype=np.bool_)
    return AnswerOutcome(confidence, right, found.answers.text, len(found), False)


def estimates_of(outcome: AnswerOutcome, found: SeveralPredictions, gold: GoldRows) -> dict[str, Estimate]:
    """Every metric of one run on a set, ready to resample texts."""
    if isinstance(found, LabelPredictions):
        every: Mapping[str, Estimate] = LabelRows.of(found.probabilities, gold.gold).estimates()
        return {name: every[name] for name in LABEL_METRICS}
    spans = [[(one.start, one.end, str(one.label)) for one in own] for own in found.entities]
    every = {**outcome.applies.estimates(), **Found.of_entities(spans, gold.gold).estimates()}
    return {name: every[name] for name in ENTITY_METRICS}


def reported_of(found: SeveralPredictions, outcome: AnswerOutcome) -> ReportedAnswers:
    """What the rule of predictions reports."""
    labels = isinstance(found, LabelPredictions)
    score = found.rule.score if found.rule is not None else LOG_ODDS
    return ReportedAnswers(found.reports, outcome.right, found.scores(score), outcome.text, outcome.texts, labels)
