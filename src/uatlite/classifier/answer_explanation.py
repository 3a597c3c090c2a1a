"""One of several answers of a text explained, a label or an entity: the words and layers its uncertainty comes from."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uatlite.attribution.first_order import OUTPUTS, Case, LabelLogit, first_order, first_orders
from uatlite.attribution.layers import Attribution
from uatlite.classifier import explainer
from uatlite.classifier.entities import FoundEntity
from uatlite.classifier.explanation import AnswerExplanation
from uatlite.classifier.predictions import excerpt
from uatlite.classifier.runtime import Runtime, TorchRuntime
from uatlite.classifier.token_run import run_tokens
from uatlite.errors import ConfigurationError, InputError, ModelError, check_choice
from uatlite.methods.sampling import ANALYTIC
from uatlite.values import Text

if TYPE_CHECKING:
    from uatlite.classifier.product import Predictor


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LabelExplanation(AnswerExplanation):
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


def explain_label(predictor: "Predictor", text: Text, label: str | int | None) -> LabelExplanation:
    """The explanation of one label, by default the one that is least sure."""
    runtime = _with_gradients(predictor.runtime)
    model, tokenizer = runtime.model, runtime.tokenizer
    reading = explainer.read(model, tokenizer, text, predictor.settings)
    predictions = predictor.predictions([text], reading.outputs)
    column = _column(label, predictions.classes, predictions.probabilities[0])
    logit = LabelLogit(column)
    attribution = Attribution.of(first_order(Case.of(model, reading.encoded, reading.config), logit), logit)
    return LabelExplanation(
        prediction=predictions[0],
        label=predictions.classes[column],
        method=reading.method.name,
        **explainer.origins(attribution, tokenizer, reading.encoded),
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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EntityExplanation(AnswerExplanation):
    """What is said about one entity, and where the variance of its weakest word's margin under dropout comes from."""

    number: int
    """of the entity among those found, from 0"""
    weakest: str
    """the token that decides the tag of its weakest word"""

    @property
    def entity(self) -> FoundEntity:
        entity: FoundEntity = self.prediction.entities[self.number]
        return entity

    @property
    def says(self) -> str:
        entity = self.entity
        return (
            f"{excerpt(self.text)!r}: {entity.text!r} is {entity.label} with confidence {entity.confidence:.3f}; the "
            f"margin of {self.weakest!r} varies by {np.sqrt(self.variance):.2f} (one standard deviation) under dropout."
        )

    def to_dict(self) -> dict[str, Any]:
        return {"entity": asdict(self.entity), "number": self.number, "weakest": self.weakest, **super().to_dict()}


def explain_entity(predictor: "Predictor", text: Text, number: int | None) -> EntityExplanation:
    """The explanation of one entity, by default the least sure one."""
    runtime = _with_gradients(predictor.runtime)
    outputs = run_tokens(runtime, [text], predictor.settings)
    prediction = predictor.predictions([text], outputs)[0]
    found = prediction.entities
    if not found:
        raise InputError(f"no entity is found in {excerpt(text)!r}, so there is none to explain.")
    if number is None:
        number = int(np.argmin([entity.confidence for entity in found]))
    if not 0 <= number < len(found):
        raise InputError(f"entity={number} is not one of the {len(found)} entities found, 0 to {len(found) - 1}.")
    token = outputs.decoded[0].entities[number].token
    located = outputs.located
    window = next(place for place, one in enumerate(located.windows) if one.first <= token < one.last)
    encoded = located.tokens.pad([window])
    place = located.inner(window).start + token - located.windows[window].start
    config = predictor.settings.method.config or ANALYTIC.config

    def margin(rows: Tensor, logits: Tensor) -> Tensor:
        weights = torch.zeros_like(logits)
        weights[0, place] = OUTPUTS["margin"](logits[:, place])[0]
        return weights[None]

    attribution = Attribution.of(first_orders(Case.of(runtime.model, encoded, config), margin), "margin")
    start, end = located.texts[0].places[token].tolist()
    return EntityExplanation(
        prediction=prediction,
        number=number,
        weakest=located.texts[0].text[start:end],
        method=predictor.settings.method.name,
        **explainer.origins(attribution, runtime.tokenizer, encoded),
    )


def _with_gradients(runtime: Runtime) -> TorchRuntime:
    if not isinstance(runtime, TorchRuntime):
        raise ModelError("an exported model cannot be explained, which takes gradients; explain its checkpoint.")
    return runtime
