"""The trainings of methods that average several sets of weights: deep ensembles, snapshot ensembles and SWAG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.lab.train.recipe import Batches, MethodTraining
from uatlite.model.heads import add_to_moments, empty_moments, weight_posterior
from uatlite.model.weights import MethodWeights, attach, flat_parameters, load_flat, weights_for


@dataclass(frozen=True)
class _MemberTraining(MethodTraining):
    members: int = 5

    def __post_init__(self) -> None:
        if self.members < 2:
            raise ConfigurationError(f"{self.name} is not allowed: 2 members or more.")


@dataclass(frozen=True)
class EnsembleTraining(_MemberTraining):
    """Several fine-tunings with the same rows and recipe; the seed of each decides head, order of rows and dropout."""

    key: ClassVar[str] = "ensemble"
    from_plain: ClassVar[bool] = True

    @property
    def fine_tunings(self) -> int:
        return self.members

    def combine(self, models: Sequence[PreTrainedModel]) -> None:
        vectors = torch.stack([flat_parameters(other) for other in models[1:]])
        attach(models[0], MethodWeights(self.key, {"members": vectors}))


@dataclass(frozen=True)
class SnapshotTraining(_MemberTraining):
    """One run in which the learning rate falls and restarts `members` times; the end of each cycle is a member.

    All cycles are within the recipe's epochs. The model itself is the last member.
    """

    key: ClassVar[str] = "snapshot"
    whole_run: ClassVar[bool] = True

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        members = torch.zeros(self.members - 1, model.num_parameters())
        attach(model, MethodWeights(self.key, {"members": members}, persistent=True))

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
                f"{self.name}: {total} steps are too few for {self.members} cycles. Train longer, or use fewer members."
            )
        ends = self.ends(total)[:-1]
        if step in ends:
            weights_for(model, self.key).tensors["members"][ends.index(step)] = flat_parameters(model)

    def ends(self, total: int) -> list[int]:
        """The step at which each cycle ends."""
        return [round(number * total / self.members) for number in range(1, self.members + 1)]

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        attach(model, MethodWeights(self.key, {"members": weights_for(model, self.key).tensors["members"]}))


@dataclass(frozen=True)
class SwagTraining(MethodTraining):
    """Collects the mean and the spread of the weights while they move at a constant learning rate.

    Weights are collected `collections` times, evenly over the steps after the share `start` of the run. By then the
    learning rate has come down to the share `rate` of the recipe's, and stays there. `rank` deviations are kept.
    """

    key: ClassVar[str] = "swag"
    one_answer: ClassVar[bool] = True
    whole_run: ClassVar[bool] = True

    rank: int = 10
    collections: int = 20
    start: float = 0.5
    rate: float = 0.5

    def __post_init__(self) -> None:
        if not (2 <= self.rank <= self.collections and 0 <= self.start < 1 and 0 < self.rate <= 1):
            raise ConfigurationError(
                f"{self.name} is not allowed: 2 <= rank <= collections, 0 <= start < 1, 0 < rate <= 1."
            )

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        moments = empty_moments(model.num_parameters(), self.rank)
        attach(model, MethodWeights(self.key, moments, persistent=True))

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
                "more. Train longer, or lower start."
            )
        if step in wanted:
            add_to_moments(weights_for(model, self.key).tensors, flat_parameters(model))

    def steps(self, total: int) -> set[int]:
        """The steps of a run after which weights are collected: evenly spaced, up to the last one."""
        first = math.ceil(self.start * total)
        return {first + round(number * (total - first) / self.collections) for number in range(1, self.collections + 1)}

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        moments = weights_for(model, self.key).tensors
        load_flat(model, moments["mean"])
        attach(model, MethodWeights(self.key, weight_posterior(moments)))
