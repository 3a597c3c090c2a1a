"""The runs of an experiment: which method of which model says what about which rows, each computed once and stored.

Everything that numbers rest on goes through the store: test rows and calibration rows, the teacher that a method
learns from, and the plain pass that a scope or a read-out needs. So a killed experiment goes on where it stopped.
"""

import pickle
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from uatlite.errors import DataError
from uatlite.lab.evaluate.cells import CellSpec, draw, subset_ids
from uatlite.lab.evaluate.outcomes import Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.plan import CALIBRATION, Contender
from uatlite.lab.evaluate.predict import Prepared, StoreJob, prepare, rescaled_embeddings
from uatlite.lab.evaluate.results import SetFacts
from uatlite.lab.evaluate.store import Store, StoredPredictions, StoredRun, set_name
from uatlite.methods.method import CalibrationRows, LearnedMethod, Method
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Estimates, metric_estimates
from uatlite.model.load import Checkpoint
from uatlite.text.labels import align_task
from uatlite.text.perturb import perturb
from uatlite.text.schema import Task
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.values import Dataset, Floats

BASE_METHOD = "base"


class Progress(Protocol):
    """Shows the progress of a long computation: a bar on a terminal, lines in a log."""

    def begin(self, stage: str, total: float) -> None:
        """A new stage begins, with `total` units of work."""

    def step(self, what: str) -> None:
        """Say what is being done now."""

    def advance(self, amount: float) -> None:
        """Add `amount` units of finished work."""


class NoProgress:
    """Shows nothing."""

    def begin(self, stage: str, total: float) -> None: ...

    def step(self, what: str) -> None: ...

    def advance(self, amount: float) -> None: ...


def nothing(amount: float) -> None:
    """Progress that nobody follows."""


@dataclass(frozen=True)
class Model:
    """Names a fine-tuned model."""

    name: str
    """what it was fine-tuned from, or is loaded by"""
    task: str
    """that it was fine-tuned on; the calibration rows of it are the model's own"""
    method: str = BASE_METHOD
    """what it was trained for; 'base' unless a method has a training of its own"""
    seed: int = 0
    """of the fine-tuning"""

    @property
    def plain(self) -> "Model":
        """The plain fine-tuning, which some methods begin with; its passes tell what is in scope."""
        return replace(self, method=BASE_METHOD)


@dataclass(frozen=True)
class Job:
    """A method of a model over some rows."""

    model: Model
    method: Method
    """as it is asked for: nothing learned, without a seed"""
    seed: int
    on: str
    """the set, 'mnli/test'"""
    perturbation: str | None = None
    rows: int | None = None
    """at most this many rows"""
    scale: float = 1.0
    """token embeddings are multiplied by this"""
    contender: Contender | None = None
    """of several answers a text, where what is stored is calibrated"""

    @property
    def set_name(self) -> str:
        """The rows in short: 'sst2/test', 'sst2+swap/test'."""
        task, _, split = self.on.partition("/")
        return set_name(task, split, self.perturbation)

    @property
    def home(self) -> "Job":
        """The same over the calibration rows of the model's own task."""
        return self.over(f"{self.model.task}/{CALIBRATION}")

    def of(self, method: Method, model: Model | None = None) -> "Job":
        """Another method over the same rows, of another model if one is given."""
        seed = self.seed if method.stochastic else 0
        return replace(self, method=method.seeded(0), seed=seed, model=model or self.model)

    def over(self, name: str) -> "Job":
        """The same over another set, 'mnli/test'."""
        return Job(self.model, self.method, self.seed, name, contender=self.contender)


class Source(Protocol):
    """Where the models and the rows of an experiment come from."""

    @property
    def label_order(self) -> tuple[str, ...] | None:
        """The task's labels in the order of the model's columns, where their names do not tell it."""

    @property
    def elsewhere(self) -> Callable[[], "Source"]:
        """Makes the same source on another machine; it is pickled."""

    def models(self, cell: CellSpec) -> Sequence[tuple[Model, int]]:
        """The model and the seed of each run of a cell."""

    def load(self, model: Model) -> Checkpoint: ...

    def task(self, on: str) -> Task:
        """The task of the set called 'mnli/test'."""

    def dataset(self, name: str) -> Dataset:
        """The set called 'mnli/test'."""

    def reference(self, model: Model) -> str | None:
        """The set of training texts that say what is in scope of a model; None where there are none.

        A CalibrationError says why there can be no scope.
        """

    def max_length(self, model: Model) -> int | None:
        """The most tokens of a text; None for what the model takes."""

    def describe(self, job: Job) -> str:
        """A job in words."""


class Remote(Protocol):
    """Other machines that see the directory of an experiment."""

    def run(self, tasks: Sequence[Callable[[], float]], advance: Callable[[float], None]) -> None:
        """Run tasks of no order, each as a whole on one machine; `advance` gets what each returns.

        Tasks are pickled, so they are a `partial` and not a closure.
        """


class Runs:
    """The stored runs of an experiment, and what is read of them: calibrators and outcomes."""

    def __init__(self, source: Source, store: Store, remote: Remote | None = None) -> None:
        self.source = source
        self.store = store
        self.strangeness: dict[Job, Floats] = {}
        """what the scope says of the rows of a plain job, (2, rows)"""
        self._remote = remote
        self._stored: dict[Job, StoredRun] = {}
        self._taught = cache(self._teach)
        self._fitted = cache(self._fit)
        self._outcomes = cache(self._judge)
        self._tokens = lru_cache(maxsize=12)(self._tokenized)
        self._read = lru_cache(maxsize=8)(self._read_run)

    # ── jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def jobs(self, cell: CellSpec) -> list[Job]:
        """A cell's contender on its rows, for each seed."""
        method = cell.contender.method
        rows = cell.rows if cell.perturbation is not None else None  # else the rows are cut from the whole set
        return [
            Job(model, method, seed if method.stochastic else 0, cell.full_set, cell.perturbation, rows, cell.scale)
            for model, seed in self.source.models(cell)
        ]

    def calibration_jobs(self, cell: CellSpec) -> list[Job]:
        """A cell's contender on the calibration rows, for each seed."""
        return [job.home for job in self.jobs(cell)]

    def calibrator_jobs(self, cell: CellSpec) -> list[Job]:
        """What a cell's calibrator is fitted on; nothing where it has no calibrator."""
        return self.calibration_jobs(cell) if cell.contender.calibrated else []

    # ── computing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def compute(self, jobs: Iterable[Job], progress: Progress) -> None:
        """Compute what the store does not have; progress advances by the work of all jobs, stored rows included."""
        jobs, done = list(dict.fromkeys(jobs)), 0.0

        def advance(amount: float, passes: int = 1) -> None:
            nonlocal done
            done += amount * passes
            progress.advance(amount * passes)

        self._compute_remotely(jobs, advance)
        for job in jobs:
            progress.step(self.source.describe(job))
            before = done
            self.fill(job, nothing if self._remote is not None else partial(advance, passes=job.method.passes))
            if self._remote is None:
                advance(before + self.work(job) - done)  # of rows that were there
        progress.advance(sum(map(self.work, jobs)) - done)

    def work(self, job: Job) -> float:
        """The work of a whole job, in passes over a text."""
        return float(len(self.dataset(job)) * job.method.passes)

    def fill(self, job: Job, advance: Callable[[int], None] = nothing) -> None:
        """Compute what the store does not have of a job; `advance` gets the number of rows of each piece."""
        self._run(job, advance)

    def _run(self, job: Job, advance: Callable[[int], None] = nothing) -> StoredRun:
        if job not in self._stored:
            store_job = self.store_job(job)
            with rescaled_embeddings(store_job.prepared.checkpoint.model, job.scale):
                self._stored[job] = store_job.fill(self.store, advance)
        return self._stored[job]

    def _compute_remotely(self, jobs: Sequence[Job], advance: Callable[[float], None]) -> None:
        """Let other machines, if there are any, compute what is missing, one model at a time.

        Jobs with rescaled embeddings are left out: the scale is not a part of the model that others load. What others
        need to know of the plain pass is computed first.
        """
        if self._remote is None:
            return
        here = pickle.dumps(self.source.elsewhere), self.store.directory.absolute()
        for _, group in groupby((job for job in jobs if job.scale == 1), key=lambda job: job.model):
            of_model = [job for job in group if job not in self._stored]
            self._compute_remotely([job.of(BASE) for job in of_model if job.method.learns], nothing)
            tasks: dict[tuple[str, int], Callable[[], float]] = {}
            for job in of_model:
                store_job = self.store_job(job)
                run = store_job.begin(self.store)
                key = run.provenance.recipe.key
                for number, _ in store_job.missing(run):
                    tasks.setdefault((key, number), partial(compute_piece, *here, job, key, number))
            self._remote.run(list(tasks.values()), advance)

    def store_job(self, job: Job) -> StoreJob:
        """The job in the form that fills a store; a method that learns from calibration texts has learned."""
        prepared, learned = self.prepared(job), self.learned(job)
        method = learned.method.seeded(job.seed)
        if job.method.learns and job != job.home:
            plain = self.predictions(job.of(BASE))
            return StoreJob(prepared, method, method.read_from(plain.passes), plain.seconds / len(plain.ids))
        return StoreJob(prepared, method, learned.outputs if job.method.learns else None)

    def prepared(self, job: Job) -> Prepared:
        """The rows of a job as tokens."""
        return self._tokens(replace(job, method=BASE, seed=0))

    def _tokenized(self, job: Job) -> Prepared:
        checkpoint = self.source.load(job.model)
        return prepare(
            checkpoint,
            self.dataset(job),
            align_task(self.source.task(job.on), checkpoint.id2label, label_order=self.source.label_order),
            task=job.on.partition("/")[0],
            perturbation=job.perturbation if job.scale == 1 else f"embeddings×{job.scale:g}",
            max_length=self.source.max_length(job.model),
        )

    def dataset(self, job: Job) -> Dataset:
        """The rows of a job."""
        dataset = draw(self.source.dataset(job.on), job.rows)
        return dataset if job.perturbation is None else perturb(dataset, job.perturbation)

    def learned(self, job: Job) -> LearnedMethod:
        """The method of a job, with what it learned from calibration texts."""
        return self._taught(job.home) if job.method.learns else LearnedMethod(job.method)

    def _teach(self, home: Job) -> LearnedMethod:
        rows = CalibrationRows(len(self.dataset(home)), lambda method: self.predictions(home.of(method)).passes)
        return home.method.seeded(home.seed).learn(rows)

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    def predictions(self, job: Job, passes: int | None = None) -> StoredPredictions:
        """The predictions of a job; with `passes` only the first ones.

        A pass depends on earlier ones only (also under the lagged estimate), so three of ten are a run of three.
        """
        predictions = self._read(job)
        if passes is None:
            return predictions
        return replace(predictions, passes=replace(predictions.passes, logits=predictions.logits[:passes]))

    def _read_run(self, job: Job) -> StoredPredictions:
        self._compute_remotely([job], nothing)
        return self._run(job).read()

    def keys(self, jobs: Sequence[Job]) -> tuple[str, ...]:
        """The names of runs in the store."""
        return tuple(self._run(job).provenance.recipe.key for job in jobs)

    def calibrators(self, cell: CellSpec) -> list[LogitCalibrator | None]:
        """The fitted calibrator of each seed; None where the contender has none."""
        name, jobs = cell.contender.calibrator, self.calibrator_jobs(cell)
        return [self._fitted(name, job, cell.passes) for job in jobs] or [None] * len(self.source.models(cell))

    def _fit(self, name: str, job: Job, passes: int | None) -> LogitCalibrator:
        return fit_calibrator(name, self.predictions(job, passes))

    def outcomes(self, cell: CellSpec) -> list[Outcome]:
        """The outcome of a cell's contender on its rows, for each seed; kept, as many cells share it."""
        return self._outcomes(replace(cell, measure=""))

    def _judge(self, cell: CellSpec) -> list[Outcome]:
        pairs = zip(self.jobs(cell), self.calibrators(cell), strict=True)
        return [outcome_of(self._of_cell(job, cell), calibrator) for job, calibrator in pairs]

    def estimates(self, cell: CellSpec) -> list[Estimates]:
        """The metric that a cell measures, for each seed."""
        return [metric_estimates(outcome.rows, [cell.measure]) for outcome in self.outcomes(cell)]

    def facts(self, cell: CellSpec) -> SetFacts:
        """The set of a cell."""
        about = self.predictions(self.jobs(cell)[0]).provenance
        rows = len(self.outcomes(cell)[0].labels)
        return SetFacts(
            name=about.set_name,
            source=about.source,
            alignment=about.alignment,
            rows=rows,
            left_out=about.rows - rows,
            truncated_texts=about.truncated_texts,
            truncated_tokens=about.truncated_tokens,
        )

    def cost(self, cell: CellSpec) -> tuple[float, float]:
        """What a text costs a cell's contender: passes, and seconds."""
        jobs = self.jobs(cell)
        stored = [self.predictions(job) for job in jobs]
        seconds = sum(run.seconds for run in stored) / sum(len(run.ids) for run in stored)
        return float(self.learned(jobs[0]).method.cost), seconds

    def _of_cell(self, job: Job, cell: CellSpec) -> StoredPredictions:
        """The passes and rows that a cell is about."""
        predictions = self.predictions(job, cell.passes)
        if cell.subset is None and (cell.rows is None or cell.perturbation is not None):
            return predictions
        ids = subset_ids(self.dataset(job), cell.subset, cell.rows)
        return predictions.take(np.array([name in ids for name in predictions.ids]))


@lru_cache(maxsize=1)
def _runs_here(source: bytes, store: Path) -> Runs:
    """The runs of an experiment in a worker process, which keeps its models and tokens from task to task."""
    return Runs(pickle.loads(source)(), Store(store))


def compute_piece(source: bytes, store: Path, job: Job, key: str, number: int) -> float:
    """Compute and write a piece of a run on another machine; returns the work done, in passes over a row."""
    runs = _runs_here(source, store)
    store_job = runs.store_job(job)
    if store_job.recipe.key != key:
        raise DataError(
            f"On {socket.gethostname()} the models or the data are not those of the driver: there is no "
            f"{store_job.method.name} on {job.set_name} with these. Give every machine the same files."
        )
    run = store_job.begin(runs.store)
    rows = run.plan(store_job.prepared.tokens.by_length())[number]
    run.write(number, store_job.compute(rows))
    return float(len(rows) * store_job.method.passes)
