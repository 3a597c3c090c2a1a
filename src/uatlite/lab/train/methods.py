"""How each method is trained, by name, and the one call that trains any of them."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from uatlite.errors import ConfigurationError
from uatlite.lab.train import recipe as runs
from uatlite.lab.train.averaging import EnsembleTraining, SnapshotTraining, SwagTraining, homes, summary, train_members
from uatlite.lab.train.dataset import Report, training_rows
from uatlite.lab.train.fine_tune import batches, fine_tune
from uatlite.lab.train.last_layer import LaplaceTraining, SngpTraining, VariationalTraining
from uatlite.lab.train.recipe import PLAIN, MethodTraining, Recipe
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


def parse_training(text: str) -> MethodTraining:
    """How the method is trained that is spelt 'swag' or 'swag:rank=20'; the settings are those of its training."""
    key, settings = split_spelling(text)
    training = METHOD_TRAININGS.get(key, PLAIN)
    if training is PLAIN and settings:
        raise ConfigurationError(f"{key} has no training of its own to set; drop {', '.join(settings)}.")
    return training.changed(**settings)


@dataclass(frozen=True)
class TrainingJob:
    """A training but for the method: what `fine_tune` takes."""

    backbone: str | Path
    train: Dataset
    validation: Dataset | None = None
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    checkpoint_steps: int | None = None

    def run(self, method: str) -> runs.TrainingRun:
        """What decides the weights that it ends with, for a method."""
        return runs.TrainingRun.of(self.backbone, self.train, self.validation, self.recipe, self.seed, method)

    def fine_tune(
        self, training: MethodTraining, directory: Path, *, resume: bool = False, report: Report | None = None
    ) -> runs.TrainingRecord:
        """One fine-tuning of it."""
        return fine_tune(
            self.backbone,
            self.train,
            directory,
            validation=self.validation,
            recipe=self.recipe,
            seed=self.seed,
            training=training,
            resume=resume,
            checkpoint_steps=self.checkpoint_steps,
            report=report,
        )


def train_method(
    training: MethodTraining,
    job: TrainingJob,
    directory: str | Path,
    *,
    base: str | Path | None = None,
    resume: bool = False,
    report: Report | None = None,
) -> runs.TrainingRecord:
    """Train a method into a directory: one fine-tuning, or as many as an ensemble has members.

    `base` is the directory of a finished plain fine-tuning with these very settings. It is not trained again where a
    method has it as a part: an ensemble's first member, the model that laplace is fitted on.
    """
    directory, run = Path(directory), job.run(training.identity)
    if resume and (done := runs.finished(directory, run)) is not None:
        return done
    given = None if base is None else _given(training, job, Path(base))
    if isinstance(training, EnsembleTraining):
        return _train_ensemble(training, job, directory, None if base is None else Path(base), resume, report)
    if base is None or given is None:
        return job.fine_tune(training, directory, resume=resume, report=report)
    checkpoint = load_checkpoint(base)
    training.prepare(checkpoint.model, job.seed)
    rows = training_rows(job.train, checkpoint.model, checkpoint.tokenizer, job.recipe.max_length)
    training.finish(checkpoint.model, lambda: batches(rows))
    return _write(checkpoint, directory, replace(given, run=run))


def steps(training: MethodTraining, job: TrainingJob, base: str | Path | None = None) -> int:
    """How many steps of the optimizer `train_method` will report, on one device."""
    once = job.recipe.steps(len(job.train))
    return once * training.members if isinstance(training, EnsembleTraining) else 0 if base is not None else once


def _train_ensemble(
    training: EnsembleTraining,
    job: TrainingJob,
    directory: Path,
    first: Path | None,
    resume: bool,
    report: Report | None,
) -> runs.TrainingRecord:
    """Finished members are found in the directory's checkpoints and not trained again."""
    run = job.run(training.identity)
    if not (resume and runs.is_begun(directory, run)):
        runs.begin(directory, run)

    def member(home: Path, seed: int, told: Report | None) -> runs.TrainingRecord:
        return replace(job, seed=seed).fine_tune(PLAIN, home, resume=True, report=told)

    checkpoint, trained = train_members(training, job.seed, homes(directory, training.members, first), member, report)
    return _write(checkpoint, directory, summary(run, trained))


def _given(training: MethodTraining, job: TrainingJob, base: Path) -> runs.TrainingRecord:
    """The record of the plain fine-tuning in `base`; an error where it is another one, or of no use."""
    if not (training.after_training or isinstance(training, EnsembleTraining)):
        raise ConfigurationError(
            f"{training.key} is trained from the backbone on and cannot begin with {base}; train it without that."
        )
    found = runs.finished(base, job.run(PLAIN.identity))
    if found is None:
        raise ConfigurationError(
            f"{base} does not hold the plain fine-tuning of this backbone with these rows, recipe and seed; give its "
            "directory, or none to train it."
        )
    return found


def _write(checkpoint: Checkpoint, directory: Path, trained: runs.TrainingRecord) -> runs.TrainingRecord:
    checkpoint.model.save_pretrained(directory)
    checkpoint.tokenizer.save_pretrained(directory)
    method_weights.write(checkpoint.model, directory)
    runs.finish(directory, trained)
    return trained
