"""Token embeddings times a factor, while a block runs.

The fine-tunings that tables share: one for each backbone, task, method with weights of its own, and seed.

DIR/models/TASK-METHOD-SEED-KEY/    the classifier and the record of its run; the key is of all that decides its weights

Where tables get their predictions from: fine-tuned models and stored logits, each made once and shared by all.

DIR/models/    the fine-tunings
    store/     the logits of every pass
    kept/      other arrays that take a model to compute
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.contenders import parse_contender
from uatlite.lab.evaluate.outcomes import Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.plan import CALIBRATION, parse_set
from uatlite.lab.evaluate.predict import Prepared, predict, prepare, remaining
from uatlite.lab.evaluate.store import Store, StoredPredictions, StoredRun
from uatlite.lab.evaluate.suite import ProgressDisplay, StoreJob
from uatlite.lab.paper.declaration import Ask
from uatlite.lab.paper.settings import ReproductionSettings, Supplies, chosen
from uatlite.lab.train.methods import METHOD_TRAININGS, TrainingJob, steps, train_method
from uatlite.lab.train.recipe import PLAIN, MethodTraining
from uatlite.lab.train.record import Report, finished, step_counter
from uatlite.methods.registry import parse_method
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.text.catalogue import find_task
from uatlite.text.examples import align_task
from uatlite.text.perturb import perturb
from uatlite.text.schema import Task
from uatlite.text.tasks import sample
from uatlite.text.write import atomic_file
from uatlite.trust.calibrators import Calibrator
from uatlite.values import Dataset


@contextmanager
def rescaled_embeddings(model: PreTrainedModel, factor: float) -> Iterator[None]:
    """Within the block the model's word embeddings are e_j ← c·e_j; positions and segments are as ever.

    The weights are not touched: a hook on the embedding's output multiplies, and is gone afterwards, also after an
    error.
    """
    if not factor > 0:
        raise ConfigurationError(f"factor={factor} is not above 0.")

    def scale(module: nn.Module, args: object, output: Tensor) -> Tensor:
        return output * factor

    hook = model.get_input_embeddings().register_forward_hook(scale)
    try:
        yield
    finally:
        hook.remove()


@dataclass(frozen=True)
class Fit:
    """A model to fine-tune: plainly, or as a method with weights of its own asks for."""

    backbone: str
    task: str
    method: str
    seed: int

    @classmethod
    def of(cls, backbone: str, task: str, method: str, seed: int) -> "Fit":
        """The fit that a method runs on: most of them on the plain one."""
        return cls(backbone, task, method if method in METHOD_TRAININGS else PLAIN.key, seed)

    @property
    def plain(self) -> "Fit":
        """The plain fine-tuning with these settings, which a method may have as a part."""
        return replace(self, method=PLAIN.key)

    @property
    def title(self) -> str:
        method = "" if self.method == PLAIN.key else f", {self.method}"
        return f"{Path(self.backbone).name} on {self.task}{method}, seed {self.seed}"


class PaperModels:
    """A directory of fitted models."""

    def __init__(self, directory: Path, supplies: Supplies, settings: ReproductionSettings) -> None:
        self._directory = directory
        self._supplies = supplies
        self._settings = settings
        self._loaded: tuple[Fit, Checkpoint] | None = None

    def home(self, fit: Fit) -> Path:
        """Where the model of a fit lies: other rows, another recipe or backbone is another directory."""
        about = json.dumps(asdict(self._job(fit).run(_training(fit).name)), sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()[:10]
        return self._directory / f"{fit.task}-{fit.method}-{fit.seed}-{key}"

    def steps(self, fit: Fit) -> int:
        """Optimizer steps that fitting reports."""
        return steps(_training(fit), self._job(fit))

    def sequences(self, fit: Fit) -> int:
        """Sequences that go through the model while it is fitted, all epochs and members together."""
        supply = self._supplies.of(fit.task)
        return self.steps(fit) * min(self._settings.recipe.batch_size, len(supply.train)) * sequences(supply.task)

    def fit(self, fit: Fit, report: Report) -> None:
        """Fit a model unless it is there; one that was interrupted goes on from its last checkpoint."""
        base = self.home(fit.plain)
        has_base = fit != fit.plain and finished(base, self._job(fit).run(PLAIN.identity)) is not None
        usable = has_base and _training(fit).from_plain
        train_method(
            _training(fit), self._job(fit), self.home(fit), base=base if usable else None, resume=True, report=report
        )

    def load(self, fit: Fit) -> Checkpoint:
        """The fitted model; the last one is kept in memory."""
        if self._loaded is None or self._loaded[0] != fit:
            self._loaded = fit, load_checkpoint(self.home(fit), kind=self._supplies.of(fit.task).task.kind)
        return self._loaded[1]

    def _job(self, fit: Fit) -> TrainingJob:
        train = self._supplies.of(fit.task).train
        return TrainingJob(fit.backbone, train, recipe=self._settings.recipe, seed=fit.seed)


def sequences(task: Task) -> int:
    """What a row of a task is to a model: a question with options is a sequence for each of them."""
    return len(task.labels) if task.kind == "choice" else 1


def _training(fit: Fit) -> MethodTraining:
    return METHOD_TRAININGS.get(fit.method, PLAIN)


Arrays = Mapping[str, NDArray[np.float64]]


class Elsewhere(Protocol):
    """Computes on other machines what a store lacks of some jobs."""

    def __call__(
        self,
        jobs: Sequence[StoreJob],
        store: Store,
        advance: Callable[[float], None],
        *,
        make_jobs: Callable[[], Sequence[StoreJob]],
    ) -> None:
        """`make_jobs` makes the same jobs there."""


@dataclass(frozen=True)
class PaperJob:
    """Predictions to be had: a fitted model's method over a set."""

    fit: Fit
    method: str
    on: str
    perturbation: str | None = None
    rows: int | None = None
    scale: float = 1.0

    @property
    def title(self) -> str:
        changes = "".join(
            [f"+{self.perturbation}" if self.perturbation else "", f", ×{self.scale:g}" if self.scale != 1 else ""]
        )
        return f"{self.method} on {self.on}{changes}, {self.fit.title}"


class Workshop:
    """Models and predictions of a reproduction, made when they are first asked for."""

    def __init__(self, directory: Path, settings: ReproductionSettings, elsewhere: Elsewhere | None = None) -> None:
        self.settings = settings
        self._elsewhere = elsewhere
        self.directory = directory
        self.supplies = Supplies(settings)
        self.store = Store(directory / "store")
        self.models = PaperModels(directory / "models", self.supplies, settings)
        self._runs: dict[PaperJob, StoredRun] = {}
        self._fitted: dict[tuple[str, PaperJob, int | None], Calibrator] = {}
        self._outcomes: dict[Ask, list[Outcome]] = {}
        self._prepared: tuple[tuple[Fit, str, str | None, int | None, float], Prepared] | None = None

    # ── who and where ──────────────────────────────────────────────────────────────────────────────────────────────

    def fits(self, ask: Ask) -> list[Fit]:
        """The models of a cell, one for each seed."""
        method = parse_contender(ask.contender).method
        key = str(method.to_dict()["method"])
        backbone = self.settings.chosen(ask.backbone)
        seeds = min(self.settings.seeds, ask.seeds or self.settings.seeds)
        return [Fit.of(backbone, ask.task, key, seed) for seed in range(seeds)]

    def jobs(self, ask: Ask) -> list[PaperJob]:
        """The predictions of a cell, one for each seed."""
        method = parse_contender(ask.contender).method.name
        perturbed = ask.rows if ask.perturbation is not None else None  # else the larger run is cut
        return [PaperJob(fit, method, self._set(ask), ask.perturbation, perturbed, ask.scale) for fit in self.fits(ask)]

    def calibration_jobs(self, ask: Ask) -> list[PaperJob]:
        """The predictions that a cell's calibrator is fitted on; none where it has no calibrator."""
        contender = parse_contender(ask.contender)
        if not contender.calibrated:
            return []
        return [PaperJob(fit, contender.method.name, f"{ask.task}/{CALIBRATION}") for fit in self.fits(ask)]

    def _set(self, ask: Ask) -> str:
        choice = parse_set(ask.on or ask.task)
        return f"{choice.task.name}/{choice.split}"

    # ── models ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def work_of_fit(self, fit: Fit) -> float:
        """How much a fitting takes, in passes over a sequence: forward and back are three."""
        return 3.0 * self.models.sequences(fit)

    def fit(self, fit: Fit, display: ProgressDisplay) -> None:
        """Fine-tune a model, unless it is there; then it counts as done at once."""
        work = self.work_of_fit(fit) / self.models.steps(fit)
        told = 0.0

        def tell(count: float) -> None:
            nonlocal told
            told += count
            display.advance(work * count)

        self.models.fit(fit, step_counter(tell))
        tell(self.models.steps(fit) - told)

    def checkpoint(self, fit: Fit) -> Checkpoint:
        """The fitted model."""
        return self.models.load(fit)

    # ── predictions ────────────────────────────────────────────────────────────────────────────────────────────────

    def dataset(self, job: PaperJob) -> Dataset:
        """The rows of a job, perturbed where it says so."""
        dataset = self.supplies.at(job.on)
        if job.rows is not None:
            dataset = replace(dataset, examples=tuple(sample(dataset.examples, job.rows)))
        return dataset if job.perturbation is None else perturb(dataset, job.perturbation)

    def prepared(self, job: PaperJob) -> Prepared:
        """The rows of a job as the model's tokens; the last ones are kept."""
        key = (job.fit, job.on, job.perturbation, job.rows, job.scale)
        if self._prepared is None or self._prepared[0] != key:
            checkpoint = self.checkpoint(job.fit)
            task = find_task(job.on.partition("/")[0])
            scaled = f"embeddings×{job.scale:g}" if job.scale != 1 else None
            self._prepared = key, prepare(
                checkpoint,
                self.dataset(job),
                align_task(task, checkpoint.id2label),
                task=task.name,
                perturbation=job.perturbation if scaled is None else scaled,
                max_length=self.settings.recipe.max_length,
            )  # fmt: skip
        return self._prepared[1]

    def work_of_job(self, job: PaperJob) -> float:
        """How much a job takes from nothing, in passes over a sequence."""
        return float(len(self.dataset(job)) * self._passes(job))

    def _passes(self, job: PaperJob) -> int:
        """Passes over sequences that a row takes."""
        return parse_method(job.method).passes * sequences(find_task(job.on.partition("/")[0]))

    def predict_elsewhere(self, jobs: Sequence[PaperJob]) -> None:
        """Let other machines, if there are any, compute what the store lacks of jobs of one model.

        Jobs with scaled embeddings are left to `predict`: the scale is not a part of the model that others load.
        """
        theirs = tuple(job for job in jobs if job.scale == 1)
        if self._elsewhere is not None and theirs:
            make_jobs = partial(store_jobs, self.directory.absolute(), self.settings.anywhere(), theirs)
            self._elsewhere(self.store_jobs(theirs), self.store, lambda done: None, make_jobs=make_jobs)

    def store_jobs(self, jobs: Sequence[PaperJob]) -> list[StoreJob]:
        """Jobs as the store's runner knows them."""
        return [(self.prepared(job), parse_method(job.method), job.fit.seed) for job in jobs]

    def predict(self, job: PaperJob, display: ProgressDisplay) -> None:
        """Compute what the store lacks of a job; what it has counts as done at once."""
        method, prepared = parse_method(job.method), self.prepared(job)
        left = remaining(self.store, prepared, method, job.fit.seed)
        display.advance((len(prepared.dataset) - left) * self._passes(job))
        with scaling(self.checkpoint(job.fit), job.scale):
            self._runs[job] = predict(
                self.store, prepared, method, job.fit.seed, lambda rows: display.advance(rows * self._passes(job))
            )

    def predictions(self, job: PaperJob) -> StoredPredictions:
        """The stored predictions of a job that was run."""
        return self._runs[job].read()

    def calibrators(self, ask: Ask) -> list[Calibrator | None]:
        """The fitted calibrator of each seed; None where the contender has none."""
        name, jobs = parse_contender(ask.contender).calibrator, self.calibration_jobs(ask)
        return [self._calibrator(name, job, ask.passes) for job in jobs] or [None] * len(self.fits(ask))

    def _calibrator(self, name: str, job: PaperJob, passes: int | None) -> Calibrator:
        """Fitted once, however many cells are calibrated by it."""
        key = (name, job, passes)
        if key not in self._fitted:
            self._fitted[key] = fit_calibrator(name, cut_passes(self.predictions(job), passes))
        return self._fitted[key]

    def outcomes(self, ask: Ask) -> list[Outcome]:
        """What a cell's contender comes to on its rows, for each seed; kept, as a row of a table is many measures."""
        key = replace(ask, measure="")
        if key not in self._outcomes:
            predictions = [self.selected(job, ask) for job in self.jobs(ask)]
            pairs = zip(predictions, self.calibrators(ask), strict=True)
            self._outcomes[key] = [outcome_of(run, own) for run, own in pairs]
        return self._outcomes[key]

    def selected(self, job: PaperJob, ask: Ask) -> StoredPredictions:
        """A job's predictions, cut to the passes and the rows that a cell is about."""
        predictions = cut_passes(self.predictions(job), ask.passes)
        if ask.subset is None and (ask.rows is None or ask.perturbation is not None):
            return predictions
        ids = chosen(self.dataset(job), ask.subset, ask.rows)
        return cut_rows(predictions, ids)

    # ── what else takes a model ────────────────────────────────────────────────────────────────────────────────────

    def about(self, fit: Fit) -> str:
        """What decides a fit's weights, for the keys of `kept`."""
        return self.models.home(fit).name

    def kept(self, name: str, about: object, compute: Callable[[], Arrays]) -> Arrays:
        """Arrays that were computed once for what `about` says, from DIR/kept."""
        key = hashlib.sha256(json.dumps(about, sort_keys=True, default=_plain).encode()).hexdigest()[:16]
        path = self.directory / "kept" / f"{name}-{key}.npz"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                np.savez(file, **dict(compute()))  # type: ignore[arg-type]
        with np.load(path) as arrays:
            return dict(arrays)


def scaling(checkpoint: Checkpoint, factor: float) -> AbstractContextManager[None]:
    """Token embeddings times the factor while a block runs."""
    return nullcontext() if factor == 1 else rescaled_embeddings(checkpoint.model, factor)


def cut_passes(predictions: StoredPredictions, passes: int | None) -> StoredPredictions:
    """The first passes: under the lagged estimate one depends on those before it only, so three are a start of ten."""
    return predictions if passes is None else replace(predictions, logits=predictions.logits[:passes])


def store_jobs(directory: Path, settings: ReproductionSettings, jobs: Sequence[PaperJob]) -> list[StoreJob]:
    """Jobs of a reproduction's directory, made anew on a machine that sees it."""
    return Workshop(directory, settings).store_jobs(jobs)


def cut_rows(predictions: StoredPredictions, ids: frozenset[str]) -> StoredPredictions:
    """The rows with these ids."""
    return predictions.take(np.flatnonzero([name in ids for name in predictions.ids]))


def _plain(value: object) -> object:
    return asdict(value) if isinstance(value, Fit | PaperJob | Ask) else str(value)
