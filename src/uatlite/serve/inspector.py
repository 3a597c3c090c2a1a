"""POST /explain: a text from all sides, for the inspector page; of several answers a text, one label or entity."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, AliasPath, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from uatlite.classifier.explanation import Sentences
from uatlite.classifier.many_labels import EVEN
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.product import Predictor
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS
from uatlite.passes.config import GATES
from uatlite.serve.http import invalid
from uatlite.serve.schema import Answer, EntitiesAnswer, LabelsAnswer, TaggedIn, TextIn, UsedSettings
from uatlite.trust.distribution import Band, pass_probabilities, probabilities
from uatlite.values import Text, Words

if TYPE_CHECKING:
    from torch import Tensor

    from uatlite.classifier.explanation import AnswerExplanation, Explanation

EXPLAINED_BY = METHODS["analytic"]
"""The method that explains a model which is served without dropout."""
MOST_SAMPLES = 64
"""The most passes that a client may ask for."""
MOST_PENALTY = 10.0
MOST_MAPPED = 96
"""Tokens of a text whose attention is sent: the maps grow with their square, and a screen shows no more."""
ATTENTION_DIGITS = 5
"""Decimals of an attention weight, which becomes a colour."""


def _check_gate(gate: str | None) -> str | None:
    if gate is None or gate in GATES:
        return gate
    raise PydanticCustomError("gate", f"is not one of: {', '.join(GATES)}")


class ExplainSettings(BaseModel):
    """Settings to try instead of the served ones; the calibration does not hold for them."""

    model_config = ConfigDict(extra="forbid")
    penalty: Annotated[float | None, Field(ge=0, le=MOST_PENALTY, allow_inf_nan=False, description="λ")] = None
    samples: Annotated[int | None, Field(ge=2, le=MOST_SAMPLES, description="passes M")] = None
    gate: Annotated[
        str | None,
        AfterValidator(_check_gate),
        Field(json_schema_extra={"enum": [*GATES, None]}, description="what is modulated"),
    ] = None


class ExplainRequest(BaseModel):
    """One text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "It is not bad at all."}]})
    text: TextIn
    settings: ExplainSettings = ExplainSettings()
    masking: Annotated[bool, Field(description="also mask each word in turn, at the cost of a text each")] = False


class ExplainLabelRequest(BaseModel):
    """One label of one text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "It is not bad at all."}]})
    text: TextIn
    label: str | None = Field(None, description="the label, by name; by default the one that is least sure")


class ExplainEntityRequest(BaseModel):
    """One entity of one text to explain."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "Ada Lovelace lived there."}]})
    text: TaggedIn
    entity: int | None = Field(
        None, ge=0, description="its number among those found, from 0; by default the least sure one"
    )


class ExplainedWord(BaseModel):
    """A word of the text."""

    text: str = Field(validation_alias=AliasPath("word", "text"))
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


class LayerShare(BaseModel):
    """A layer's part of the uncertainty."""

    name: str
    share: float = Field(description="of the first-order variance")


class Origins(BaseModel):
    """Where the uncertainty about one answer comes from, to first order."""

    variance: float = Field(description="first-order variance under dropout, in squared logits")
    words: list[ExplainedWord]
    layers: list[LayerShare]
    summary: str

    @classmethod
    def of(cls, explanation: "AnswerExplanation", about: str) -> Self:
        """The JSON of an explanation of one answer; `about` is what its sentence calls the answer."""
        variance = explanation.variance
        first = sorted(explanation.words, key=lambda word: -word.share)[:2]
        named = " and ".join(f"“{word.word.text}” ({word.share:.0%})" for word in first if word.share > 0.0)
        summary = f"{about} {explanation.varies}."
        if named and variance > 0.0:
            summary += f" The largest shares have {named}."
        origins = {"variance": variance, "words": explanation.words, "layers": explanation.layers, "summary": summary}
        return cls.model_validate(origins, from_attributes=True)


class ExplainedLabel(BaseModel):
    """The labels of a text, and where the uncertainty about one of them comes from."""

    answer: LabelsAnswer
    label: str
    origins: Origins


class ExplainedEntity(BaseModel):
    """The entities of a text, and where the uncertainty about one of them comes from."""

    answer: EntitiesAnswer
    entity: int | None = Field(description="its number among the entities, from 0; null where none is found")
    origins: Origins | None = Field(description="of the margin of its weakest word; null where no entity is found")


def inspect_class(predictor: Predictor, text: Text, asked: ExplainRequest) -> ExplainResponse:
    """The prediction, its passes, and the words, layers and attention that its uncertainty comes from."""
    served, shows = predictor.settings.method, explaining(predictor.settings.method)
    tried = asked.settings.model_dump(exclude_none=True, exclude=None if shows.stochastic else {"samples"})
    method = shows.changed(**{name: str(value) for name, value in tried.items()})
    explanation: Explanation = with_method(predictor, method).explain(text, occlusion=asked.masking)
    predictions, outputs = explanation.prediction.among, explanation.reading
    assert isinstance(predictions, ClassPredictions)
    shown = ("summary", "band", "segments", "variance", "layers")
    return ExplainResponse.model_validate(
        {
            "answer": Answer.rows(predictions)[0],
            "before": dict(zip(predictions.classes, probabilities(outputs, None)[0].tolist(), strict=True)),
            "passes": pass_probabilities(outputs, predictor.calibrator)[:, 0].tolist(),
            "settings": used_settings(method),
            "promised": predictor.calibration is not None and method == served,
            "attention": _attention(explanation),
            "truncated_tokens": explanation.prediction.cut_tokens,
            **{name: getattr(explanation, name) for name in shown},
        },
        from_attributes=True,
    )


def inspect_label(predictor: Predictor, text: Text, asked: ExplainLabelRequest) -> ExplainedLabel:
    """All labels of the text, and the words and layers that the uncertainty about one of them comes from."""
    if asked.label is not None and asked.label not in predictor.class_names:
        raise invalid("label", f"is not one of: {', '.join(predictor.class_names)}")
    predictions = predictor.predict([text])
    probs = predictions[0].probabilities
    label = min(probs, key=lambda name: abs(probs[name] - EVEN)) if asked.label is None else asked.label
    explanation = with_method(predictor, explaining(predictor.settings.method)).explain(text, label)
    return ExplainedLabel(
        answer=LabelsAnswer.model_validate(LabelsAnswer.rows(predictions, predictor.calibrator)[0]),
        label=label,
        origins=Origins.of(explanation, f"The logit of {label}"),
    )


def inspect_entity(predictor: Predictor, text: str | Words, asked: ExplainEntityRequest) -> ExplainedEntity:
    """All entities of the text, and the words and layers that the uncertainty about one of them comes from."""
    predictions = predictor.predict([text])
    answer = EntitiesAnswer.model_validate(EntitiesAnswer.rows(predictions)[0])
    if not answer.entities:
        return ExplainedEntity(answer=answer, entity=None, origins=None)
    explanation: AnswerExplanation = predictor.explain(text, asked.entity)
    about = f"The margin of “{explanation.weakest}”, which decides its weakest word,"
    return ExplainedEntity(answer=answer, entity=explanation.number, origins=Origins.of(explanation, about))


def explaining(method: Method) -> Method:
    """The method, or instead of one without dropout the standard one."""
    return EXPLAINED_BY if method.config is None else method


def used_settings(method: Method) -> UsedSettings:
    """The settings of a method that a client can change."""
    explained = explaining(method)
    config = explained.config
    assert config is not None
    samples = config.samples if explained.stochastic else None
    return UsedSettings(method=method.name, penalty=config.penalty, samples=samples, gate=config.gate)


def with_method(predictor: Predictor, method: Method) -> Predictor:
    """The same predictor with another method. It keeps the calibration, whose promises do not hold for that method."""
    settings = predictor.settings
    return replace(predictor, settings=replace(settings, method=method.seeded(settings.seed)))


def _attention(explanation: "Explanation") -> Attention | None:
    """The mean over heads, layer by layer; None for a method that modulates nothing, or a text of many tokens."""
    shift = explanation.token_attention
    if shift is None or len(explanation.sequence) > MOST_MAPPED:
        return None

    def maps(weights: "Tensor") -> Any:
        mean = weights.mean(dim=1).cpu().numpy().astype(np.float64)  # (layers, tokens, tokens)
        return np.round(mean, ATTENTION_DIGITS).tolist()

    tokens = [token.text for token in explanation.chosen_tokens]
    return Attention(tokens=tokens, plain=maps(shift.plain), modulated=maps(shift.modulated))
