"""The JSON of models with several answers a text: its labels or entities, each with a decision, and one explained."""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from uatlite.classifier.many_labels import EVEN, LabelPredictions
from uatlite.classifier.predictions import LOG_ODDS, Prediction
from uatlite.classifier.predictor import Predictor
from uatlite.classifier.reasons import REASONS
from uatlite.serve.http import AS_WORDS, KINDS
from uatlite.serve.inspector import STANDARD
from uatlite.serve.schema import Predicted, TextIn, as_list
from uatlite.trust.answers import Answers
from uatlite.values import Floats, Text, WordAttribution, Words

TEXT = KINDS[0]
Decision = Literal["reported", "withheld", "no"]


class TextAnswer(BaseModel):
    """What is said about one text as a whole."""

    abstain: bool | None = Field(description="whether a person should look at the text; null without a rule")
    reason: str = Field(description="why it is answered or not", json_schema_extra={"enum": list(REASONS)})
    why: str = Field(description="the reason with its numbers, as in '0.42 below the threshold'")
    confidence: float = Field(description="how sure the least sure of its answers is")
    cut_tokens: int = Field(description="tokens that were cut off; the answers rest on what comes before them")
    scope: float | None = Field(description="p-value of being a text of the task; null where the scope is not known")
    out_of_scope: bool | None = Field(description="whether it is no text of the task; null where that is not known")
    passes: int = Field(description="stochastic passes that were run for this text")


class LabelDecision(BaseModel):
    """One label of a text."""

    label: str
    probability: float = Field(description="that it applies; calibrated where the model is")
    threshold: float | None = Field(
        description="the probability above which the label is reported in this text; null where the rule reports none"
    )
    decision: Decision = Field(
        description="reported; withheld: in doubt, not sure enough to report and too likely to rule out; or no"
    )
    log_odds: float = Field(description="that it applies, before calibration")
    variance: float | None = Field(description="of the log-odds under dropout; null where it is not known")


class LabelsAnswer(TextAnswer):
    """The labels of one text."""

    labels: list[str] = Field(description="the labels that are reported")
    decisions: list[LabelDecision] = Field(description="all labels, in the order of the model")

    @property
    def reported(self) -> list[str]:
        """The labels to count."""
        return self.labels

    @classmethod
    def of(cls, prediction: Prediction, predictor: Predictor) -> "LabelsAnswer":
        """The JSON of a prediction."""
        among, at = prediction.among, prediction.row
        assert isinstance(among, LabelPredictions)
        limits = _label_thresholds(prediction, predictor)
        reported = among.reported[at]
        withheld = np.zeros_like(reported) if among.rule is None else among.withheld[at]
        known = among.logit_variance
        return cls(
            **_common(prediction),
            labels=list(prediction.labels),
            decisions=[
                LabelDecision(
                    label=name,
                    probability=float(among.probabilities[at, place]),
                    threshold=float(limits[place]) if math.isfinite(limits[place]) else None,
                    decision="reported" if reported[place] else "withheld" if withheld[place] else "no",
                    log_odds=float(among.logits[at, place]),
                    variance=None if known is None else float(known[at, place]),
                )
                for place, name in enumerate(among.classes)
            ],
        )


def _common(prediction: Any) -> dict[str, Any]:
    """The fields of a `TextAnswer`, from the row that is written to files."""
    row = prediction.as_row()
    unknown = dict.fromkeys(("abstain", "scope", "out_of_scope"))
    return unknown | {name: row[name] for name in TextAnswer.model_fields if name in row} | {"why": prediction.why}


def _label_thresholds(prediction: Prediction, predictor: Predictor) -> Floats:
    """The probability above which each label of a text is reported, (labels,); infinite where none is.

    A rule on log-odds has one threshold for all labels; the calibrator turns it into a probability for each.
    """
    among, at = prediction.among, prediction.row
    assert isinstance(among, LabelPredictions)
    rule, calibration, labels = among.rule, predictor.calibration, len(among.classes)
    if rule is None or calibration is None:
        return np.full(labels, EVEN)
    if rule.score != LOG_ODDS or not math.isfinite(rule.threshold):
        return np.full(labels, max(rule.threshold, 0.0))  # no threshold: above a probability of 0
    known = among.logit_variance
    answers = Answers(
        text=np.zeros(labels, dtype=np.int64),
        kind=np.arange(labels),
        log_odds=np.full(labels, rule.threshold),
        variance=None if known is None else known[at],
        texts=1,
    )
    chances: Floats = predictor.calibrator.confidence(answers)
    return chances


class EntityDecision(BaseModel):
    """One entity of a text."""

    start: int = Field(description="its first character; words are joined by one space")
    end: int = Field(description="the character after its last")
    text: str
    label: str = Field(description="its type")
    confidence: float = Field(description="that it is right as a whole, span and type; calibrated where the model is")
    boundaries: float = Field(
        description="the probability that an entity of any type has these boundaries, before calibration"
    )
    decision: Decision = Field(description="reported, or withheld; without a rule every entity is reported")
    log_odds: float = Field(description="that it is right, before calibration")
    variance: float | None = Field(description="of the log-odds under dropout; null where it is not known")


class EntitiesAnswer(TextAnswer):
    """The entities of one text."""

    entities: list[EntityDecision] = Field(description="all that are found, reported or not, in their order")
    missed: float = Field(description="the probability that an entity is missed: not found, or not as it is")
    missed_at: tuple[int, int] | None = Field(
        description="the characters of the word outside of all entities that is likeliest to belong to one"
    )

    @classmethod
    def of(cls, prediction: Prediction) -> "EntitiesAnswer":
        """The JSON of a prediction."""
        answers = prediction.among.answers
        own = np.flatnonzero(answers.text == prediction.row)
        return cls(
            **_common(prediction),
            entities=[
                EntityDecision(
                    **{name: getattr(one, name) for name in EntityDecision.model_fields if hasattr(one, name)},
                    decision="reported" if one.reported else "withheld",
                    log_odds=float(odds),
                )
                for one, odds in zip(prediction.entities, answers.log_odds[own], strict=True)
            ],
            missed=prediction.missed,
            missed_at=prediction.missed_at,
        )

    @property
    def reported(self) -> list[str]:
        """The types to count."""
        return [one.label for one in self.entities if one.decision == "reported"]


class LabelsResponse(Predicted):
    """The labels of the texts, in the order of the texts."""

    predictions: list[LabelsAnswer]


class EntitiesResponse(Predicted):
    """The entities of the texts, in the order of the texts."""

    predictions: list[EntitiesAnswer]


def _tagged_kind(value: Any) -> str:
    return AS_WORDS if isinstance(value, list | tuple) else TEXT


TaggedIn = Annotated[
    Annotated[str, Tag(TEXT)]
    | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1), Tag(AS_WORDS)],
    Discriminator(_tagged_kind),
]
"""A text, or the list of its words."""


def tagged_of(given: str | list[str]) -> str | Words:
    """The value that a tagger takes."""
    return given if isinstance(given, str) else Words(tuple(given))


class TagRequest(BaseModel):
    """Texts to find entities in; a single string is a list of one."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"texts": ["Ada Lovelace met Charles Babbage in London."]}]}
    )
    texts: Annotated[list[TaggedIn], BeforeValidator(as_list)] = Field(
        min_length=1, description="texts, or lists of words; one string is a list of one"
    )


class ExplainEntityRequest(BaseModel):
    """One entity of one text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "Ada Lovelace lived there."}]})
    text: TaggedIn
    entity: int | None = Field(
        None, ge=0, description="its number among those found, from 0; by default the least sure one"
    )


class ExplainLabelRequest(BaseModel):
    """One label of one text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "It is not bad at all."}]})
    text: TextIn
    label: str | None = Field(None, description="the label, by name; by default the one that is least sure")


class SharedWord(BaseModel):
    """A word of the text, and its part of the uncertainty."""

    text: str
    share: float = Field(description="of the first-order variance")
    uncertainty: float = Field(description="U: how much its embedding varies under dropout")

    @classmethod
    def of(cls, word: WordAttribution) -> "SharedWord":
        """The JSON of a word."""
        return cls(text=word.word.text, share=word.share, uncertainty=word.uncertainty)


class LayerShare(BaseModel):
    """A layer's part of the uncertainty."""

    name: str
    share: float = Field(description="of the first-order variance")


class Origins(BaseModel):
    """Where the uncertainty about one answer comes from, to first order."""

    variance: float = Field(description="first-order variance under dropout, in squared logits")
    words: list[SharedWord]
    layers: list[LayerShare]
    summary: str

    @classmethod
    def of(cls, explanation: Any, about: str) -> "Origins":
        """The JSON of an explanation of one answer; `about` is what its sentence calls the answer."""
        spread = math.sqrt(explanation.variance)
        return cls(
            variance=explanation.variance,
            words=[SharedWord.of(word) for word in explanation.words],
            layers=[LayerShare(name=name, share=share) for name, share in explanation.layers.items()],
            summary=f"{about} varies by {spread:.2f} (one standard deviation) under dropout.{_most(explanation)}",
        )


def _most(explanation: Any) -> str:
    words = sorted(explanation.words, key=lambda word: -word.share)[:2]
    named = " and ".join(f"“{word.word.text}” ({word.share:.0%})" for word in words if word.share > 0.0)
    return f" The largest shares have {named}." if named and explanation.variance > 0.0 else ""


class ExplainedLabel(BaseModel):
    """The labels of a text, and where the uncertainty about one of them comes from."""

    answer: LabelsAnswer
    label: str
    origins: Origins


def explain_label(predictor: Predictor, text: Text, label: str | None) -> ExplainedLabel:
    """The JSON of one label explained; a method without dropout is explained by the standard one."""
    from uatlite.classifier.answer_explanation import explain_label as explain  # needs torch, which others do without

    prediction = predictor.predict([text])[0]
    if label is None:
        label = min(prediction.probabilities, key=lambda name: abs(prediction.probabilities[name] - EVEN))
    settings = predictor.settings
    if settings.method.config is None:
        settings = replace(settings, method=STANDARD.seeded(settings.seed))
    found = explain(replace(predictor, settings=settings), text, label)
    return ExplainedLabel(
        answer=LabelsAnswer.of(prediction, predictor),
        label=found.label,
        origins=Origins.of(found, f"The logit of {found.label}"),
    )


class ExplainedEntity(BaseModel):
    """The entities of a text, and where the uncertainty about one of them comes from."""

    answer: EntitiesAnswer
    entity: int | None = Field(description="its number among the entities, from 0; null where none is found")
    origins: Origins | None = Field(description="of the margin of its weakest word; null where no entity is found")


def explain_entity(predictor: Predictor, text: str | Words, number: int | None) -> ExplainedEntity:
    """The JSON of one entity explained; of a text without one, that there is none."""
    from uatlite.classifier.answer_explanation import explain_entity as explain  # needs torch, as above

    prediction = predictor.predict([text])[0]
    if not prediction.entities:
        return ExplainedEntity(answer=EntitiesAnswer.of(prediction), entity=None, origins=None)
    found = explain(predictor, text, number)
    return ExplainedEntity(
        answer=EntitiesAnswer.of(found.prediction),
        entity=found.number,
        origins=Origins.of(found, f"The margin of “{found.weakest}”, which decides its weakest word,"),
    )
