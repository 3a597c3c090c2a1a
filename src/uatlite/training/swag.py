"""Training for SWAG: a learning rate that stays up, and the moments of the weights that it moves through."""

import math
from dataclasses import dataclass
from typing import ClassVar

from transformers import PreTrainedModel

from uatlite.backbone.copies import flat_parameters, load_flat
from uatlite.backbone.method_weights import MethodWeights, attach, weights_for
from uatlite.errors import ConfigurationError
from uatlite.methods.weight_posterior import collect, empty, posterior
from uatlite.training.fitting import Batches, Fitting, refuse_patience
from uatlite.training.recipe import Recipe


@dataclass(frozen=True)
class SwagFitting(Fitting):
    """Weights are collected `collections` times over the steps after the first share `start` of them.

    By then the learning rate has come down to the share `rate` of the recipe's, and it stays there. `rank` deviations
    are kept.
    """

    key: ClassVar[str] = "swag"

    rank: int = 10
    collections: int = 20
    start: float = 0.5
    rate: float = 0.5

    def __post_init__(self) -> None:
        if not (2 <= self.rank <= self.collections and 0 <= self.start < 1 and 0 < self.rate <= 1):
            raise ConfigurationError(
                f"{self.name} is not allowed: 2 <= rank <= collections, 0 <= start < 1, 0 < rate <= 1."
            )

    def check(self, recipe: Recipe) -> None:
        refuse_patience(self, recipe)

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        attach(model, MethodWeights(self.key, empty(parameters, self.rank), persistent=True))

    def schedule(self, step: int, warmup: int, total: int) -> float:
        """Up over the warm-up, down to `rate` at the share `start` of all steps, and then constant."""
        first = max(warmup, math.ceil(self.start * total))
        if step < warmup:
            return step / warmup
        return self.rate if step >= first else 1 - (1 - self.rate) * (step - warmup) / (first - warmup)

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        wanted = self.steps(total)
        if step == 0 and len(wanted) < 2:
            raise ConfigurationError(
                f"{self.name}: a run of {total} steps leaves {len(wanted)} to collect weights from; it takes two or "
                "more. Train longer, or start sooner."
            )
        if step in wanted:
            collect(weights_for(model, self.key).tensors, flat_parameters(model))

    def steps(self, total: int) -> set[int]:
        """After which steps of a run weights are collected: evenly, the last one among them."""
        first = math.ceil(self.start * total)
        return {first + round(number * (total - first) / self.collections) for number in range(1, self.collections + 1)}

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        moments = weights_for(model, self.key).tensors
        load_flat(model, moments["mean"])
        attach(model, MethodWeights(self.key, posterior(moments)))
