"""One entity of one text explained: the words and layers that the uncertainty of its weakest word comes from."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uatlite.attribution.case import OUTPUTS, Case
from uatlite.attribution.first_order import first_orders
from uatlite.attribution.layers import Propagation
from uatlite.classifier import explainer
from uatlite.classifier.display import excerpt
from uatlite.classifier.entity_predictions import EntityPrediction, FoundEntity
from uatlite.classifier.explanation import AnswerExplanation
from uatlite.classifier.runtime import TorchRuntime
from uatlite.classifier.token_run import run_tokens
from uatlite.errors import InputError, ModelError
from uatlite.methods.one_pass import ANALYTIC

if TYPE_CHECKING:
    from uatlite.classifier.tagger import EntityPredictor
    from uatlite.model.spans import TaggedText


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EntityExplanation(AnswerExplanation[EntityPrediction]):
    """What is said about one entity, and where the variance of its weakest word's margin under dropout comes from."""

    number: int
    """of the entity among those found, from 0"""
    weakest: str
    """the token that decides the tag of its weakest word"""

    @property
    def entity(self) -> FoundEntity:
        return self.prediction.entities[self.number]

    @property
    def says(self) -> str:
        entity = self.entity
        return (
            f"{excerpt(self.text)!r}: {entity.text!r} is {entity.label} with confidence {entity.confidence:.3f}; the "
            f"margin of {self.weakest!r} varies by {np.sqrt(self.variance):.2f} (one standard deviation) under dropout."
        )

    def to_dict(self) -> dict[str, Any]:
        return {"entity": asdict(self.entity), "number": self.number, "weakest": self.weakest, **super().to_dict()}


def explain_entity(predictor: "EntityPredictor", text: "TaggedText", number: int | None) -> EntityExplanation:
    """The explanation of one entity, by default the least sure one."""
    runtime = predictor.runtime
    if not isinstance(runtime, TorchRuntime):
        raise ModelError("an exported model cannot be explained, which takes gradients; explain its checkpoint.")
    outputs = run_tokens(runtime, [text], predictor.settings, predictor.scheme, predictor.strategy)
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
    inner = located.inner(window, encoded["input_ids"].shape[1])
    place = inner.start + token - located.windows[window].start
    config = predictor.settings.method.config or ANALYTIC.config

    def margin(rows: Tensor, logits: Tensor) -> Tensor:
        weights = torch.zeros_like(logits)
        weights[0, place] = OUTPUTS["margin"](logits[:, place])[0]
        return weights[None]

    several = first_orders(Case.of(runtime.model, encoded, config), margin)
    parts, tokens = several.parts[0], several.tokens[0]
    spread = Propagation.of(type(several)(several.logits, parts, tokens, several.token_uncertainty, None))
    start, end = located.texts[0].places[token].tolist()
    return EntityExplanation(
        prediction=prediction,
        number=number,
        weakest=located.texts[0].text[start:end],
        method=predictor.settings.method.name,
        **explainer.origins(spread, runtime.model, runtime.tokenizer, encoded, config),
    )
