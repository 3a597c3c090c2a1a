"""The runs of an experiment: which method of which model says what about which rows, each computed once and stored.

Everything that numbers rest on goes through the store: test rows and calibration rows, the teacher that a method
learns from, and the plain pass that a scope or a read-out needs. So a killed experiment goes on where it stopped.
"""

import pickle
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from uatlite.classifier.runtime import run_tokens
from uatlite.errors import DataError, InputError
from uatlite.lab.evaluate.cells import CellSpec, draw, subset_ids
from uatlite.lab.evaluate.models import Job, Source, rescaled_embeddings
from uatlite.lab.evaluate.outcomes import Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.results import SetScores
from uatlite.lab.evaluate.store import (
    NO_LABEL,
    Piece,
    Provenance,
    RunRecipe,
    Store,
    StoredPredictions,
    StoredRun,
    parts_of,
)
from uatlite.methods.method import CalibrationRows, LearnedMethod, Method
from uatlite.methods.registry import method_to_dict
from uatlite.methods.sampling import BASE
from uatlite.metrics.intervals import Estimates, metric_estimates
from uatlite.model.load import Checkpoint
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.predictive import PassLogits
from uatlite.text.labels import Alignment, align_task
from uatlite.text.perturb import perturb
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.values import Choices, Dataset, Floats

PACKAGES = ("uatlite", "torch", "transformers", "numpy")


class Progress(Protocol):
    """Shows the progress of a long computation: a bar on a terminal, lines in a log."""

    def begin(self, stage: str, total: float) -> None:
        """A new stage begins, with `total` units of work."""

    def step(self, what: str) -> None:
        """Say what is being done now."""

    def advance(self, amount: float) -> None:
        """Add `amount` units of finished work."""


def nothing(amount: float) -> None:
    """Progress that nobody follows."""


class Remote(Protocol):
    """Other machines that see the directory of an experiment."""

    def run(self, tasks: Sequence[Callable[[], float]], advance: Callable[[float], None]) -> None:
        """Run tasks of no order, each as a whole on one machine; `advance` gets what each returns.

        Tasks are pickled, so they are a `partial` and not a closure.
        """


# ── one run ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set for a model: how the model's columns become its classes, and its tokens for all methods and seeds."""

    checkpoint: Checkpoint
    dataset: Dataset
    alignment: Alignment
    task: str
    """its name before it was perturbed"""
    perturbation: str | None = None
    max_length: int | None = None

    @cached_property
    def tokens(self) -> Tokens:
        """The texts as tokens."""
        texts, labels = self.dataset.texts, len(self.dataset.labels)
        options = {len(text.options) for text in texts if isinstance(text, Choices)}
        if options and options != {labels}:
            raise InputError(
                f"{self.dataset.name} has questions with {sorted(options)} options; every question must have one for "
                f"each of its {labels} labels."
            )
        model, tokenizer = self.checkpoint.model, self.checkpoint.tokenizer
        return tokenize(tokenizer, texts, longest(model, tokenizer, self.max_length))


@dataclass(frozen=True, eq=False)
class StoreJob:
    """One run of the store."""

    prepared: Prepared
    method: Method
    """with all that it learns, and the seed"""
    said: PassLogits | None = None
    """what it says of all rows, where that is read off what was computed before and no model has to run"""
    seconds: float = 0.0
    """of a row: what it took to compute what that was read off"""

    @property
    def provenance(self) -> Provenance:
        """What determines the numbers of the run, and facts for a reader of them."""
        prepared, dataset, checkpoint = self.prepared, self.prepared.dataset, self.prepared.checkpoint
        return Provenance(
            recipe=RunRecipe(
                model=checkpoint.hash,
                data=dataset.fingerprint,
                tokens=prepared.tokens.fingerprint,
                task=prepared.task,
                split=dataset.split,
                perturbation=prepared.perturbation,
                method=method_to_dict(self.method),
                seed=self.method.seed if self.method.stochastic else None,
                columns=prepared.alignment.columns,
                uatlite=version("uatlite"),
            ),
            method=self.method.name,
            passes=self.method.passes,
            model=checkpoint.name,
            source=dataset.source,
            rows=len(dataset),
            labels=dataset.labels,
            model_labels=tuple(checkpoint.id2label.values()),
            classes=prepared.alignment.labels,
            alignment=prepared.alignment.note,
            out_of_scope=dataset.out_of_scope,
            truncated_texts=prepared.tokens.truncated_texts,
            truncated_tokens=prepared.tokens.truncated_tokens,
            versions={package: version(package) for package in PACKAGES},
        )

    @property
    def parts(self) -> list[Sequence[int]]:
        """The rows of each piece. Short texts come first."""
        return parts_of(self.prepared.tokens.by_length())

    def missing(self, run: StoredRun) -> Iterator[tuple[int, Sequence[int]]]:
        """The pieces of the run that are missing or broken: the number and the rows of each."""
        return ((number, rows) for number, rows in enumerate(self.parts) if not run.has(number, rows))

    def compute(self, rows: Sequence[int]) -> Piece:
        """The piece with these rows."""
        started = time.perf_counter()
        if self.said is None:
            said: PassLogits = run_tokens(self.prepared.checkpoint.model, self.method, self.prepared.tokens, rows)
        else:
            said = self.said.take(np.array(rows))
        examples = [self.prepared.dataset.examples[row] for row in rows]
        return Piece(
            rows=np.array(rows),
            ids=tuple(example.id for example in examples),
            labels=np.array([NO_LABEL if example.label is None else example.label for example in examples]),
            passes=said,
            seconds=time.perf_counter() - started + self.seconds * len(rows),
        )

    def fill(self, store: Store, advance: Callable[[int], None] = nothing) -> StoredRun:
        """The finished run; only pieces that the store does not have are computed.

        `advance` gets the number of rows of each piece that was computed and stored. A finished piece is never computed
        again, however this call ends.
        """
        run = store.begin(self.provenance)
        if not run.complete:
            for number, rows in self.missing(run):
                run.write(number, self.compute(rows))
                advance(len(rows))
            run.finish()
        return run


# ── all runs ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Runs:
    """The stored runs of an experiment, and what is read of them: calibrators and outcomes."""

    def __init__(self, source: Source, store: Store, remote: Remote | None = None) -> None:
        self.source, self.store = source, store
        self.strangeness: dict[Job, Floats] = {}
        """what the scope says of the rows of a plain job, (2, rows)"""
        self._remote = remote
        self._stored: dict[Job, StoredRun] = {}
        self._taught = cache(self._teach)
        self._fitted = cache(lambda name, job, passes: fit_calibrator(name, self.predictions(job, passes)))
        self._outcomes: dict[CellSpec, list[Outcome]] = {}
        self._tokens = lru_cache(maxsize=12)(self._tokenized)
        self._read = lru_cache(maxsize=8)(lambda job: self._run(job).read())

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
        here = pickle.dumps(self.source), self.store.directory.absolute()
        for _, group in groupby((job for job in jobs if job.scale == 1), key=lambda job: job.model):
            of_model = [job for job in group if job not in self._stored]
            self._compute_remotely([job.of(BASE) for job in of_model if job.method.learns], nothing)
            tasks: dict[tuple[str, int], Callable[[], float]] = {}
            for job in of_model:
                store_job = self.store_job(job)
                run = self.store.begin(store_job.provenance)
                key = run.provenance.recipe.key
                for number, _ in store_job.missing(run):
                    tasks.setdefault((key, number), partial(compute_piece, *here, job, key, number))
            self._remote.run(list(tasks.values()), advance)

    def store_job(self, job: Job) -> StoreJob:
        """The job in the form that fills a store; a method that learns from calibration texts has learned."""
        learned = self.learned(job)
        method, said, seconds = learned.method.seeded(job.seed), learned.outputs, 0.0
        if job.method.learns and job != job.home:
            plain = self.predictions(job.of(BASE))
            said = method.read_from(plain.passes)
            seconds = 0.0 if said is None else plain.seconds / len(plain.ids)
        return StoreJob(self.prepared(job), method, said, seconds)

    def prepared(self, job: Job) -> Prepared:
        """The rows of a job as tokens."""
        return self._tokens(replace(job, method=BASE, seed=0))

    def _tokenized(self, job: Job) -> Prepared:
        checkpoint = self.source.load(job.model)
        return Prepared(
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
        self._compute_remotely([job], nothing)
        predictions = self._read(job)
        if passes is None:
            return predictions
        return replace(predictions, passes=replace(predictions.passes, logits=predictions.logits[:passes]))

    def keys(self, jobs: Iterable[Job]) -> tuple[str, ...]:
        """The names of the runs in the store."""
        return tuple(self._run(job).provenance.recipe.key for job in jobs)

    def calibrators(self, cell: CellSpec) -> list[LogitCalibrator | None]:
        """The fitted calibrator of each seed; None where the contender has none."""
        if not cell.contender.calibrated:
            return [None] * len(self.source.models(cell))
        return [self._fitted(cell.contender.calibrator, job, cell.passes) for job in self.calibration_jobs(cell)]

    def outcomes(self, cell: CellSpec) -> list[Outcome]:
        """The outcome of a cell's contender on its rows, for each seed; kept, as many cells share it."""
        cell = replace(cell, measure="")
        if cell not in self._outcomes:
            pairs = zip(self.jobs(cell), self.calibrators(cell), strict=True)
            self._outcomes[cell] = [outcome_of(self._of_cell(job, cell), calibrator) for job, calibrator in pairs]
        return self._outcomes[cell]

    def estimates(self, cell: CellSpec) -> list[Estimates]:
        """The metric that a cell measures, for each seed."""
        return [metric_estimates(outcome.rows, [cell.measure]) for outcome in self.outcomes(cell)]

    def facts(self, cell: CellSpec) -> SetScores:
        """The set of a cell."""
        about = self.predictions(self.jobs(cell)[0]).provenance
        rows = len(self.outcomes(cell)[0].rows)
        return SetScores(
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
    return Runs(pickle.loads(source), Store(store))


def compute_piece(source: bytes, store: Path, job: Job, key: str, number: int) -> float:
    """Compute and write a piece of a run on another machine; returns the work done, in passes over a row."""
    runs = _runs_here(source, store)
    store_job = runs.store_job(job)
    provenance = store_job.provenance
    if provenance.recipe.key != key:
        raise DataError(
            f"On {socket.gethostname()} the models or the data are not those of the driver: there is no "
            f"{store_job.method.name} on {job.set_name} with these. Give every machine the same files."
        )
    run = runs.store.begin(provenance)
    rows = store_job.parts[number]
    run.write(number, store_job.compute(rows))
    return float(len(rows) * store_job.method.passes)
