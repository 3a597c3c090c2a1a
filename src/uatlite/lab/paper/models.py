"""The models of a reproduction, shared by all tables: one for each backbone, task, trained method and seed.

DIR/models/TASK-METHOD-SEED-KEY/    a classifier and the record of its training

KEY is a hash of everything that decides the weights.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.measures import UNAVAILABLE
from uatlite.lab.evaluate.runs import Job, Model, Remote
from uatlite.lab.evaluate.scope import REFERENCE
from uatlite.lab.paper.datasets import Datasets
from uatlite.lab.paper.settings import ReproductionSettings
from uatlite.lab.train.methods import METHOD_TRAININGS, steps, train_method
from uatlite.lab.train.recipe import PLAIN, MethodTraining, TrainingJob, read_finished, step_counter
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.text.files import hub_access
from uatlite.text.schema import Task, find_task
from uatlite.text.write import Pieces, make_directory
from uatlite.values import Dataset

Arrays = Mapping[str, NDArray[np.float64]]


def training_of(model: Model) -> MethodTraining:
    """How a model's method is trained."""
    return METHOD_TRAININGS.get(model.method, PLAIN)


def members_of(model: Model) -> list[Model]:
    """The plain fine-tunings that a model is made of, which other cells use too: of this seed and the next."""
    training = training_of(model)
    count = training.fine_tunings if training.from_plain else 0
    return [replace(model.plain, seed=model.seed + number) for number in range(count)]


def title_of(model: Model) -> str:
    """'bert-tiny on mnli, swag, seed 0'"""
    method = "" if model == model.plain else f", {model.method}"
    return f"{Path(model.name).name} on {model.task}{method}, seed {model.seed}"


class FineTunedModels:
    """The source of a reproduction: its rows, the models in DIR/models, and arrays in DIR/kept."""

    label_order: tuple[str, ...] | None = None

    def __init__(self, directory: Path, settings: ReproductionSettings) -> None:
        self.settings = settings
        self.datasets = Datasets(settings)
        self._directory = directory
        self._arrays = Pieces(directory / "kept")
        self._loaded: tuple[Model, Checkpoint] | None = None

    @property
    def elsewhere(self) -> "Callable[[], FineTunedModels]":
        return partial(FineTunedModels, self._directory.absolute(), self.settings.absolute())

    # ── what a cell needs ──────────────────────────────────────────────────────────────────────────────────────────

    def fine_tunings(self, cell: CellSpec) -> list[Model]:
        """The models of a cell, one for each seed."""
        method = cell.contender.method.key
        training = METHOD_TRAININGS.get(method, PLAIN)
        backbone = self.settings.backbone_of(cell.backbone)
        allowed = [self.settings.seeds, cell.seeds, None if training is PLAIN else self.settings.trained_seeds]
        seeds = min(count for count in allowed if count is not None)
        return [Model(backbone, cell.task, training.key, seed) for seed in range(seeds)]

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        return [(fit, fit.seed) for fit in self.fine_tunings(cell)]

    def task(self, on: str) -> Task:
        return find_task(on.partition("/")[0])

    def dataset(self, name: str) -> Dataset:
        return self.datasets.find(name)

    def reference(self, model: Model) -> str:
        return f"{model.task}/{REFERENCE}"

    def max_length(self, model: Model) -> int | None:
        return self.settings.recipe_of(model.task).max_length

    def describe(self, job: Job) -> str:
        perturbed = f"+{job.perturbation}" if job.perturbation else ""
        scaled = f", ×{job.scale:g}" if job.scale != 1 else ""
        return f"predicting {job.method.name} on {job.on}{perturbed}{scaled}, {title_of(job.model)}"

    def kept(self, name: str, fit: Model, identity: Sequence[object], compute: Callable[[], Arrays]) -> Arrays:
        """Arrays computed with a model, stored in DIR/kept; `identity` is all else that decides their values."""
        text = json.dumps([*identity, self.path(fit).name], sort_keys=True, default=asdict)
        piece = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        arrays = self._arrays.read(piece, _read_arrays)
        if arrays is None:
            arrays = compute()
            make_directory(self._arrays.directory)
            with self._arrays.write(piece) as file:
                np.savez(file, **dict(arrays))  # type: ignore[arg-type]
        return arrays

    # ── fine-tuning ────────────────────────────────────────────────────────────────────────────────────────────────

    def path(self, fit: Model) -> Path:
        """The directory of a model; other rows, another recipe or backbone give another one."""
        identity = json.dumps(asdict(self._job(fit).run(training_of(fit).name)), sort_keys=True)
        key = hashlib.sha256(identity.encode()).hexdigest()[:10]
        return self._directory / "models" / f"{fit.task}-{fit.method}-{fit.seed}-{key}"

    def work(self, fit: Model) -> float:
        """The work of a fine-tuning, in passes over a sequence; a forward and backward step counts as three."""
        data = self.datasets.task(fit.task)
        batch = min(self.settings.recipe_of(fit.task).batch_size, len(data.train))
        return 3.0 * self._steps(fit) * batch * _sequences(data.task)

    def finished(self, fit: Model) -> bool:
        """Whether a model is there already."""
        return read_finished(self.path(fit)) is not None

    def fine_tune(self, fit: Model, advance: Callable[[float], None]) -> None:
        """Train a model, or resume; `advance` gets the finished work. A finished model is not trained again."""
        for member in members_of(fit):
            self.fine_tune(member, lambda work: None)
        whole, done = self.work(fit), 0.0
        work_of_step = whole / max(1, self._steps(fit))

        def count(steps: float) -> None:
            nonlocal done
            done += work_of_step * steps
            advance(work_of_step * steps)

        with hub_access(fit.name):
            train_method(
                training_of(fit),
                self._job(fit),
                self.path(fit),
                bases=[self.path(member) for member in members_of(fit)],
                resume=True,
                report=step_counter(count),
            )
        advance(whole - done)

    def fine_tune_on(self, remote: Remote, fits: Sequence[Model]) -> None:
        """Let other machines train what is missing of some models; first what others are made of.

        A model that cannot be trained is left out: `fine_tune` then says why.
        """
        missing = [fit for fit in fits if not self.finished(fit)]
        for wave in ([fit for fit in missing if not members_of(fit)], [fit for fit in missing if members_of(fit)]):
            if wave:
                remote.run([partial(fine_tune_here, self.elsewhere, fit) for fit in wave], lambda work: None)

    def load(self, fit: Model) -> Checkpoint:
        """A trained model; the last one stays in memory."""
        if self._loaded is None or self._loaded[0] != fit:
            self._loaded = fit, load_checkpoint(self.path(fit), kind=self.datasets.task(fit.task).task.kind)
        return self._loaded[1]

    def _steps(self, fit: Model) -> int:
        return steps(training_of(fit), self._job(fit), len(members_of(fit)))

    def _job(self, fit: Model) -> TrainingJob:
        train = self.datasets.task(fit.task).train
        return TrainingJob(fit.name, train, recipe=self.settings.recipe_of(fit.task), seed=fit.seed)


def _sequences(task: Task) -> int:
    """Sequences of a row: one, or one for each option of a multiple-choice question."""
    return len(task.labels) if task.kind == "choice" else 1


def fine_tune_here(source: Callable[[], FineTunedModels], fit: Model) -> float:
    """Train a model of a reproduction on another machine that sees its directory."""
    with suppress(*UNAVAILABLE):
        source().fine_tune(fit, lambda work: None)
    return 0.0


def _read_arrays(path: Path) -> Arrays:
    with np.load(path) as arrays:
        return dict(arrays)
