"""The base: one deterministic pass of the model as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from uatlite.errors import ConfigurationError
from uatlite.methods.method import Passes

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Deterministic:
    """The plain model without dropout: one pass, and no uncertainty but the softmax's own."""

    name: str = "base"
    summary: str = "one deterministic pass, the model as it is"
    stochastic: bool = False
    passes: int = 1
    knows_variance: bool = False
    trained: bool = False

    def changed(self, **settings: str) -> Self:
        if settings:
            raise ConfigurationError(f"{self.name} has no settings; drop {', '.join(settings)!r}.")
        return self

    def seeded(self, seed: int) -> Self:
        return self

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.name}

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], seen: list[Any] | None = None) -> Passes:
        """The model's own logits, as (1, batch, classes); what its encoder put out is added to `seen`."""
        from uatlite.backbone.checks import check_classifier, unwrap
        from uatlite.backbone.plain import noting_its_encoder, plain

        check_classifier(unwrap(model))
        device = next(model.parameters()).device
        inputs = {key: value.to(device) for key, value in encoded.items() if key != "labels"}
        with plain(model, inputs) as classifier:
            watched = classifier if seen is None else noting_its_encoder(classifier, seen)
            logits: Tensor = watched(**inputs).logits
        return Passes(logits.float()[None])


BASE = Deterministic()
