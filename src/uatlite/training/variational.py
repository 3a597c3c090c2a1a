"""Training a variational last layer: the ELBO, its KL spread over the training rows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.backbone.copies import last_layer, replace_module
from uatlite.backbone.method_weights import MethodWeights, attach
from uatlite.errors import ConfigurationError
from uatlite.heads import VariationalLinear
from uatlite.training.fitting import Batches, Fitting

LOG_SCALES = ("weight_log_scale", "bias_log_scale")


@dataclass(frozen=True)
class VariationalFitting(Fitting):
    """`prior_scale` is the prior's standard deviation, `initial_scale` the posterior's at the first step.

    The logarithms of the posterior's scales have a learning rate of their own, `scale_rate`: AdamW moves a number by
    about its learning rate a step, and at one for pretrained weights they would end where they began.
    """

    key: ClassVar[str] = "vi-last-layer"

    prior_scale: float = 1.0
    initial_scale: float = 0.05
    scale_rate: float = 0.01

    def __post_init__(self) -> None:
        for name in ("prior_scale", "initial_scale", "scale_rate"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"vi-last-layer: {name}={getattr(self, name)} is not above 0.")

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        name, layer = last_layer(model)
        posterior = VariationalLinear.around(layer, prior_scale=self.prior_scale, initial_scale=self.initial_scale)
        replace_module(model, name, posterior)

    def penalty(self, model: PreTrainedModel, rows: int) -> Tensor | None:
        return _posterior(model)[1].kl() / rows

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        """The scales at their own rate, and the means without weight decay: the prior is in the loss."""
        named = dict(_posterior(model)[1].named_parameters())
        scales = [named.pop(name) for name in LOG_SCALES if name in named]
        return [
            {"params": scales, "lr": self.scale_rate, "weight_decay": 0.0},
            {"params": list(named.values()), "weight_decay": 0.0},
        ]

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        name, posterior = _posterior(model)
        state = posterior.state_dict()
        scales = {key: state.pop(key) for key in LOG_SCALES if key in state}
        with torch.device("meta"):
            means = nn.Linear(posterior.in_features, posterior.out_features, bias=posterior.bias is not None)
        means.load_state_dict(state, assign=True)
        replace_module(model, name, means.eval())
        attach(model, MethodWeights(self.key, scales))


def _posterior(model: PreTrainedModel) -> tuple[str, VariationalLinear]:
    return next((name, module) for name, module in model.named_modules() if isinstance(module, VariationalLinear))
