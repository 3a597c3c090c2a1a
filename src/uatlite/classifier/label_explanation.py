"""One label of one text explained: its prediction, and the words and layers that its uncertainty comes from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.attribution.case import Case, LabelLogit
from uatlite.attribution.first_order import first_order
from uatlite.attribution.layers import Propagation
from uatlite.classifier import explainer
from uatlite.classifier.display import excerpt
from uatlite.classifier.explanation import AnswerExplanation
from uatlite.classifier.label_predictions import LabelPrediction
from uatlite.classifier.runtime import TorchRuntime
from uatlite.errors import ConfigurationError, ModelError, check_choice
from uatlite.values import Text

if TYPE_CHECKING:
    from uatlite.classifier.labeler import LabelPredictor


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelExplanation(AnswerExplanation[LabelPrediction]):
    """What is said about one label of a text, and where the variance of its logit under dropout comes from."""

    label: str

    @property
    def probability(self) -> float:
        """That the label applies."""
        return self.prediction.probabilities[self.label]

    @property
    def says(self) -> str:
        return (
            f"{excerpt(self.text)!r}: {self.label} with probability {self.probability:.3f}; its logit varies by "
            f"{np.sqrt(self.variance):.2f} (one standard deviation) under dropout."
        )

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probability": self.probability, **super().to_dict()}


def explain_label(predictor: "LabelPredictor", text: Text, label: str | int | None) -> LabelExplanation:
    """The explanation of one label, by default the one that is least sure."""
    if not isinstance(predictor.runtime, TorchRuntime):
        raise ModelError("an exported model cannot be explained, which takes gradients; explain its checkpoint.")
    model, tokenizer = predictor.runtime.model, predictor.runtime.tokenizer
    reading = explainer.read(model, tokenizer, text, predictor.settings)
    predictions = predictor.predictions([text], reading.outputs)
    column = _column(label, predictions.classes, predictions.probabilities[0])
    found = Propagation.of(first_order(Case.of(model, reading.encoded, reading.config), LabelLogit(column)))
    return LabelExplanation(
        prediction=predictions[0],
        label=predictions.classes[column],
        method=reading.method.name,
        **explainer.origins(found, model, tokenizer, reading.encoded, reading.config),
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
