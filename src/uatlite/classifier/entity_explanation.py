"""One entity of one text explained: the words and layers that the uncertainty of its weakest word comes from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from uatlite.attribution.case import OUTPUTS, Case
from uatlite.attribution.first_order import first_orders
from uatlite.attribution.layers import Propagation
from uatlite.attribution.words import tokens_of
from uatlite.classifier.display import excerpt
from uatlite.classifier.entity_predictions import EntityPrediction, FoundEntity
from uatlite.classifier.runtime import TorchRuntime
from uatlite.classifier.token_run import run_tokens
from uatlite.errors import InputError, ModelError
from uatlite.methods.one_pass import ANALYTIC
from uatlite.values import Text, WordAttribution

if TYPE_CHECKING:
    from uatlite.classifier.tagger import EntityPredictor
    from uatlite.model.spans import TaggedText

SHOWN = 5
"""Words of a printed explanation; `words` has all of them."""


@dataclass(frozen=True, eq=False, repr=False)
class EntityExplanation:
    """What is said about one entity, and where the variance of its weakest word's margin under dropout comes from."""

    prediction: EntityPrediction
    """the same as `tagger.predict([text])[0]`"""
    number: int
    """of the entity among those found, from 0"""
    weakest: str
    """the token that decides the tag of its weakest word"""
    method: str
    variance: float
    """first-order, of the margin of that token"""
    words: tuple[WordAttribution, ...]
    """the words in order, each with its share of the variance; of a long text those of one window"""
    special_tokens: tuple[WordAttribution, ...]
    """[CLS], [SEP] and their like"""
    layers: Mapping[str, float]
    """the share of each layer: embeddings, layer 1 .. layer L, head"""

    @property
    def text(self) -> Text:
        return self.prediction.text

    @property
    def entity(self) -> FoundEntity:
        return self.prediction.entities[self.number]

    @property
    def says(self) -> str:
        """What is explained, in a sentence."""
        entity = self.entity
        return (
            f"{excerpt(self.text)!r}: {entity.text!r} is {entity.label} with confidence {entity.confidence:.3f}; the "
            f"margin of {self.weakest!r} varies by {np.sqrt(self.variance):.2f} (one standard deviation) under dropout."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "entity": asdict(self.entity),
            "number": self.number,
            "weakest": self.weakest,
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
    words = tokens_of(spread, runtime.model, runtime.tokenizer, encoded, config, occlusion=False).words[0]
    start, end = located.texts[0].places[token].tolist()
    return EntityExplanation(
        prediction=prediction,
        number=number,
        weakest=located.texts[0].text[start:end],
        method=predictor.settings.method.name,
        variance=float(spread.variance[0]),
        words=tuple(word for word in words if not word.word.special),
        special_tokens=tuple(word for word in words if word.word.special),
        layers=dict(zip(spread.layers, spread.shares[0].tolist(), strict=True)),
    )
