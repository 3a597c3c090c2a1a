"""One text from all sides, under the served settings or others: what the inspector page shows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.explanation import Explanation
from uatlite.classifier.run import Outputs
from uatlite.methods.method import Method
from uatlite.methods.registry import METHODS
from uatlite.serve.schema import (
    Answer,
    Attention,
    ExplainedLayer,
    ExplainedWord,
    ExplainResponse,
    Settings,
    UsedSettings,
)
from uatlite.trust.distribution import pass_probabilities, probabilities
from uatlite.values import Text

STANDARD = METHODS["fast"]
"""How a model is explained that is served by a method without dropout."""
MOST_MAPPED = 96
"""Tokens of a text whose attention is sent: the maps grow with their square, and a screen shows no more."""
DIGITS = 5
"""Of an attention weight, which becomes a colour."""


@dataclass(frozen=True)
class Inspection:
    """A text to look at, and how."""

    text: Text
    settings: Settings
    masking: bool
    """whether to mask each word in turn, a forward pass each"""


def inspect(classifier: UncertaintyClassifier, asked: Inspection) -> ExplainResponse:
    """The prediction, its passes and where its uncertainty comes from."""
    method = changed(classifier.method, asked.settings)
    other = with_method(classifier, method)
    explanation = other.explain(asked.text, occlusion=asked.masking)
    outputs = explanation.outputs
    return ExplainResponse(
        answer=Answer.of(explanation.prediction),
        before=dict(zip(explanation.prediction.among.classes, _before(outputs), strict=True)),
        passes=_passes(other, outputs),
        settings=used(method),
        promised=classifier.calibration_ is not None and method == classifier.method,
        segments=[[_word(word) for word in part] for part in explanation.segments],
        variance=float(explanation.attribution.total[0]),
        layers=[
            ExplainedLayer(name=one.name, share=one.share, components=dict(one.components))
            for one in explanation.layers
        ],
        attention=_attention(explanation),
        truncated_tokens=explanation.truncated_tokens,
    )


def changed(method: Method, settings: Settings) -> Method:
    """The method with the settings that were given; one that drops nothing is replaced by the standard one."""
    given = {name: value for name, value in settings.model_dump().items() if value is not None}
    if method.config is None:
        return changed(STANDARD, settings)
    if not method.stochastic:
        given.pop("samples", None)
    return method.with_config(replace(method.config, **given))


def used(method: Method) -> UsedSettings:
    """The settings of a method that a client can change."""
    stage = STANDARD if method.config is None else method
    assert stage.config is not None
    return UsedSettings(
        method=method.name,
        penalty=stage.config.penalty,
        samples=stage.config.samples if stage.stochastic else None,
        gate=stage.config.gate,
    )


def with_method(classifier: UncertaintyClassifier, method: Method) -> UncertaintyClassifier:
    """The same classifier with another method, and the calibration as if it held for that, which is not promised."""
    if method == classifier.method:
        return classifier
    other = UncertaintyClassifier(
        classifier.model,
        classifier.tokenizer,
        method,
        seed=classifier.settings.seed,
        max_length=classifier.max_length,
        windows=classifier.windows,
        indices=classifier.indices,
    )
    if classifier.calibration_ is not None:
        other.calibration_ = replace(classifier.calibration_, settings=other.settings)
    return other


def _before(outputs: Outputs) -> list[float]:
    """The probabilities without calibration: (classes,)."""
    before: list[float] = probabilities(outputs, None)[0].tolist()
    return before


def _passes(classifier: UncertaintyClassifier, outputs: Outputs) -> list[list[float]]:
    """The probabilities of each pass, calibrated as the prediction is: (passes, classes)."""
    calibration = classifier.calibration_
    each = pass_probabilities(outputs, None if calibration is None else calibration.calibrator)[:, 0]
    passes: list[list[float]] = each[~np.isnan(each).any(axis=1)].tolist()
    return passes


def _word(word: Any) -> ExplainedWord:
    return ExplainedWord(
        text=word.word.text, uncertainty=word.uncertainty, share=word.share, change=word.confidence_change
    )


def _attention(explanation: Explanation) -> Attention | None:
    """The mean over heads, layer by layer, of the sequence that was predicted; None where there is too much of it."""
    found, length = explanation.attention, explanation.sequence_length
    if found is None or length > MOST_MAPPED:
        return None
    first = explanation.chosen_sequence * length
    tokens = [token for token in explanation.tokens if first <= token.place < first + length]
    places = [token.place - first for token in tokens]

    def maps(weights: Any) -> list[Any]:
        chosen = weights[:, 0] if weights.ndim == 5 else weights[:, 0, explanation.chosen_sequence]
        mean = chosen.mean(dim=1)[:, places][:, :, places]  # (layers, tokens, tokens)
        return np.round(mean.numpy().astype(np.float64), DIGITS).tolist()  # type: ignore[no-any-return]

    return Attention(tokens=[token.text for token in tokens], plain=maps(found.plain), modulated=maps(found.modulated))
