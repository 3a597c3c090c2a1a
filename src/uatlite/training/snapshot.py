"""Training for a snapshot ensemble: the learning rate falls and restarts, and the end of each cycle is a member."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import PreTrainedModel

from uatlite.backbone.copies import flat_parameters
from uatlite.backbone.method_weights import MethodWeights, attach, weights_for
from uatlite.errors import ConfigurationError
from uatlite.training.fitting import Batches, Fitting, refuse_patience
from uatlite.training.recipe import Recipe


@dataclass(frozen=True)
class SnapshotFitting(Fitting):
    """As many cycles as members, all of them within the recipe's epochs. The model itself is the last member."""

    key: ClassVar[str] = "snapshot"

    members: int = 5

    def __post_init__(self) -> None:
        if self.members < 2:
            raise ConfigurationError(f"{self.name} is not allowed: 2 members or more.")

    def check(self, recipe: Recipe) -> None:
        refuse_patience(self, recipe)

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        room = {"members": torch.zeros(self.members - 1, parameters)}
        attach(model, MethodWeights(self.key, room, persistent=True))

    def schedule(self, step: int, warmup: int, total: int) -> float:
        """½(1 + cos πt), t from 0 to 1 in each cycle; the warm-up is the beginning of the first one."""
        if step < warmup:
            return step / warmup
        ends = self.ends(total)
        cycle = next((number for number, end in enumerate(ends) if step < end), len(ends) - 1)
        begin = ends[cycle - 1] if cycle else min(warmup, ends[0] - 1)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - begin) / (ends[cycle] - begin))))

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        if step == 0 and total < 2 * self.members:
            raise ConfigurationError(
                f"{self.name}: {total} steps are too few for {self.members} cycles. Train longer, or ask for fewer."
            )
        ends = self.ends(total)[:-1]
        if step in ends:
            weights_for(model, self.key).tensors["members"][ends.index(step)] = flat_parameters(model)

    def ends(self, total: int) -> list[int]:
        """The step at which each cycle ends."""
        return [round(number * total / self.members) for number in range(1, self.members + 1)]

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        attach(model, MethodWeights(self.key, {"members": weights_for(model, self.key).tensors["members"]}))
