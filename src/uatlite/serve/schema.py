"""The JSON of requests and responses, as it stands in OpenAPI."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from uatlite.classifier.predictions import MEASURES, Prediction
from uatlite.passes.config import GATES
from uatlite.serve.http import KINDS
from uatlite.trust.rule import SCORES
from uatlite.values import Choices, Text

MOST_SAMPLES = 64
"""Passes that a client may ask for."""
MOST_PENALTY = 10.0
MOST_ROWS = 20_000
"""Rows of a risk–coverage curve."""


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


def text_of(given: str | tuple[str, str] | Question) -> Text:
    """The value that a classifier takes."""
    return Choices(given.question, tuple(given.options)) if isinstance(given, Question) else given


class PredictRequest(BaseModel):
    """Texts to classify; a single one is a list of one."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"texts": ["It is not bad at all."]}]})
    texts: list[TextIn] = Field(min_length=1, description="texts, pairs [first, second], or questions with options")


class Uncertainty(BaseModel):
    """How unsure the classifier is; entropies in nats."""

    margin: float = Field(description="largest probability minus second largest")
    entropy: float = Field(description="of the mean distribution over passes: the total")
    expected_entropy: float = Field(description="mean entropy of a pass: the part that lies in the data")
    mutual_information: float = Field(description="entropy - expected_entropy: what the passes disagree about")
    variance: float = Field(description="over passes, of the predicted class's probability")


class Answer(BaseModel):
    """What the classifier says of one text. The label is given also where it abstains."""

    label: str | int
    probabilities: dict[str, float] = Field(description="by class, calibrated where the model is")
    confidence: float = Field(description="the probability of the label")
    uncertainty: Uncertainty
    score: float = Field(description="what the rule abstains by, by default the confidence; higher is more trusted")
    abstain: bool | None = Field(description="whether not to trust the label; null without a rule to abstain by")
    label_set: list[str] | None = Field(description="the labels that conform; null where none were calibrated")
    distance: float | None = Field(description="squared distance from the calibration rows; null where unknown")
    outlier: bool | None = Field(description="farther out than all but 1 % of calibration rows; null where unknown")
    passes: int = Field(description="stochastic passes that were run for this text")

    @classmethod
    def of(cls, prediction: Prediction) -> "Answer":
        """A prediction as JSON."""
        row, rule = prediction.as_row(), prediction.among.rule
        return cls(
            label=prediction.label,
            probabilities=prediction.probabilities,
            confidence=prediction.confidence,
            uncertainty=Uncertainty(**{name: row[name] for name in MEASURES if name != "confidence"}),  # type: ignore[arg-type]
            score=float(SCORES["confidence" if rule is None else rule.score](prediction)),  # type: ignore[arg-type]
            abstain=row.get("abstain"),  # type: ignore[arg-type]
            label_set=row.get("label_set"),  # type: ignore[arg-type]
            distance=row.get("distance"),  # type: ignore[arg-type]
            outlier=row.get("outlier"),  # type: ignore[arg-type]
            passes=prediction.passes,
        )


class Shift(BaseModel):
    """Whether the texts of a request, all together, are like the calibration rows."""

    shifted: bool | None = Field(description="null where the texts are too few to say")
    p_value: float | None
    verdict: str


class PredictResponse(BaseModel):
    """The answers in the order of the texts."""

    predictions: list[Answer]
    shift: Shift | None = Field(description="null where calibration kept nothing to compare with")
    calibrated: bool
    method: str


class Settings(BaseModel):
    """Other settings than the served ones, to look at what they do; the calibration does not hold for them."""

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
    settings: Settings = Settings()
    masking: Annotated[bool, Field(description="also mask each word in turn, a forward pass each")] = False


class ExplainedWord(BaseModel):
    """A word of the text."""

    text: str
    uncertainty: float = Field(description="U: how far its embedding moves under dropout")
    share: float = Field(description="of the first-order variance of the margin")
    change: float | None = Field(description="of the label's probability when the word is masked; null unless asked")


class ExplainedLayer(BaseModel):
    """What a layer contributes to the variance of the margin."""

    name: str
    share: float
    components: dict[str, float] = Field(description="the contribution by component, in squared logits")


class Attention(BaseModel):
    """Attention weights of each layer, averaged over heads: (layers, tokens, tokens), a row is a query."""

    tokens: list[str]
    plain: list[list[list[float]]] = Field(description="without modulation")
    modulated: list[list[list[float]]] = Field(description="with it, on the same masks")


class UsedSettings(BaseModel):
    """What the passes were made with."""

    method: str
    penalty: float = Field(description="λ")
    samples: int | None = Field(description="passes M; null where the method samples nothing")
    gate: str


class ExplainResponse(BaseModel):
    """The answer, and where its uncertainty comes from."""

    answer: Answer
    before: dict[str, float] = Field(description="probabilities before calibration")
    passes: list[list[float]] = Field(description="calibrated probabilities of each pass: (passes, classes)")
    settings: UsedSettings
    promised: bool = Field(description="whether what calibration promised holds for these settings")
    segments: list[list[ExplainedWord]] = Field(description="words of the text, or of each part of a pair")
    variance: float = Field(description="first-order variance of the margin, in squared logits")
    layers: list[ExplainedLayer]
    attention: Attention | None = Field(description="null for a long text, or a method that modulates nothing")
    truncated_tokens: int = Field(description="tokens that were cut off")


class Rule(BaseModel):
    """When the classifier abstains: where `score` is not above `threshold`."""

    score: str
    threshold: float | None = Field(description="null where it answers all, or none")
    promise: str


class ServedModel(BaseModel):
    """What is served."""

    architecture: str
    classes: list[str] = Field(description="empty for a multiple choice that was not calibrated")
    multiple_choice: bool
    method: str
    passes: int
    settings: UsedSettings
    gates: list[str] = Field(description="gates that can be asked for")
    calibration: list[str] | None = Field(description="what was learned and is promised; null where nothing was")
    rule: Rule | None
    limits: dict[str, int | float]
    version: str


class CurveRequest(BaseModel):
    """Rows with a known truth: how far each is trusted, and whether its label was right."""

    model_config = ConfigDict(extra="forbid")
    scores: list[Annotated[float, Field(allow_inf_nan=False)]] = Field(min_length=1, max_length=MOST_ROWS)
    right: list[bool] = Field(min_length=1, max_length=MOST_ROWS)


class CurveResponse(BaseModel):
    """The risk–coverage curve: of the rows that are answered, from the most trusted down, the share that is wrong."""

    coverage: list[float]
    risk: list[float]
    aurc: float = Field(description="area under it: mean risk over all coverages")
    accuracy: float


class Status(BaseModel):
    """Whether the service lives, or is ready."""

    status: str


class FieldError(BaseModel):
    """What is wrong with a field."""

    field: str
    message: str


class ErrorBody(BaseModel):
    """Why there is no answer."""

    code: str
    message: str
    fields: list[FieldError] = []


class ErrorResponse(BaseModel):
    """The body of every response that is no answer."""

    error: ErrorBody
