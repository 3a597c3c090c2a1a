"""What tables are computed from: models, predictions and arrays, each computed once and shared by all tables.

DIR/models/    fine-tuned models
    store/     the logits of every pass
    kept/      other arrays that take a model to compute
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.run import run_tokens
from uatlite.errors import CalibrationError, DataError, InputError, MissingDependency, ModelError
from uatlite.lab.evaluate.outcomes import Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.plan import CALIBRATION, parse_contender, parse_set
from uatlite.lab.evaluate.predict import Prepared, learn, predict, prepare, remaining
from uatlite.lab.evaluate.store import Store, StoredPredictions, StoredRun
from uatlite.lab.evaluate.suite import StoreJob
from uatlite.lab.paper.datasets import Datasets, draw, subset_ids
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.models import FineTuning, ModelDirectory, rescaled_embeddings, sequences
from uatlite.lab.paper.settings import ReproductionSettings
from uatlite.lab.train.methods import METHOD_TRAININGS
from uatlite.lab.train.recipe import PLAIN
from uatlite.methods.method import Method
from uatlite.methods.registry import method_to_dict, parse_method
from uatlite.predictive import PassLogits
from uatlite.text.labels import align_task
from uatlite.text.perturb import perturb
from uatlite.text.pieces import Pieces
from uatlite.text.schema import Task, find_task
from uatlite.text.write import make_directory
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.values import Dataset

Arrays = Mapping[str, NDArray[np.float64]]

UNAVAILABLE = (CalibrationError, DataError, InputError, MissingDependency, ModelError)
"""Errors that leave a cell empty: missing data, package or model. Any other error is raised."""


class Remote(Protocol):
    """Other machines that see the directory of a reproduction."""

    def predict(
        self,
        jobs: Sequence[StoreJob],
        store: Store,
        advance: Callable[[float], None],
        *,
        make_jobs: Callable[[], Sequence[StoreJob]],
    ) -> None:
        """Compute the missing predictions of some jobs; `make_jobs` builds the same jobs on another machine."""

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run tasks of no order, each as a whole on one machine; they are pickled."""


@dataclass(frozen=True)
class PredictionJob:
    """A method of a fine-tuned model over a set."""

    fit: FineTuning
    method: str
    on: str
    perturbation: str | None = None
    rows: int | None = None
    scale: float = 1.0

    @property
    def title(self) -> str:
        perturbed = f"+{self.perturbation}" if self.perturbation else ""
        scaled = f", ×{self.scale:g}" if self.scale != 1 else ""
        return f"{self.method} on {self.on}{perturbed}{scaled}, {self.fit.title}"

    @property
    def task(self) -> Task:
        """The task of the set."""
        return find_task(self.on.partition("/")[0])

    @property
    def passes(self) -> int:
        """Passes over a sequence that a row takes."""
        return parse_method(self.method).passes * sequences(self.task)


class Artifacts:
    """The models, predictions and arrays of a reproduction."""

    def __init__(self, directory: Path, settings: ReproductionSettings, remote: Remote | None = None) -> None:
        self.settings = settings
        self.datasets = Datasets(settings)
        self.models = ModelDirectory(directory / "models", self.datasets, settings)
        self.store = Store(directory / "store")
        self._directory = directory
        self._arrays = Pieces(directory / "kept")
        self._remote = remote
        self._runs: dict[PredictionJob, StoredRun] = {}
        self._calibrators: dict[tuple[str, PredictionJob, int | None], LogitCalibrator] = {}
        self._outcomes: dict[CellSpec, list[Outcome]] = {}
        self._prepared: tuple[PredictionJob, Prepared] | None = None
        self._lessons: dict[tuple[FineTuning, str], tuple[Method, Prepared]] = {}

    # ── the models and jobs of a cell ──────────────────────────────────────────────────────────────────────────────

    def fine_tunings(self, spec: CellSpec) -> list[FineTuning]:
        """The models of a cell, one for each seed."""
        method = parse_contender(spec.contender).method.key
        training = METHOD_TRAININGS.get(method, PLAIN)
        backbone = self.settings.backbone_of(spec.backbone)
        allowed = [self.settings.seeds, spec.seeds, None if training is PLAIN else self.settings.trained_seeds]
        seeds = min(one for one in allowed if one is not None)
        return [FineTuning(backbone, spec.task, training.key, seed) for seed in range(seeds)]

    def jobs(self, spec: CellSpec) -> list[PredictionJob]:
        """The predictions of a cell, one for each seed."""
        method, choice = parse_contender(spec.contender).method.name, parse_set(spec.set_name)
        name = f"{choice.task.name}/{choice.split}"
        rows = spec.rows if spec.perturbation is not None else None  # else the rows are cut from the whole set
        return [
            PredictionJob(fit, method, name, spec.perturbation, rows, spec.scale) for fit in self.fine_tunings(spec)
        ]

    def calibration_jobs(self, spec: CellSpec) -> list[PredictionJob]:
        """The predictions of a cell's contender on the calibration rows, one for each seed."""
        method = parse_contender(spec.contender).method.name
        return [PredictionJob(fit, method, f"{spec.task}/{CALIBRATION}") for fit in self.fine_tunings(spec)]

    def calibrator_jobs(self, spec: CellSpec) -> list[PredictionJob]:
        """The predictions that a cell's calibrator is fitted on; none where it has no calibrator."""
        return self.calibration_jobs(spec) if parse_contender(spec.contender).calibrated else []

    def fine_tune_remotely(self, fits: Sequence[FineTuning]) -> None:
        """Let other machines, if there are any, train what is missing of some models; first what others are made of.

        A model that cannot be trained is left out: `ModelDirectory.fine_tune` then says why.
        """
        if self._remote is None:
            return
        missing = [fit for fit in fits if not self.models.finished(fit)]
        for wave in ([fit for fit in missing if not fit.members], [fit for fit in missing if fit.members]):
            tasks = [
                partial(remote_fine_tuning, self._directory.absolute(), self.settings.absolute(), fit) for fit in wave
            ]
            if tasks:
                self._remote.run(tasks)

    # ── predictions ────────────────────────────────────────────────────────────────────────────────────────────────

    def dataset(self, job: PredictionJob) -> Dataset:
        """The rows of a job."""
        dataset = draw(self.datasets.find(job.on), job.rows)
        return dataset if job.perturbation is None else perturb(dataset, job.perturbation)

    def prepared(self, job: PredictionJob) -> Prepared:
        """The rows of a job as tokens; the last ones stay in memory."""
        key = replace(job, method="")
        if self._prepared is None or self._prepared[0] != key:
            checkpoint = self.models.load(job.fit)
            self._prepared = key, prepare(
                checkpoint,
                self.dataset(job),
                align_task(job.task, checkpoint.id2label),
                task=job.task.name,
                perturbation=job.perturbation if job.scale == 1 else f"embeddings×{job.scale:g}",
                max_length=self.settings.recipe_of(job.fit.task).max_length,
            )  # fmt: skip
        return self._prepared[1]

    def work(self, job: PredictionJob) -> float:
        """The work of a whole job, in passes over a sequence."""
        return float(len(self.dataset(job)) * job.passes)

    def predict_remotely(self, jobs: Sequence[PredictionJob]) -> None:
        """Let other machines, if there are any, compute what the store does not have of jobs of one model.

        Jobs with rescaled embeddings are left to `predict`: the scale is not a part of the model that others load.
        """
        jobs = tuple(job for job in jobs if job.scale == 1)
        if self._remote is not None and jobs:
            make_jobs = partial(remote_jobs, self._directory.absolute(), self.settings.absolute(), jobs)
            self._remote.predict(self.store_jobs(jobs), self.store, lambda done: None, make_jobs=make_jobs)

    def store_jobs(self, jobs: Sequence[PredictionJob]) -> list[StoreJob]:
        """The jobs in the form that fills a store; a method that learns from calibration texts has learned."""
        found: list[StoreJob] = []
        for job in jobs:
            method, calibration = self._learned(job)
            at_home = calibration is not None and job == replace(job, on=f"{job.fit.task}/{CALIBRATION}", rows=None)
            prepared = calibration if at_home and calibration else self.prepared(job)
            found.append((prepared, method, job.fit.seed))
        return found

    def _learned(self, job: PredictionJob) -> tuple[Method, Prepared | None]:
        """The method of a job and, if it learned from the calibration texts of its model, those."""
        method = parse_method(job.method)
        if not method.learns:
            return method, None
        if (job.fit, job.method) not in self._lessons:
            home = PredictionJob(job.fit, job.method, f"{job.fit.task}/{CALIBRATION}")
            calibration = self.prepared(home)
            run = partial(self._said_of, job.fit, calibration)
            self._lessons[job.fit, job.method] = learn(method.seeded(job.fit.seed), calibration, run)
        return self._lessons[job.fit, job.method]

    def _said_of(self, fit: FineTuning, prepared: Prepared, method: Method) -> PassLogits:
        """What a method says of all rows of a set, for another one that learns from it; kept."""

        def compute() -> Arrays:
            said = run_tokens(prepared.checkpoint.model, method, prepared.tokens)
            values = {one.name: getattr(said, one.name) for one in fields(PassLogits)}
            return {name: value for name, value in values.items() if value is not None}

        said = self.cached("said", fit, [method_to_dict(method), prepared.dataset.fingerprint], compute)
        return PassLogits(**said)

    def predict(self, job: PredictionJob, advance: Callable[[float], None]) -> None:
        """Compute what the store does not have of a job; `advance` gets the finished work, stored rows included."""
        ((prepared, method, seed),) = self.store_jobs([job])
        missing = remaining(self.store, prepared, method, seed)
        advance((len(prepared.dataset) - missing) * job.passes)
        with rescaled_embeddings(prepared.checkpoint.model, job.scale):
            self._runs[job] = predict(self.store, prepared, method, seed, lambda rows: advance(rows * job.passes))

    def predictions(self, job: PredictionJob, passes: int | None = None) -> StoredPredictions:
        """The predictions of a job that was run; with `passes` only the first ones.

        A pass depends on earlier ones only (also under the lagged estimate), so three of ten are a run of three.
        """
        predictions = self._runs[job].read()
        return replace(predictions, logits=predictions.logits[:passes])

    def calibrators(self, spec: CellSpec) -> list[LogitCalibrator | None]:
        """The fitted calibrator of each seed; None where the contender has none."""
        name, jobs = parse_contender(spec.contender).calibrator, self.calibrator_jobs(spec)
        for job in jobs:
            if (name, job, spec.passes) not in self._calibrators:
                fitted = fit_calibrator(name, self.predictions(job, spec.passes))
                self._calibrators[name, job, spec.passes] = fitted
        return [self._calibrators[name, job, spec.passes] for job in jobs] or [None] * len(self.fine_tunings(spec))

    def outcomes(self, spec: CellSpec) -> list[Outcome]:
        """The outcome of a cell's contender on its rows, for each seed; kept, as many cells share it."""
        key = replace(spec, measure="")
        if key not in self._outcomes:
            pairs = zip(self.jobs(spec), self.calibrators(spec), strict=True)
            self._outcomes[key] = [outcome_of(self._cell_predictions(job, spec), one) for job, one in pairs]
        return self._outcomes[key]

    def _cell_predictions(self, job: PredictionJob, spec: CellSpec) -> StoredPredictions:
        """The passes and rows that a cell is about."""
        predictions = self.predictions(job, spec.passes)
        if spec.subset is None and (spec.rows is None or spec.perturbation is not None):
            return predictions
        ids = subset_ids(self.dataset(job), spec.subset, spec.rows)
        return predictions.take(np.flatnonzero([name in ids for name in predictions.ids]))

    # ── arrays ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def cached(self, name: str, fit: FineTuning, identity: Sequence[object], compute: Callable[[], Arrays]) -> Arrays:
        """Arrays computed with a model, stored in DIR/kept; `identity` is all else that decides their values."""
        text = json.dumps([*identity, self.models.path(fit).name], sort_keys=True, default=asdict)
        piece = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        arrays = self._arrays.read(piece, _read_arrays)
        if arrays is None:
            arrays = compute()
            make_directory(self._arrays.directory)
            with self._arrays.write(piece) as file:
                np.savez(file, **dict(arrays))  # type: ignore[arg-type]
        return arrays


def remote_jobs(directory: Path, settings: ReproductionSettings, jobs: Sequence[PredictionJob]) -> list[StoreJob]:
    """The store's jobs of a reproduction, built on another machine that sees its directory."""
    return Artifacts(directory, settings).store_jobs(jobs)


def remote_fine_tuning(directory: Path, settings: ReproductionSettings, fit: FineTuning) -> None:
    """Train a model of a reproduction on another machine that sees its directory."""
    with suppress(*UNAVAILABLE):
        Artifacts(directory, settings).models.fine_tune(fit, lambda work: None)


def _read_arrays(path: Path) -> Arrays:
    with np.load(path) as arrays:
        return dict(arrays)
