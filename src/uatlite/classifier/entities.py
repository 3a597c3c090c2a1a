"""Entities: which of them are reported, where one may be missed, and whether a person should look."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.answer_kind import AnswerKind
from uatlite.classifier.display import BELOW, MISSED, NO_PROMISE, excerpt
from uatlite.classifier.predictions import CONFIDENCE, LOG_ODDS, SHARE_FOUND, WORDING, Predictions
from uatlite.classifier.record import CalibrationOptions
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.tags import Decoded, TagScheme
from uatlite.classifier.token_run import (
    TokenOutputs,
    entity_answers,
    missed_answers,
    recall_scores,
    run_located,
    text_log_odds,
)
from uatlite.errors import InputError
from uatlite.predictive import sigmoid
from uatlite.text.examples import example_of
from uatlite.text.schema import TAGS, Layout
from uatlite.trust.answers import AnswerCalibrator, EntityCalibrator
from uatlite.trust.promise import Labelled
from uatlite.trust.rule import Rule, RuleKind, Wanted
from uatlite.values import Choices, Example, Floats, Integers, Kind, Marks, Span, Text, Words, strings

if TYPE_CHECKING:
    from uatlite.classifier.explanation import Explained
    from uatlite.classifier.product import Predictor


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
    seconds: ClassVar[dict[str, str]] = {"second_entities": "entities", "second_confidence": "confidence"}
    words = WORDING["entities"]
    promises: ClassVar[dict[str, RuleKind]] = {
        "target_risk": "precision", "target_errors": "per-text", "target_recall": "recall"
    }  # fmt: skip

    decoded: tuple[Decoded, ...]
    """the entities of each text, before calibration"""
    missed: Floats
    """(texts,): the probability that an entity of the text is not found, or not as it is"""

    @classmethod
    def of(
        cls,
        texts: Sequence[Text],
        reading: TokenOutputs,
        calibrator: EntityCalibrator | None,
        classes: tuple[str, ...],
    ) -> Self:
        answers, missed = entity_answers(reading), missed_answers(reading.decoded)
        return cls(
            texts=tuple(texts),
            classes=classes,
            decoded=reading.decoded,
            answers=answers,
            sure=sigmoid(answers.log_odds) if calibrator is None else calibrator.found.confidence(answers),
            missed=sigmoid(missed.log_odds) if calibrator is None else calibrator.missed.confidence(missed),
            passes=reading.passes,
            cut=reading.cut,
        )

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
        return [decoded.missed_at for decoded in self.decoded]

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

    def labelled(self, gold: NDArray[Any], wanted: Wanted) -> Labelled:
        if wanted.kind == "recall":
            return Labelled(
                {SHARE_FOUND: recall_scores(self.decoded)},
                gold=np.array([len(spans) for spans in gold], dtype=np.int64),
                missed=missed_entities(self.decoded, gold),
                answers=self.answers.counts,
            )
        scores = {LOG_ODDS: self.answers.log_odds, CONFIDENCE: self.sure}
        return Labelled(scores, ~right_entities(self.decoded, gold), self.answers.text, len(self))

    @property
    def outcomes(self) -> Sequence[object]:
        return [text.spans for text in self.decoded]

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

    @property
    def counted(self) -> str:
        return f"{len(self.answers):,} entities, {int(self.reports.sum()):,} reported"


def right_entities(decoded: Sequence[Decoded], gold: NDArray[Any]) -> Marks:
    """(entities,): whether each entity that is found is one of its text's gold ones, span and type."""
    pairs = zip(decoded, gold, strict=True)
    return np.array([span in spans for text, spans in pairs for span in text.spans], dtype=np.bool_)


def missed_entities(decoded: Sequence[Decoded], gold: NDArray[Any]) -> Integers:
    """(texts,): gold entities that are not found."""
    pairs = zip(decoded, gold, strict=True)
    return np.array([len(spans.difference(text.spans)) for text, spans in pairs], dtype=np.int64)


class _Entities(AnswerKind[TokenOutputs, EntityPredictions]):
    """A text has entities."""

    name: Kind = "entities"
    predictions = EntityPredictions
    read = staticmethod(run_located)

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        return TagScheme(model.class_names).names

    def texts(self, given: Iterable[object], classes: Sequence[str]) -> list[Text]:
        return super().texts(
            [Words(tuple(text)) if isinstance(text, list | tuple) else text for text in given], classes
        )

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        if isinstance(text, tuple | Choices):
            return "a pair of texts or a question, and entities are sought in one text"
        words: tuple[object, ...] = text.tokens if isinstance(text, Words) else (text,)
        empty = [not word.strip() if isinstance(word, str) else None for word in words]
        if all(empty):
            return "an empty text; drop it, or put a word in its place"
        if None in empty or any(empty):
            return f"{text!r:.80}; allowed are a string, or a list of words, none of them empty"
        return None

    def gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> NDArray[Any]:
        columns, gold = {name: column for column, name in enumerate(classes)}, np.empty(len(texts), dtype=object)
        for i, (text, entities) in enumerate(zip(texts, given, strict=True)):
            size, spans = len(strings(text)[0]), set()
            for entity in entities:
                start, end, label = (entity[key] for key in Span._fields) if isinstance(entity, Mapping) else entity
                column = int(label) if isinstance(label, int | np.integer) else columns.get(label, -1)
                if not 0 <= column < len(classes) or not 0 <= start < end <= size:
                    raise InputError(
                        f"entities[{i}] has {(start, end, label)}; allowed are (start, end, label) within the {size} "
                        f"characters of the text, with a label of {', '.join(classes)}."
                    )
                spans.add((int(start), int(end), column))
            gold[i] = spans
        return gold

    def fit(
        self, reading: TokenOutputs, gold: NDArray[Any], options: CalibrationOptions, rows: Marks
    ) -> EntityCalibrator:
        answers = entity_answers(reading)
        right = right_entities(reading.decoded, gold)[rows[answers.text]]
        return EntityCalibrator(
            found=AnswerCalibrator.fit(answers.of_texts(rows), right),
            missed=AnswerCalibrator.fit(missed_answers(reading.decoded), missed_entities(reading.decoded, gold) > 0),
        )

    def explained(self, predictor: "Predictor", text: Text, which: str | int | None) -> "Explained":
        """It is about the margin of the entity's weakest word, in the window that holds it."""
        from uatlite.classifier.explainer import margin_at, with_gradients
        from uatlite.classifier.explanation import Explained

        runtime = with_gradients(predictor)
        reading = self.read(runtime, [text], predictor.settings)
        prediction = predictor.said([text], reading)[0]
        entities: tuple[FoundEntity, ...] = prediction.entities
        if not entities:
            raise InputError(f"no entity is found in {excerpt(text)!r}, so there is none to explain.")
        number = int(np.argmin([entity.confidence for entity in entities])) if which is None else which
        if not isinstance(number, int) or not 0 <= number < len(entities):
            raise InputError(
                f"entity={number} is not one of the {len(entities)} entities found, 0 to {len(entities) - 1}."
            )
        located, token = reading.located, reading.decoded[0].entities[number].token
        window = next(i for i, shown in enumerate(located.windows) if shown.first <= token < shown.last)
        string, places = located.texts[0].text, located.texts[0].places.tolist()
        weakest, entity = string[slice(*places[token])], entities[number]
        shown = located.windows[window]
        return Explained(
            prediction=prediction,
            reading=reading,
            encoded=located.tokens.pad([window]),
            output=margin_at(shown.special + token - shown.start),
            token_places={i: (string, *ends) for i, ends in enumerate(places[shown.start : shown.stop], shown.special)},
            number=number,
            label=str(entity.label),
            weakest=weakest,
            about=f"{entity.text!r} is {entity.label} with confidence {entity.confidence:.3f}; the margin of "
            f"{weakest!r}",
            facts={"entity": asdict(entity), "number": number, "weakest": weakest},
        )


ENTITIES = _Entities()


LAYOUTS = (TAGS, Layout(label="entities", gold="entities"))
"""The columns of rows that have both a text and its entities."""


def texts_and_entities(rows: Iterable[Any], classes: Sequence[str]) -> tuple[list[Text], list[tuple[Span, ...]]]:
    """The texts and the gold entities of rows that have both."""
    texts: list[Text] = []
    entities: list[tuple[Span, ...]] = []
    for i, given in enumerate(rows):
        example = given
        if isinstance(given, Mapping):
            layout = next((layout for layout in LAYOUTS if layout.text in given and layout.label in given), None)
            if layout is None:
                raise InputError(
                    f"row {i} has the columns {', '.join(given)}; give tokens and tags, or text and entities."
                )
            example = example_of(given, layout, tuple(classes))
        if not isinstance(example, Example) or example.entities is None or not isinstance(example.text, str | Words):
            raise InputError(
                f"row {i} is {example!r:.80} without entities; give texts and their entities, or rows that have both."
            )
        texts.append(example.text)
        entities.append(example.entities)
    return texts, entities
