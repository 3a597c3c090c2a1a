"""One label of one text explained: its prediction, and the words and layers that its uncertainty comes from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.attribution.case import Case, LabelLogit
from uatlite.attribution.first_order import first_order
from uatlite.attribution.layers import Propagation
from uatlite.attribution.words import tokens_of
from uatlite.classifier import explainer
from uatlite.classifier.display import excerpt
from uatlite.classifier.label_predictions import LabelPrediction
from uatlite.classifier.runtime import TorchRuntime
from uatlite.errors import ConfigurationError, ModelError, check_choice
from uatlite.values import Text, WordAttribution

if TYPE_CHECKING:
    from uatlite.classifier.labeler import LabelPredictor

SHOWN = 5
"""Words of a printed explanation; `words` has all of them."""


@dataclass(frozen=True, eq=False, repr=False)
class LabelExplanation:
    """What is said about one label of a text, and where the variance of its logit under dropout comes from."""

    prediction: LabelPrediction
    """the same as `labeler.predict([text])[0]`"""
    label: str
    method: str
    variance: float
    """first-order, of the label's logit"""
    words: tuple[WordAttribution, ...]
    """the words in order, each with its share of the variance"""
    special_tokens: tuple[WordAttribution, ...]
    """[CLS], [SEP] and their like"""
    layers: Mapping[str, float]
    """the share of each layer: embeddings, layer 1 .. layer L, head"""

    @property
    def text(self) -> Text:
        return self.prediction.text

    @property
    def probability(self) -> float:
        """That the label applies."""
        return self.prediction.probabilities[self.label]

    @property
    def says(self) -> str:
        """What is explained, in a sentence."""
        return (
            f"{excerpt(self.text)!r}: {self.label} with probability {self.probability:.3f}; its logit varies by "
            f"{np.sqrt(self.variance):.2f} (one standard deviation) under dropout."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "label": self.label,
            "probability": self.probability,
            "method": self.method,
            "variance": self.variance,
            "words": [asdict(word) for word in self.words],
            "special_tokens": [asdict(word) for word in self.special_tokens],
            "layers": dict(self.layers),
            "prediction": self.prediction.as_row(),
        }

    def __repr__(self) -> str:
        most = sorted(self.words, key=lambda word: -word.share)[:SHOWN]
        layers = sorted(self.layers.items(), key=lambda item: -item[1])[:3]
        return "\n".join(
            [
                self.says,
                "Words: " + ", ".join(f"{word.word.text} {word.share:.0%}" for word in most),
                "Layers: " + ", ".join(f"{name} {share:.0%}" for name, share in layers),
            ]
        )


def explain_label(predictor: "LabelPredictor", text: Text, label: str | int | None) -> LabelExplanation:
    """The explanation of one label, by default the one that is least sure."""
    if not isinstance(predictor.runtime, TorchRuntime):
        raise ModelError("an exported model cannot be explained, which takes gradients; explain its checkpoint.")
    model, tokenizer = predictor.runtime.model, predictor.runtime.tokenizer
    reading = explainer.read(model, tokenizer, text, predictor.settings)
    predictions = predictor.predictions([text], reading.outputs)
    column = _column(label, predictions.classes, predictions.probabilities[0])
    found = Propagation.of(first_order(Case.of(model, reading.encoded, reading.config), LabelLogit(column)))
    by_token = tokens_of(found, model, tokenizer, reading.encoded, reading.config, occlusion=False)
    words = by_token.words[0]
    return LabelExplanation(
        prediction=predictions[0],
        label=predictions.classes[column],
        method=reading.method.name,
        variance=float(found.variance[0]),
        words=tuple(word for word in words if not word.word.special),
        special_tokens=tuple(word for word in words if word.word.special),
        layers=dict(zip(found.layers, found.shares[0].tolist(), strict=True)),
    )


def _column(label: str | int | None, classes: tuple[str, ...], probabilities: Any) -> int:
    if label is None:
        return int(np.abs(probabilities - 0.5).argmin())
    if isinstance(label, int):
        if not 0 <= label < len(classes):
            raise ConfigurationError(f"label={label} is no column of this model; it has 0 to {len(classes) - 1}.")
        return label
    check_choice("label", label, classes)
    return classes.index(label)
