"""SWA-Gaussian (Maddox et al., 2019): weights drawn from a Gaussian around the average of a training's last steps.

The model itself has the average θ. Its method weights are the variances s² (parameters,) and the last K deviations
d_k (K, parameters) from the running average, and a draw is

    θ + sqrt(scale)·(s·z / √2 + Σ_k d_k·y_k / sqrt(2(K - 1))),   z, y ~ N(0, I).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from uatlite.methods.deterministic import BASE
from uatlite.methods.method import Passes
from uatlite.methods.trained import TrainedMethod, at_least

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Swag(TrainedMethod):
    """`samples` draws of all weights, the same for every text; they are kept until another seed is asked for."""

    key: ClassVar[str] = "swag"
    summary: ClassVar[str] = "weights drawn from a Gaussian around the average of the last training steps"

    samples: int = 10
    scale: float = 1.0

    def __post_init__(self) -> None:
        at_least(self, samples=1, scale=0.0)

    @property
    def stochastic(self) -> bool:
        return self.scale > 0

    @property
    def passes(self) -> int:
        return self.samples

    @property
    def knows_variance(self) -> bool:
        return self.samples > 1

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes)."""
        import torch

        from uatlite.backbone.copies import flat_parameters, with_parameters
        from uatlite.backbone.method_weights import weights_for
        from uatlite.methods.weight_posterior import draw

        weights = weights_for(model, self.key)

        def drawn() -> list[PreTrainedModel]:
            mean, spread = flat_parameters(model), weights.tensors
            return [
                with_parameters(model, draw(mean, spread, self.seed, number, self.scale))
                for number in range(self.samples)
            ]

        models = weights.made(model, self, drawn)
        return Passes(torch.cat([BASE.run(one, encoded).logits for one in models]))


SWAG = Swag()
