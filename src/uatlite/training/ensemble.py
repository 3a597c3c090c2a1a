"""Training for a deep ensemble: the same fine-tuning several times, each with a seed of its own.

DIR/checkpoints/member-0 …   finished members, and the one that is being trained; they become one model at the end
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from uatlite.backbone.copies import flat_parameters
from uatlite.backbone.loading import Checkpoint, load_checkpoint
from uatlite.backbone.method_weights import MethodWeights, attach
from uatlite.errors import ConfigurationError
from uatlite.training import runs
from uatlite.training.fitting import Fitting
from uatlite.training.progress import Report, Step

SEEDS_APART = 1000
"""Member i of seed s is trained with the seed s + 1000·i: the first is the plain model of that seed."""

TrainMember = Callable[[Path, int, Report | None], runs.Trained]
"""Train a plain model into a directory with a seed, or find it finished there."""


@dataclass(frozen=True)
class EnsembleFitting(Fitting):
    """`members` models that share rows and recipe and differ in head, order of rows and dropout."""

    key: ClassVar[str] = "ensemble"

    members: int = 5

    def __post_init__(self) -> None:
        if self.members < 2:
            raise ConfigurationError(f"{self.name} is not allowed: 2 members or more.")


def train_members(
    fitting: EnsembleFitting, seed: int, homes: Sequence[Path], train: TrainMember, report: Report | None
) -> tuple[Checkpoint, list[runs.Trained]]:
    """Train each member in its home; returns the first as a model with the others attached, and their records."""
    trained = []
    for number, home in enumerate(homes):
        told = None if report is None else _of_all(report, number, len(homes))
        trained.append(train(home, seed + SEEDS_APART * number, told))
    first, *others = (load_checkpoint(home, device="cpu") for home in homes)
    vectors = torch.stack([flat_parameters(other.model) for other in others])
    attach(first.model, MethodWeights(fitting.key, {"members": vectors}))
    return first, trained


def summary(run: runs.Run, trained: Sequence[runs.Trained]) -> runs.Trained:
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
