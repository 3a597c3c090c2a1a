"""The JSON of requests and responses, as OpenAPI describes it."""

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from uatlite.classifier.predictions import Prediction
from uatlite.classifier.reasons import REASONS, sentence
from uatlite.passes.config import GATES
from uatlite.scoring.watch_state import WatchState
from uatlite.serve.http import KINDS
from uatlite.trust.grouped import GroupedRule
from uatlite.trust.menu import Menu, MenuLine
from uatlite.trust.rule import SCORES, AbstentionRule
from uatlite.trust.shift import ShiftReport
from uatlite.values import Choices, Kind, Text

MOST_SAMPLES = 64
"""The most passes that a client may ask for."""
MOST_PENALTY = 10.0


class Question(BaseModel):
    """A multiple-choice question, for a multiple-choice model."""

    model_config = ConfigDict(extra="forbid")
    question: str
    options: list[str] = Field(min_length=2, max_length=26)


def _kind(value: Any) -> str:
    single, pair, question = KINDS
    if isinstance(value, list | tuple):
        return pair
    return question if isinstance(value, dict | Question) else single


TextIn = Annotated[
    Annotated[str, Tag(KINDS[0])] | Annotated[tuple[str, str], Tag(KINDS[1])] | Annotated[Question, Tag(KINDS[2])],
    Discriminator(_kind),
]
"""A text, a pair of texts (premise and hypothesis, question and context), or a question with options."""


def text_of(given: TextIn) -> Text:
    """The value that a classifier takes."""
    return Choices(given.question, tuple(given.options)) if isinstance(given, Question) else given


def as_list(given: Any) -> Any:
    """One string as a list of one."""
    return [given] if isinstance(given, str) else given


class PredictRequest(BaseModel):
    """Texts to classify; a single one is a list of one."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"texts": ["It is not bad at all."]}]})
    texts: Annotated[list[TextIn], BeforeValidator(as_list)] = Field(
        min_length=1, description="texts, pairs [first, second], or questions with options; one string is a list of one"
    )


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

    @classmethod
    def of(cls, prediction: Prediction, row: dict[str, Any] | None = None) -> "Answer":
        """The JSON of a prediction; `row` is its `as_row()`, where that is known already."""
        row, rule = prediction.as_row() if row is None else row, prediction.among.rule
        return cls(
            label=prediction.label,
            probabilities=prediction.probabilities,
            confidence=prediction.confidence,
            uncertainty=Uncertainty.model_validate(row),
            score=float(SCORES["confidence" if rule is None else rule.score](prediction)),
            reason=prediction.reason,
            why=sentence(row),
            cut_tokens=prediction.cut_tokens,
            passes=prediction.passes,
            **{name: row.get(name) for name in ("abstain", "above_threshold", "label_set", "scope", "out_of_scope")},  # type: ignore[arg-type]
        )


class Shift(BaseModel):
    """Whether the texts of a request, all together, are like the calibration rows."""

    shifted: bool | None = Field(description="null where the texts are too few to say")
    p_value: float | None
    verdict: str

    @classmethod
    def of(cls, report: ShiftReport) -> "Shift":
        """The JSON of a shift report."""
        return cls(shifted=report.shifted, p_value=report.p_value, verdict=report.describe())


class Watched(BaseModel):
    """What is known of all texts over the whole life of the service, or of its state file."""

    texts: int = Field(description="texts that were counted")
    evidence: float = Field(description="of a change; valid at every moment")
    limit: float = Field(description="the evidence that raises an alarm: 1 over the bound of false alarms")
    alarm: str | None = Field(description="what has changed, until the alarm is acknowledged")
    since: str | None = Field(description="the hour of the change, UTC")
    verdict: str

    @classmethod
    def of(cls, state: WatchState) -> "Watched":
        """The JSON of what is known."""
        alarm = state.alarm
        return cls(
            texts=state.rows,
            evidence=state.evidence,
            limit=1.0 / state.monitor.bound,
            alarm=None if alarm is None else alarm.what,
            since=None if alarm is None else alarm.since,
            verdict=state.verdict()[0],
        )


class Predicted(BaseModel):
    """What holds for all predictions of a request."""

    shift: Shift | None = Field(description="null where calibration kept no rows to compare with")
    calibrated: bool
    method: str


class PredictResponse(Predicted):
    """The predictions, in the order of the texts."""

    predictions: list[Answer]


class ExplainSettings(BaseModel):
    """Settings to try instead of the served ones; the calibration does not hold for them."""

    model_config = ConfigDict(extra="forbid")
    penalty: Annotated[float | None, Field(ge=0, le=MOST_PENALTY, allow_inf_nan=False, description="λ")] = None
    samples: Annotated[int | None, Field(ge=2, le=MOST_SAMPLES, description="passes M")] = None
    gate: Annotated[str | None, Field(json_schema_extra={"enum": [*GATES, None]}, description="what is modulated")] = (
        None
    )


class ExplainRequest(BaseModel):
    """One text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "It is not bad at all."}]})
    text: TextIn
    settings: ExplainSettings = ExplainSettings()
    masking: Annotated[bool, Field(description="also mask each word in turn, at the cost of a text each")] = False


class ExplainedWord(BaseModel):
    """A word of the text."""

    text: str
    uncertainty: float = Field(description="U: how much its embedding varies under dropout")
    share: float = Field(description="of the first-order variance of the margin")
    masked_confidence: float | None = Field(
        description="the label's probability when the word is masked; null unless asked"
    )


class ExplainedLayer(BaseModel):
    """What a layer contributes to the variance of the margin."""

    name: str
    share: float
    components: dict[str, float] = Field(description="the contribution by component, in squared logits")


class Attention(BaseModel):
    """Attention weights of each layer, averaged over heads: (layers, tokens, tokens), a row is a query."""

    tokens: list[str]
    plain: list[list[list[float]]] = Field(description="without modulation")
    modulated: list[list[list[float]]] = Field(description="with modulation, on the same masks")


class UsedSettings(BaseModel):
    """The settings of the passes."""

    method: str
    penalty: float = Field(description="λ")
    samples: int | None = Field(description="passes M; null where the method does not sample")
    gate: str


class Band(BaseModel):
    """The label's probability where the margin is normal around its value."""

    margin: float = Field(description="of the logits: the label's minus the next one's")
    spread: float = Field(description="the standard deviation of that margin")
    shares: list[float] = Field(description="shares of the normal distribution, from low to high")
    probabilities: list[float] = Field(description="the label's calibrated probability at these quantiles")


class Sentences(BaseModel):
    """An explanation in plain words."""

    says: str = Field(description="the label, and how sure the model is of it")
    decision: str = Field(description="whether it is answered, and why")
    doubt: str = Field(description="which words the uncertainty comes from, or that there is hardly any")


class ExplainResponse(BaseModel):
    """The prediction, and where its uncertainty comes from."""

    summary: Sentences
    answer: Answer
    before: dict[str, float] = Field(description="probabilities before calibration")
    passes: list[list[float]] = Field(
        description="calibrated probabilities of each pass: (passes, classes); one for a method without sampling"
    )
    band: Band | None = Field(description="of a method without sampling; null where the passes were sampled")
    settings: UsedSettings
    promised: bool = Field(description="whether the promises of the calibration hold for these settings")
    segments: list[list[ExplainedWord]] = Field(description="words of the text, or of each part of a pair")
    variance: float = Field(description="first-order variance of the margin, in squared logits")
    layers: list[ExplainedLayer]
    attention: Attention | None = Field(description="null for a long text, or a method without modulation")
    truncated_tokens: int = Field(description="tokens that were cut off")


class Rule(BaseModel):
    """When the classifier abstains: where `score` is not above `threshold`. Of several answers each is decided so."""

    score: str
    threshold: float | None = Field(description="null where it always answers, or never")
    most: int | None = Field(description="of several answers: a text reports at most so many, its surest; else null")
    promised: bool = Field(description="whether the calibration rows can promise what was asked for")
    promise: str

    @classmethod
    def of(cls, rule: AbstentionRule | GroupedRule) -> "Rule":
        """The JSON of an abstention rule, or of a rule for several answers."""
        return cls(
            score=rule.score,
            threshold=rule.threshold if math.isfinite(rule.threshold) else None,
            most=rule.most if isinstance(rule, GroupedRule) else None,
            promised=rule.promised,
            promise=rule.describe(),
        )


class TargetRisk(BaseModel):
    """A target risk: the coverage at which it is promised, or how many labelled rows a promise would take."""

    target: float
    threshold: float | None = Field(description="answer above it; null without a promise, or where all is answered")
    coverage: float | None = Field(description="share of calibration rows answered; null without a promise")
    coverage_interval: tuple[float, float] | None
    rows_needed: int | None = Field(description="by estimate; null where it is promised, or more rows will hardly help")

    @classmethod
    def of(cls, line: MenuLine) -> "TargetRisk":
        """The JSON of a line of the menu."""
        rule = line.rule
        if rule is None:
            return cls(
                target=line.target,
                threshold=None,
                coverage=None,
                coverage_interval=None,
                rows_needed=line.rows_needed,
            )
        return cls(
            target=line.target,
            threshold=Rule.of(rule).threshold,
            coverage=rule.coverage,
            coverage_interval=rule.coverage_interval,
            rows_needed=None,
        )


class RiskMenu(BaseModel):
    """Which risks the calibration rows promise, and the risk at each coverage with its interval, (points,) each."""

    score: str
    confidence: float = Field(description="with which each promise holds by itself")
    rows: int = Field(description="labelled rows that decided")
    lines: list[TargetRisk]
    threshold: list[float] = Field(description="scores above which a row is answered, from high to low")
    coverage: list[float]
    risk: list[float]
    low: list[float]
    high: list[float]

    @classmethod
    def of(cls, menu: Menu) -> "RiskMenu":
        """The JSON of a menu."""
        return cls(
            score=menu.score,
            confidence=menu.confidence,
            rows=menu.rows,
            lines=[TargetRisk.of(line) for line in menu.lines],
            threshold=list(menu.curve.thresholds),
            coverage=list(menu.curve.coverages),
            risk=list(menu.curve.risks),
            low=list(menu.curve.low),
            high=list(menu.curve.high),
        )


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
