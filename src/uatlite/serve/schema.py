"""The JSON of requests and responses, as OpenAPI describes it: the texts, what is answered, and what is served."""

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)

from uatlite.classifier.display import REASONS, sentence
from uatlite.classifier.entities import EntityPredictions
from uatlite.classifier.many_labels import LabelPredictions
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.predictions import Predictions
from uatlite.classifier.record import Calibration
from uatlite.scoring.watch_state import WatchState
from uatlite.serve.http import AS_WORDS, PAIR, QUESTION, TEXT, ErrorResponse
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.rule import RiskLine
from uatlite.trust.shift import Level, Share
from uatlite.values import Choices, Kind, Words


class Question(BaseModel):
    """A multiple-choice question, for a multiple-choice model."""

    model_config = ConfigDict(extra="forbid")
    question: str
    options: list[str] = Field(min_length=2, max_length=26)


def _form(value: Any) -> str:
    if isinstance(value, list | tuple):
        return PAIR
    return QUESTION if isinstance(value, dict | Question) else TEXT


TextIn = Annotated[
    Annotated[str, Tag(TEXT)]
    | Annotated[tuple[str, str], Tag(PAIR)]
    | Annotated[Question, AfterValidator(lambda sent: Choices(sent.question, tuple(sent.options))), Tag(QUESTION)],
    Discriminator(_form),
]
"""A text, a pair of texts (premise and hypothesis, question and context), or a question with options."""

TaggedIn = Annotated[
    Annotated[str, Tag(TEXT)] | Annotated[list[str], AfterValidator(lambda sent: Words(tuple(sent))), Tag(AS_WORDS)],
    Discriminator(lambda value: AS_WORDS if isinstance(value, list | tuple) else TEXT),
]
"""A text, or the list of its words."""

ListOfOne = BeforeValidator(lambda given: [given] if isinstance(given, str) else given)
"""One string is a list of one."""


class PredictRequest(BaseModel):
    """Texts to classify; a single one is a list of one."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"texts": ["It is not bad at all."]}]})
    texts: Annotated[list[TextIn], ListOfOne] = Field(
        min_length=1, description="texts, pairs [first, second], or questions with options; one string is a list of one"
    )


class DecideRequest(BaseModel):
    """Scores of another classifier to decide on, a row for each text."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"scores": [{"p_no": 0.2, "p_yes": 0.8}]}]}
    )
    scores: list[dict[str, Any]] = Field(min_length=1, description="rows with the columns of the calibration file")

    @property
    def texts(self) -> list[dict[str, Any]]:
        """What stands for the texts."""
        return self.scores


class TagRequest(BaseModel):
    """Texts to find entities in; a single string is a list of one."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"texts": ["Ada Lovelace met Charles Babbage in London."]}]}
    )
    texts: Annotated[list[TaggedIn], ListOfOne] = Field(
        min_length=1, description="texts, or lists of words; one string is a list of one"
    )


_Decision = Literal["reported", "withheld", "no"]
Threshold = Annotated[float | None, BeforeValidator(lambda value: value if math.isfinite(value or 0.0) else None)]
"""A threshold; null where it is infinite, so that all or nothing is above it."""
Told = Annotated[str, BeforeValidator(lambda describe: describe()), Field(validation_alias="describe")]
"""What a value that describes itself says."""


def _rows(predictions: Predictions) -> list[dict[str, Any]]:
    """Every row of output, its reason also as a sentence; what calibration was not asked for is None."""
    unknown = dict.fromkeys(("abstain", "above_threshold", "label_set", "scope", "out_of_scope"))
    return [{**unknown, **row, "why": sentence(row)} for row in predictions.rows()]


class Uncertainty(BaseModel):
    """How uncertain a prediction is; entropies in nats."""

    margin: float = Field(description="largest probability minus second largest")
    logit_margin: float = Field(description="largest logit minus second largest, before calibration")
    entropy: float = Field(description="of the mean distribution over passes: the total")
    expected_entropy: float | None = Field(description="mean entropy of a pass: the uncertainty of the data")
    mutual_information: float | None = Field(description="entropy - expected_entropy: what the passes disagree about")
    variance: float | None = Field(description="over passes, of the predicted class's probability; null if not known")


class Answer(BaseModel):
    """The prediction for one text. The label is given also where the classifier abstains."""

    label: str | int
    probabilities: dict[str, float] = Field(description="by class, calibrated where the model is")
    confidence: float = Field(description="the probability of the label")
    uncertainty: Uncertainty
    score: float = Field(description="the score of the abstention rule, else the confidence; higher is more trusted")
    abstain: bool | None = Field(description="whether the classifier abstains; null without an abstention rule")
    label_set: list[str] | None = Field(description="the label set; null where none were calibrated")
    reason: str = Field(description="why it answers or not", json_schema_extra={"enum": list(REASONS)})
    why: str = Field(description="the reason with its numbers, as in '0.42 below the threshold'")
    above_threshold: float | None = Field(
        description="score minus threshold, negative where it is below; null without a finite threshold"
    )
    cut_tokens: int = Field(description="tokens that were cut off; the label rests on what comes before them")
    scope: float | None = Field(description="p-value of being a text of the task; null where the scope is not known")
    out_of_scope: bool | None = Field(description="whether it is no text of the task; null where that is not known")
    passes: int = Field(description="stochastic passes that were run for this text")

    @staticmethod
    def rows(predictions: ClassPredictions, calibrator: Any = None) -> list[dict[str, Any]]:
        """The rows of output, each with the further fields of its answer."""
        rule = predictions.rule
        scores = predictions.scores("confidence" if rule is None else rule.score).tolist()
        rows = _rows(predictions)
        for row, score in zip(rows, scores, strict=True):
            row["uncertainty"] = {name: row[name] for name in Uncertainty.model_fields}
            row |= {"score": score, "probabilities": {name: row[f"p_{name}"] for name in predictions.classes}}
        return rows


class TextAnswer(BaseModel):
    """What is said about one text that may have several answers, as a whole."""

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
    threshold: Threshold = Field(
        description="the probability above which the label is reported in this text; null where the rule reports none"
    )
    decision: _Decision = Field(
        description="reported; withheld: in doubt, not sure enough to report and too likely to rule out; or no"
    )
    log_odds: float = Field(description="that it applies, before calibration")
    variance: float | None = Field(description="of the log-odds under dropout; null where it is not known")


class LabelsAnswer(TextAnswer):
    """The labels of one text."""

    labels: list[str] = Field(description="the labels that are reported")
    decisions: list[LabelDecision] = Field(description="all labels, in the order of the model")

    @staticmethod
    def rows(predictions: LabelPredictions, calibrator: AnswerCalibrator | None = None) -> list[dict[str, Any]]:
        """The rows of output, each with the further fields of its answer.

        The calibrator turns the threshold of a rule into a probability for each label.
        """
        thresholds, reported = predictions.thresholds(calibrator).tolist(), predictions.reported
        withheld = predictions.withheld if predictions.rules else np.zeros_like(reported)
        decided = np.where(reported, "reported", np.where(withheld, "withheld", "no")).tolist()
        log_odds, rows = predictions.logits.tolist(), _rows(predictions)
        for i, row in enumerate(rows):
            row["decisions"] = [
                {
                    "label": name,
                    "probability": row[f"p_{name}"],
                    "threshold": thresholds[i][column],
                    "decision": decided[i][column],
                    "log_odds": log_odds[i][column],
                    "variance": row.get(f"variance_{name}"),
                }
                for column, name in enumerate(predictions.classes)
            ]
        return rows


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
    decision: _Decision = Field(description="reported, or withheld; without a rule every entity is reported")
    log_odds: float = Field(description="that it is right, before calibration")
    variance: float | None = Field(description="of the log-odds under dropout; null where it is not known")


class EntitiesAnswer(TextAnswer):
    """The entities of one text."""

    entities: list[EntityDecision] = Field(description="all that are found, reported or not, in their order")
    missed: float = Field(description="the probability that an entity is missed: not found, or not as it is")
    missed_at: tuple[int, int] | None = Field(
        description="the characters of the word outside of all entities that is likeliest to belong to one"
    )

    @staticmethod
    def rows(predictions: EntityPredictions, calibrator: Any = None) -> list[dict[str, Any]]:
        """The rows of output, each with the further fields of its answer."""
        log_odds = iter(predictions.answers.log_odds.tolist())  # of every entity of every text, in order
        rows = _rows(predictions)
        for row in rows:
            row["entities"] = [
                {**entity, "decision": "reported" if entity["reported"] else "withheld", "log_odds": next(log_odds)}
                for entity in row["entities"]
            ]
        return rows


class Shift(BaseModel):
    """Whether the texts of a request, all together, are like the calibration rows."""

    model_config = ConfigDict(from_attributes=True)
    shifted: bool | None = Field(description="null where the texts are too few to say")
    level: Level | None = Field(
        description="green: no shift; amber: shifted, and the answers look as right as promised; red: they do not, or "
        "it cannot be told; null where the texts are too few"
    )
    p_value: float | None
    expected: Share | None = Field(description="the reported answers that are expected to be wrong")
    promised: float | None = Field(description="the share of wrong answers promised at most; null where none is")
    verdict: Told


class PredictResponse(BaseModel):
    """The predictions, in the order of the texts."""

    shift: Shift | None = Field(description="null where calibration kept no rows to compare with")
    calibrated: bool
    method: str
    predictions: list[Any]


def response_of(answer: type[BaseModel]) -> type[PredictResponse]:
    """The response with answers of this kind; a text that cannot be read has an error in its place."""
    either: Any = Annotated[answer | ErrorResponse, Field(union_mode="left_to_right")]
    fields: Any = {"predictions": (list[either], ...)}
    return create_model("PredictResponse", __base__=PredictResponse, __doc__=PredictResponse.__doc__, **fields)


class UsedSettings(BaseModel):
    """The settings of the passes."""

    method: str
    penalty: float = Field(description="λ")
    samples: int | None = Field(description="passes M; null where the method does not sample")
    gate: str


class Rule(BaseModel):
    """When the classifier abstains: where `score` is not above `threshold`. Of several answers each is decided so."""

    model_config = ConfigDict(from_attributes=True)
    score: str
    threshold: Threshold = Field(description="null where it always answers, or never")
    most: int | None = Field(description="of several answers: a text reports at most so many, its surest; else null")
    promised: bool = Field(description="whether the calibration rows can promise what was asked for")
    promise: Told


class TargetRisk(BaseModel):
    """A target, or a share to review: the coverage at which it is promised, or how many labelled rows it would take."""

    target: float
    threshold: Threshold = Field(description="answer above it; null without a promise, or where all is answered")
    coverage: float | None = Field(description="share of calibration rows answered; null without a promise")
    coverage_interval: tuple[float, float] | None
    risk_bound: float | None = Field(description="the most of these answers that are wrong; of a share to review")
    needed: str | None = Field(description="how many more labelled rows it would take; null where it is promised")

    @model_validator(mode="before")
    @classmethod
    def _of(cls, line: RiskLine) -> dict[str, Any]:
        told = ("threshold", "coverage", "coverage_interval", "risk_bound")
        promised = {name: getattr(line.rule, name, None) for name in told}
        return {"target": line.target, "needed": line.needed and line.needed.describe(), **promised}


class RiskMenu(BaseModel):
    """Which risks the calibration rows promise, and the risk at each coverage with its interval, (points,) each."""

    model_config = ConfigDict(from_attributes=True)
    score: str
    confidence: float = Field(description="with which each promise holds by itself")
    rows: int = Field(validation_alias="texts", description="labelled rows that decided")
    counted: str = Field(description="the same in words, and what the other labelled rows do")
    lines: list[TargetRisk]
    errors: list[TargetRisk] = Field(description="the same of all texts: at most so many are answered wrongly")
    reviews: list[TargetRisk] = Field(description="shares of texts to review")
    threshold: list[float] = Field(
        validation_alias=AliasPath("curve", "thresholds"),
        description="scores above which a row is answered, from high to low",
    )
    coverage: list[float] = Field(validation_alias=AliasPath("curve", "coverages"))
    risk: list[float] = Field(validation_alias=AliasPath("curve", "risks"))
    low: list[float] = Field(validation_alias=AliasPath("curve", "low"))
    high: list[float] = Field(validation_alias=AliasPath("curve", "high"))


class Watched(Shift):
    """What is known of all texts over the whole life of the service, or of its state file."""

    texts: int = Field(description="texts that were counted")
    evidence: float = Field(description="of a change; valid at every moment")
    limit: float = Field(description="the evidence that raises an alarm: 1 over the bound of false alarms")
    alarm: str | None = Field(description="what has changed, until the alarm is acknowledged")
    since: str | None = Field(description="the hour of the change, UTC")

    @classmethod
    def of(cls, state: WatchState, calibration: Calibration) -> Self:
        """What is known of a state, compared with the calibration."""
        report, alarm, limit = state.report(calibration), state.alarm, 1.0 / state.monitor.bound
        shown = {"alarm": getattr(alarm, "what", None), "since": getattr(alarm, "since", None), "limit": limit}
        shown |= {"texts": state.rows, "evidence": state.evidence, "level": report.level, "describe": report.describe}
        return cls.model_validate({**vars(report), **shown})


class ServedModel(BaseModel):
    """What is served."""

    kind: Kind = Field(
        description="what it says about a text: one class, the choice of an option, many labels, or entities"
    )
    architecture: str
    classes: list[str] = Field(
        description="classes, labels or types of entities; empty for multiple choice without calibration"
    )
    multiple_choice: bool
    method: str
    passes: int
    settings: UsedSettings
    gates: list[str] = Field(description="the gates to choose from")
    calibration: list[str] | None = Field(description="what was learned and is promised; null without calibration")
    rule: Rule | None = Field(description="when it answers; null where calibration was not asked for a rule")
    menu: RiskMenu | None = Field(description="null where the calibration rows are too few")
    comparison: str | None = Field(description="with plain temperature scaling; null where that was not compared")
    watch: Watched | None = Field(description="all texts served; null where there is nothing to compare with")
    limits: dict[str, int | float]
    version: str


class Status(BaseModel):
    """The state of the service."""

    status: str
