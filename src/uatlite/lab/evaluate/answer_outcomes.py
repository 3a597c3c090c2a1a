"""Texts with several gold answers and what a model says about them, answer by answer: labels, or entities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import DataError
from uatlite.lab.evaluate.promise_check import ReportedAnswers
from uatlite.metrics.answers import AnswerRows, Found, LabelRows
from uatlite.metrics.intervals import Estimate, Estimates
from uatlite.metrics.rows import Rows
from uatlite.text.labels import fold, label_matrix
from uatlite.values import Dataset, Floats, Integers, Marks, Span, Text

if TYPE_CHECKING:
    from uatlite.classifier.entities import EntityPredictions
    from uatlite.classifier.many_labels import LabelPredictions

_LOG_ODDS = "log-odds"


@dataclass(frozen=True, eq=False)
class GoldRows:
    """The texts of a set with their gold answers, by the names of the model."""

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
            list(example.entities or ()) if entities else [dataset.labels[label] for label in example.labels or ()]
            for example in dataset.examples
        ]
        kept = [
            [_named(answer, names) for answer in answers if fold(_label(answer)) in names]  # others are never found
            for answers in given
        ]
        there, known = sum(map(len, given)), sum(map(len, kept))
        if there and not known:
            raise DataError(
                f"{dataset.name}/{dataset.split}: none of its labels ({', '.join(dataset.labels)}) is one of the "
                f"model's: {', '.join(classes)}. Evaluate a model of this task."
            )
        gold = [tuple(answers) for answers in kept] if entities else label_matrix(kept, classes)
        return cls([example.text for example in dataset.examples], gold, there - known)

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
class SaidAnswers:
    """What a contender says about some texts, as it is stored: (answers,) each, the last two (texts,)."""

    text: Integers
    column: Integers
    """the label, or the type of the entity"""
    start: Integers
    end: Integers
    """the characters of an entity; 0 of a label"""
    confidence: Floats
    """that an entity is right, or that a label applies"""
    usual: Floats
    """the mean probability of the tags of an entity's words; of a label the confidence"""
    score: Floats
    """what the rule ranks by"""
    reported: Marks
    passes: Integers
    cut: Integers
    """tokens that were cut off"""

    @classmethod
    def joined(cls, parts: Sequence["SaidAnswers"]) -> "SaidAnswers":
        """What is said about the texts of all parts, one after the other."""
        starts = np.cumsum([0, *(len(part.passes) for part in parts)])
        values = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        moved = [part.text + start for part, start in zip(parts, starts, strict=False)]
        return cls(**values | {"text": np.concatenate(moved)})


def said_labels(found: "LabelPredictions") -> SaidAnswers:
    """Every label of every text is an answer: yes or no."""
    texts, labels = found.probabilities.shape
    none, sure = np.zeros(texts * labels, dtype=np.int64), found.probabilities.ravel()
    text, column = np.repeat(np.arange(texts), labels), np.tile(np.arange(labels), texts)
    return SaidAnswers(text, column, none, none, sure, sure, *_decided(found))


def said_entities(found: "EntityPredictions") -> SaidAnswers:
    """Every entity that was found is an answer."""
    columns = {name: column for column, name in enumerate(found.classes)}
    entities = [(entity.start, entity.end, columns[str(entity.label)]) for row in found.entities for entity in row]
    start, end, column = np.array(entities, dtype=np.int64).reshape(-1, 3).T
    usual = np.array([entity.score for row in found.decoded for entity in row.entities], dtype=np.float64)
    return SaidAnswers(found.answers.text, column, start, end, found.sure, usual, *_decided(found))


def _decided(found: "LabelPredictions | EntityPredictions") -> tuple[Floats, Marks, Integers, Integers]:
    """score, reported, passes, cut"""
    score = found.scores(_LOG_ODDS if found.rule is None else found.rule.score)
    cut = np.zeros(len(found), dtype=np.int64) if found.cut is None else found.cut
    return score, found.reports if found.rule is not None else np.zeros(len(score), dtype=np.bool_), found.passes, cut


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
        every = self.applies
        return Rows(every.probabilities, every.labels, every.precision) if self.pairs else every

    @property
    def probabilities(self) -> Floats:
        """(answers, 2): of wrong and right."""
        return self.applies.probabilities


def label_outcome(said: SaidAnswers, gold: GoldRows, classes: Sequence[str], usual: bool) -> AnswerOutcome:
    """Each pair of a text and a label."""
    right = np.asarray(gold.gold, dtype=np.bool_).ravel()
    return AnswerOutcome(said.confidence, right, said.text, len(gold.texts), True)


def entity_outcome(said: SaidAnswers, gold: GoldRows, classes: Sequence[str], usual: bool) -> AnswerOutcome:
    """Each entity that was found; with `usual` by the mean probability of its words' tags."""
    spans = zip(said.text.tolist(), _spans(said, classes), strict=True)
    right = np.array([span in set(gold.gold[text]) for text, span in spans], dtype=np.bool_)
    return AnswerOutcome(said.usual if usual else said.confidence, right, said.text, len(gold.texts), False)


def _spans(said: SaidAnswers, classes: Sequence[str]) -> list[tuple[int, int, str]]:
    columns = zip(said.start.tolist(), said.end.tolist(), said.column.tolist(), strict=True)
    return [(start, end, classes[column]) for start, end, column in columns]


def label_estimates(said: SaidAnswers, gold: GoldRows, outcome: AnswerOutcome, classes: Sequence[str]) -> Estimates:
    """The metrics of labels, ready to resample texts."""
    return LabelRows.of(said.confidence.reshape(len(gold.texts), -1), gold.gold).estimates()


def entity_estimates(said: SaidAnswers, gold: GoldRows, outcome: AnswerOutcome, classes: Sequence[str]) -> Estimates:
    """The metrics of entities, ready to resample texts."""
    found: list[list[tuple[int, int, str]]] = [[] for _ in gold.texts]
    for text, span in zip(said.text.tolist(), _spans(said, classes), strict=True):
        found[text].append(span)
    every: dict[str, Estimate] = {**outcome.applies.estimates(), **Found.of_entities(found, gold.gold).estimates()}
    return Estimates(every, (len(gold.texts),))


def reported_of(said: SaidAnswers, outcome: AnswerOutcome) -> ReportedAnswers:
    """What the rule of a contender reports."""
    return ReportedAnswers(said.reported, outcome.right, said.score, said.text, outcome.texts, outcome.pairs)
