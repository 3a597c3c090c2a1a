"""The training of each method by name, and the function that runs any of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from uatlite.errors import ConfigurationError
from uatlite.lab.train.averaging import EnsembleTraining, SnapshotTraining, SwagTraining
from uatlite.lab.train.dataset import kind_of, training_rows
from uatlite.lab.train.fine_tune import fine_tune
from uatlite.lab.train.last_layer import LaplaceTraining, SngpTraining, VariationalTraining
from uatlite.lab.train.recipe import PLAIN, MethodTraining, Recipe
from uatlite.lab.train.record import (
    CHECKPOINTS,
    Report,
    Step,
    TrainingRecord,
    TrainingRun,
    begin,
    finish,
    finished,
    read_finished,
)
from uatlite.methods.registry import split_spelling
from uatlite.model import weights as method_weights
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.values import Dataset

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


@dataclass(frozen=True)
class TrainingJob:
    """The arguments of `fine_tune` that are the same for all methods."""

    backbone: str | Path
    train: Dataset
    validation: Dataset | None = None
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    checkpoint_steps: int | None = None

    def run(self, method: str) -> TrainingRun:
        """The run that trains a method; `method` is its identity."""
        return TrainingRun.of(self.backbone, self.train, self.validation, self.recipe, self.seed, method)

    def fine_tune(
        self, training: MethodTraining, directory: Path, *, resume: bool, report: Report | None
    ) -> TrainingRecord:
        """One fine-tuning."""
        return fine_tune(**vars(self), directory=directory, training=training, resume=resume, report=report)


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
        return _train_members(training, job, directory, run, plain, resume=resume, report=report)
    if not plain:
        return job.fine_tune(training, directory, resume=resume, report=report)
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
    training: MethodTraining,
    job: TrainingJob,
    directory: Path,
    run: TrainingRun,
    plain: dict[Path, TrainingRecord],
    *,
    resume: bool,
    report: Report | None,
) -> TrainingRecord:
    """Train the members that are not given in DIR/checkpoints/member-1 …, skipping finished ones, and combine all."""
    begin(directory, run, resume=resume)
    homes, members = list(plain), list(plain.values())
    missing = range(len(plain), training.fine_tunings)
    for number in missing:
        homes.append(directory / CHECKPOINTS / f"member-{number}")
        member = replace(job, seed=job.seed + SEEDS_APART * number)
        shown = None if report is None else _member_report(report, number - missing.start, len(missing))
        members.append(member.fine_tune(PLAIN, homes[-1], resume=True, report=shown))
    first, *others = (load_checkpoint(home, device="cpu") for home in homes)
    training.combine([first.model, *(other.model for other in others)])
    nlls = [one.validation_nll for one in members if one.validation_nll is not None]
    record = replace(
        members[0],
        run=run,
        steps=sum(one.steps for one in members),
        seconds=sum(one.seconds for one in members),
        train_loss=sum(one.train_loss for one in members) / len(members),
        validation_nll=sum(nlls) / len(nlls) if nlls else None,
    )
    return _write(first, directory, record)


def _member_report(report: Report, number: int, members: int) -> Report:
    """Count the steps of one member as those of the whole ensemble."""

    def whole(step: Step) -> None:
        report(replace(step, done=number * step.total + step.done, total=members * step.total))

    return whole


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
    found: dict[Path, TrainingRecord] = {}
    for base in bases:
        record = read_finished(base)
        seed = job.seed if record is None or not found else record.run.seed
        if record is None or record.run != replace(job, seed=seed).run(PLAIN.identity):
            raise ConfigurationError(
                f"{base} does not hold the plain fine-tuning of this backbone with these rows, recipe and seed; give "
                "its directory, or none to train it. Only the second and later ones may have another seed."
            )
        if any(other.run.seed == seed for other in found.values()):
            raise ConfigurationError(f"{base} has the seed {seed} of another --base; members must differ.")
        found[base] = record
    return found


def _write(checkpoint: Checkpoint, directory: Path, record: TrainingRecord) -> TrainingRecord:
    checkpoint.model.save_pretrained(directory)
    checkpoint.tokenizer.save_pretrained(directory)
    method_weights.write(checkpoint.model, directory)
    finish(directory, record)
    return record
