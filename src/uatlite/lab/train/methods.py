"""The training of each method by name, those that average several sets of weights, and the function that runs any."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.lab.train.dataset import kind_of, training_rows
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.last_layer import LaplaceTraining, SngpTraining, VariationalTraining
from uatlite.lab.train.recipe import (
    CHECKPOINTS,
    PLAIN,
    Batches,
    MethodTraining,
    Report,
    Step,
    TrainingJob,
    TrainingRecord,
    TrainingRun,
    begin,
    finish,
    finished,
    read_finished,
)
from uatlite.methods.registry import split_spelling
from uatlite.model import weights as method_weights
from uatlite.model.heads import add_to_moments, empty_moments, weight_posterior
from uatlite.model.load import Checkpoint, load_checkpoint
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


METHOD_TRAININGS: dict[str, MethodTraining] = {
    "ensemble": EnsembleTraining(),
    "snapshot": SnapshotTraining(),
    "swag": SwagTraining(),
    "laplace": LaplaceTraining(),
    "sngp": SngpTraining(),
    "vi-last-layer": VariationalTraining(),
}
"""The methods with a training of their own. All others run on the plain fine-tuning, `PLAIN`."""

SEEDS_APART = 1000
"""Member i of seed s is trained with the seed s + 1000·i: the first is the plain model of that seed."""


def parse_training(text: str) -> MethodTraining:
    """The training of a method, from 'swag' or 'swag:rank=20'; the settings are those of the training."""
    key, settings = split_spelling(text)
    training = METHOD_TRAININGS.get(key, PLAIN)
    if training is PLAIN and settings:
        raise ConfigurationError(f"{key} has no training of its own to set; drop {', '.join(settings)}.")
    return training.changed(**settings)


def train_method(
    training: MethodTraining,
    job: TrainingJob,
    directory: str | Path,
    *,
    bases: Sequence[str | Path] = (),
    resume: bool = False,
    report: Report | None = None,
) -> TrainingRecord:
    """Train a method into a directory: one fine-tuning, or as many as an ensemble has members.

    `bases` are directories of finished plain fine-tunings with the same settings, the first one with the same seed.
    They are used where a method is built from such models, and not trained again: the first members of an ensemble,
    the model that laplace is fitted on.
    """
    training.check_kind(kind_of(job.train))
    directory = Path(directory)
    plain = _plain_records(training, job, [Path(base) for base in bases])
    run = job.run(_identity(training, job, plain))
    if resume and (done := finished(directory, run)) is not None:
        return done
    if training.fine_tunings > 1:
        begin(directory, run, resume=resume)
        plain |= _train_members(training.fine_tunings, job, directory / CHECKPOINTS, len(plain), report)
        first, *others = (load_checkpoint(home, device="cpu") for home in plain)
        training.combine([first.model, *(other.model for other in others)])
        return _write(first, directory, _together(list(plain.values()), run))
    if not plain:
        return fine_tune(job, directory, training, resume=resume, report=report)
    ((home, record),) = plain.items()
    checkpoint = load_checkpoint(home)
    training.prepare(checkpoint.model, job.seed)
    rows = training_rows(job.train, checkpoint.model, checkpoint.tokenizer, job.recipe.max_length)
    training.finish(checkpoint.model, rows.batches)
    return _write(checkpoint, directory, replace(record, run=run))


def steps(training: MethodTraining, job: TrainingJob, bases: int = 0) -> int:
    """How many optimizer steps `train_method` will report with so many finished fine-tunings, on one device."""
    return max(0, training.fine_tunings - bases) * job.recipe.steps(len(job.train))


def _identity(training: MethodTraining, job: TrainingJob, plain: dict[Path, TrainingRecord]) -> str:
    """The identity of the training, with the seeds of its members where they are not the usual ones."""
    seeds = [record.run.seed for record in plain.values()]
    usual = seeds == [job.seed + SEEDS_APART * number for number in range(len(seeds))]
    return training.identity if usual else f"{training.identity} of seeds {', '.join(map(str, seeds))}"


def _train_members(
    members: int, job: TrainingJob, directory: Path, finished: int, report: Report | None
) -> dict[Path, TrainingRecord]:
    """Train the members after the finished ones in DIR/member-1 …; a member that is there is not trained again."""
    trained: dict[Path, TrainingRecord] = {}
    for number in range(finished, members):
        member = replace(job, seed=job.seed + SEEDS_APART * number)
        shown = None if report is None else _member_report(report, number - finished, members - finished)
        home = directory / f"member-{number}"
        trained[home] = fine_tune(member, home, resume=True, report=shown)
    return trained


def _together(records: Sequence[TrainingRecord], run: TrainingRun) -> TrainingRecord:
    """The record of an ensemble from those of its members."""
    nlls = [record.validation_nll for record in records if record.validation_nll is not None]
    return replace(
        records[0],
        run=run,
        steps=sum(record.steps for record in records),
        seconds=sum(record.seconds for record in records),
        train_loss=sum(record.train_loss for record in records) / len(records),
        validation_nll=sum(nlls) / len(nlls) if nlls else None,
    )


def _member_report(report: Report, number: int, members: int) -> Report:
    """Count the steps of one member as those of the whole ensemble."""

    def report_step(step: Step) -> None:
        report(replace(step, done=number * step.total + step.done, total=members * step.total))

    return report_step


def _plain_records(training: MethodTraining, job: TrainingJob, bases: Sequence[Path]) -> dict[Path, TrainingRecord]:
    """The plain fine-tunings in `bases`; an error if their settings differ or the method cannot use them."""
    if bases and not training.from_plain:
        raise ConfigurationError(
            f"{training.key} is trained from the backbone and cannot begin with {bases[0]}; train it without --base."
        )
    if len(bases) > training.fine_tunings:
        raise ConfigurationError(
            f"{len(bases)} fine-tunings are given with --base, and {training.name} is made of "
            f"{training.fine_tunings}; give fewer, or for an ensemble set members={len(bases)}."
        )
    records: dict[Path, TrainingRecord] = {}
    for base in bases:
        record = read_finished(base)
        seed = job.seed if record is None or not records else record.run.seed
        if record is None or record.run != replace(job, seed=seed).run(PLAIN.identity):
            raise ConfigurationError(
                f"{base} does not hold the plain fine-tuning of this backbone with these rows, recipe and seed; give "
                "its directory, or none to train it. Only the second and later ones may have another seed."
            )
        if any(other.run.seed == seed for other in records.values()):
            raise ConfigurationError(f"{base} has the seed {seed} of another --base; members must differ.")
        records[base] = record
    return records


def _write(checkpoint: Checkpoint, directory: Path, record: TrainingRecord) -> TrainingRecord:
    checkpoint.model.save_pretrained(directory)
    checkpoint.tokenizer.save_pretrained(directory)
    method_weights.write(checkpoint.model, directory)
    finish(directory, record)
    return record
