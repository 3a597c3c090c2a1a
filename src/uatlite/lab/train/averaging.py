"""Training for a deep ensemble: the same fine-tuning several times, each with a seed of its own.

DIR/checkpoints/member-0 …   finished members, and the one that is being trained; they become one model at the end

Training for a snapshot ensemble: the learning rate falls and restarts, and the end of each cycle is a member.

Training for SWAG: a learning rate that stays up, and the moments of the weights that it moves through.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.lab.train import recipe as runs
from uatlite.lab.train.dataset import Report, Step
from uatlite.lab.train.recipe import Batches, MethodTraining, Recipe, refuse_patience
from uatlite.model.heads import collect, empty, posterior
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.weights import MethodWeights, attach, flat_parameters, load_flat, weights_for

SEEDS_APART = 1000
"""Member i of seed s is trained with the seed s + 1000·i: the first is the plain model of that seed."""

TrainMember = Callable[[Path, int, Report | None], runs.TrainingRecord]
"""Train a plain model into a directory with a seed, or find it finished there."""


@dataclass(frozen=True)
class EnsembleTraining(MethodTraining):
    """`members` models that share rows and recipe and differ in head, order of rows and dropout."""

    key: ClassVar[str] = "ensemble"

    members: int = 5

    def __post_init__(self) -> None:
        if self.members < 2:
            raise ConfigurationError(f"{self.name} is not allowed: 2 members or more.")


def train_members(
    training: EnsembleTraining, seed: int, homes: Sequence[Path], train: TrainMember, report: Report | None
) -> tuple[Checkpoint, list[runs.TrainingRecord]]:
    """Train each member in its home; returns the first as a model with the others attached, and their records."""
    trained = []
    for number, home in enumerate(homes):
        told = None if report is None else _of_all(report, number, len(homes))
        trained.append(train(home, seed + SEEDS_APART * number, told))
    first, *others = (load_checkpoint(home, device="cpu") for home in homes)
    vectors = torch.stack([flat_parameters(other.model) for other in others])
    attach(first.model, MethodWeights(training.key, {"members": vectors}))
    return first, trained


def summary(run: runs.TrainingRun, trained: Sequence[runs.TrainingRecord]) -> runs.TrainingRecord:
    """The record of an ensemble: steps and seconds of all members, the mean of their losses."""
    nlls = [one.validation_nll for one in trained if one.validation_nll is not None]
    return replace(
        trained[0],
        run=run,
        steps=sum(one.steps for one in trained),
        seconds=sum(one.seconds for one in trained),
        train_loss=sum(one.train_loss for one in trained) / len(trained),
        validation_nll=sum(nlls) / len(nlls) if nlls else None,
    )


def _of_all(report: Report, number: int, members: int) -> Report:
    def told(step: Step) -> None:
        report(replace(step, done=number * step.total + step.done, total=members * step.total))

    return told


def homes(directory: Path, members: int, first: Path | None) -> list[Path]:
    """Where each member is trained; `first` is where a finished first member already is."""
    own = [directory / runs.CHECKPOINTS / f"member-{number}" for number in range(members)]
    return own if first is None else [first, *own[1:]]


@dataclass(frozen=True)
class SnapshotTraining(MethodTraining):
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


@dataclass(frozen=True)
class SwagTraining(MethodTraining):
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
