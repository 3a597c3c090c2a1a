"""The base: one deterministic pass of the model as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """The model's own logits, as (1, batch, classes)."""
        import torch

        from uatlite.backbone.checks import check_classifier, unwrap

        check_classifier(unwrap(model))
        device = next(model.parameters()).device
        inputs = {key: value.to(device) for key, value in encoded.items() if key != "labels"}
        with torch.inference_mode(), evaluating(model):
            logits: Tensor = model(**inputs).logits
        return Passes(logits.float()[None])


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch a model to evaluation mode; afterwards every module is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


BASE = Deterministic()
