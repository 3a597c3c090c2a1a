"""Variational inference in the last layer: one pass of the encoder, many draws of the weights after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uatlite.methods.method import Passes
from uatlite.methods.trained import TrainedMethod, at_least

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.heads import VariationalLinear


@dataclass(frozen=True)
class VariationalLastLayer(TrainedMethod):
    """`samples` draws of the last layer from its Gaussian posterior; each serves all texts.

    A draw is a matrix product with one layer, so many cost little more than one.
    """

    key: ClassVar[str] = "vi-last-layer"
    summary: ClassVar[str] = "variational Gaussian last layer: one pass of the encoder, the layer sampled"
    stochastic: ClassVar[bool] = True

    samples: int = 32

    def __post_init__(self) -> None:
        at_least(self, samples=1)

    @property
    def passes(self) -> int:
        return self.samples

    @property
    def knows_variance(self) -> bool:
        return self.samples > 1

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes)."""
        import torch

        from uatlite.backbone.copies import features, without_last_layer
        from uatlite.backbone.method_weights import weights_for

        weights = weights_for(model, self.key)
        body, layer = weights.made(
            model, self.key, lambda: (without_last_layer(model), _posterior(model, weights.tensors))
        )
        with torch.inference_mode():
            x = features(body, encoded)
            logits = layer.sample(x.flatten(0, -2), self.samples, self.seed)
            return Passes(logits.reshape(self.samples, len(x), -1))


def _posterior(model: PreTrainedModel, log_scales: Mapping[str, Tensor]) -> VariationalLinear:
    """The model's last layer, which has the means, with the scales beside them."""
    from uatlite.backbone.copies import last_layer
    from uatlite.heads import VariationalLinear

    layer = VariationalLinear.around(last_layer(model)[1])
    layer.load_state_dict(log_scales, strict=False)
    return layer.eval()


VI_LAST_LAYER = VariationalLastLayer()
