"""The explanation of one text for the inspector page, with the served settings or others."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.predictor import Predictor
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS
from uatlite.serve.schema import (
    Answer,
    Attention,
    Band,
    ExplainedLayer,
    ExplainedWord,
    ExplainResponse,
    ExplainSettings,
    Sentences,
    UsedSettings,
)
from uatlite.trust.distribution import pass_probabilities, probabilities
from uatlite.values import Text, WordAttribution

if TYPE_CHECKING:
    from uatlite.classifier.explanation import Explanation

STANDARD = METHODS["analytic"]
"""The method that explains a model which is served without dropout."""
MOST_MAPPED = 96
"""Tokens of a text whose attention is sent: the maps grow with their square, and a screen shows no more."""
DIGITS = 5
"""Decimals of an attention weight, which becomes a colour."""


@dataclass(frozen=True)
class Inspection:
    """A checked text to explain, and how."""

    text: Text
    settings: ExplainSettings
    masking: bool
    """whether to mask each word in turn, which costs as much as predicting a text for each word"""


def inspect(predictor: Predictor, inspection: Inspection) -> ExplainResponse:
    """The prediction, its passes, and where its uncertainty comes from."""
    method = changed_method(predictor.settings.method, inspection.settings)
    explanation = with_method(predictor, method).explain(inspection.text, occlusion=inspection.masking)
    classes = explanation.prediction.among.classes
    before = probabilities(explanation.outputs, None)[0].tolist()
    each = pass_probabilities(explanation.outputs, predictor.calibrator)[:, 0]
    return ExplainResponse(
        summary=Sentences.model_validate(asdict(explanation.summary)),
        answer=Answer.of(explanation.prediction),
        before=dict(zip(classes, before, strict=True)),
        passes=each[~np.isnan(each).any(axis=1)].tolist(),  # a text may need fewer passes than are allowed
        band=None if explanation.band is None else Band.model_validate(asdict(explanation.band)),
        settings=used_settings(method),
        promised=predictor.calibration is not None and method == predictor.settings.method,
        segments=[[_word(word) for word in part] for part in explanation.segments],
        variance=float(explanation.attribution.total[0]),
        layers=[
            ExplainedLayer(name=one.name, share=one.share, components=dict(one.components))
            for one in explanation.layers
        ],
        attention=_attention(explanation),
        truncated_tokens=explanation.truncated_tokens,
    )


def changed_method(method: Method, settings: ExplainSettings) -> Method:
    """The method with the given settings; a method without dropout is replaced by the standard one."""
    if method.config is None:
        return changed_method(STANDARD, settings)
    given = {name: value for name, value in settings.model_dump().items() if value is not None}
    if not method.stochastic:
        given.pop("samples", None)
    return method.changed(**{name: str(value) for name, value in given.items()})


def used_settings(method: Method) -> UsedSettings:
    """The settings of a method that a client can change."""
    explained = STANDARD if method.config is None else method
    assert explained.config is not None
    return UsedSettings(
        method=method.name,
        penalty=explained.config.penalty,
        samples=explained.config.samples if explained.stochastic else None,
        gate=explained.config.gate,
    )


def with_method(predictor: Predictor, method: Method) -> Predictor:
    """The same predictor with another method. It keeps the calibration, whose promises do not hold for that method."""
    settings = predictor.settings
    return replace(predictor, settings=replace(settings, method=method.seeded(settings.seed)))


def _word(word: WordAttribution) -> ExplainedWord:
    return ExplainedWord(
        text=word.word.text,
        uncertainty=word.uncertainty,
        share=word.share,
        masked_confidence=word.masked_confidence,
    )


def _attention(explanation: "Explanation") -> Attention | None:
    """The mean over heads, layer by layer; None for a method that modulates nothing, or a text of many tokens."""
    found = explanation.token_attention
    if found is None or explanation.sequence_length > MOST_MAPPED:
        return None

    def maps(weights: Any) -> list[Any]:
        mean = weights.mean(dim=1).cpu().numpy().astype(np.float64)  # (layers, tokens, tokens)
        return np.round(mean, DIGITS).tolist()  # type: ignore[no-any-return]

    tokens = [token.text for token in explanation.chosen_tokens]
    return Attention(tokens=tokens, plain=maps(found.plain), modulated=maps(found.modulated))
