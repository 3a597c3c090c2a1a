"""What a reproduction runs on: its settings, the rows of each task, and the models, which all tables share.

DIR/models/TASK-METHOD-SEED-KEY/    a classifier and the record of its training; there is one for each backbone, task,
                                    trained method and seed, and KEY is a hash of everything that decides the weights
    kept/NAME-KEY.npz               arrays that were computed with a model

The default settings are the paper's: BERT-base from the hub, its recipe, five seeds. Where a data directory has no
training rows of a task (many copies of SQuAD 2.0 and MedQA lack them), its calibration rows are divided: most train,
the rest calibrate. The test rows are the same either way, and the report says which.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, DataError, check_choice
from uatlite.lab.evaluate.cells import CellSpec, draw
from uatlite.lab.evaluate.measures import UNAVAILABLE
from uatlite.lab.evaluate.models import TRAIN, Job, Model, absolute
from uatlite.lab.evaluate.plan import CALIBRATION, REFERENCE, REFERENCE_ROWS, TEST
from uatlite.lab.evaluate.runs import Remote, nothing
from uatlite.lab.evaluate.store import Arrays, kept_arrays
from uatlite.lab.train.fine_tune import Speed, fine_tune, speed, steps
from uatlite.lab.train.methods import METHOD_TRAININGS
from uatlite.lab.train.recipe import CHANGES, PLAIN, MethodTraining, Recipe, TrainingJob, read_finished, recipe_for
from uatlite.metrics.intervals import RESAMPLES
from uatlite.model.architectures import HEADS
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.text.files import hub_access
from uatlite.text.schema import Task, catalogue, find_task
from uatlite.text.tasks import find_rows, load, take_share
from uatlite.text.write import Pieces
from uatlite.values import Dataset

BACKBONE = "bert-base-uncased"
TRAINING_ROWS = 10
"""With a row limit, training uses at most this many times as many rows as are evaluated."""
TRAINING_SHARE = 70
"""Per cent of the calibration rows that train where there are no training rows."""
LARGER = "test-original"
"""A labelled test set that some tasks have besides the paper's, which is half of a dev set."""


@dataclass(frozen=True, kw_only=True)
class ReproductionSettings:
    """Backbones, data, and how many rows, seeds and resamples.

    With `limit`, two defaults change: ten times as many training rows, and the recipe for few rows.
    """

    backbone: str | None = None
    """the backbone of every table; the paper's by default"""
    others: tuple[str, ...] = ()
    """replace, together with `backbone`, the backbones that `backbones` and `scaling` compare"""
    data_dir: Path | None = None
    seeds: int = 5
    trained_seeds: int | None = None
    """at most this many seeds of methods with a training of their own, such as SNGP; as many as `seeds` by default"""
    limit: int | None = None
    """rows drawn from each evaluated set"""
    train_limit: int | None = None
    """rows drawn to train on"""
    recipe: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """what is different from the recipe, for every task"""
    resamples: int = RESAMPLES
    tasks: tuple[str, ...] = ()
    """only models of these tasks; cells of others stay empty. All tasks by default"""
    learned_only: bool = False
    """stop at the plain model of a task that it has not learned; cells that need more stay empty"""
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("seeds", "trained_seeds", "limit", "train_limit", "resamples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigurationError(f"{name}={value} is not 1 or more.")
        for task in self.tasks:
            check_choice("task", task, catalogue())
        self.recipe_of("")

    @property
    def recipe_name(self) -> str:
        return self.recipe or ("paper" if self.limit is None else "few-rows")

    def recipe_of(self, task: str) -> Recipe:
        """How models of a task are trained."""
        return replace(recipe_for(self.recipe_name, task), **self.changes)

    @property
    def training_rows(self) -> int | None:
        """At most this many rows are trained on."""
        return self.train_limit or (None if self.limit is None else TRAINING_ROWS * self.limit)

    @property
    def substitutes(self) -> tuple[str, ...]:
        """The backbones given in place of the paper's, that of every table first unless `others` has a place for it.

        Empty where the paper's own are run.
        """
        if self.backbone is None:
            return ()
        return self.others if self.backbone in self.others else (self.backbone, *self.others)

    def backbone_of(self, name: str | None) -> str:
        """The backbone that a cell names, or else the one of every table."""
        return name or self.backbone or BACKBONE

    def describe(self, trained: Collection[str]) -> list[str]:
        """The settings in words, for the head of the report; `trained` are the tasks with models on it."""
        limit = self.training_rows
        rows = "all rows of each set" if self.limit is None else f"at most {self.limit:,} rows of each set"
        training = "all training rows" if limit is None else f"at most {limit:,} training rows"
        backbone = self.backbone_of(None)
        fewer = "" if self.trained_seeds is None else f", {self.trained_seeds} of methods that are trained differently"
        seeds = "one seed" if self.seeds == 1 else (
            f"{self.seeds} seeds, each with its own fine-tuning and masks; one seed where the paper's table has one"
        )  # fmt: skip
        usual = asdict(self.recipe_of(""))
        recipe = ", ".join(f"{name} {value}" for name, value in usual.items() if value is not None)
        for task in filter(trained.__contains__, CHANGES[self.recipe_name]):
            differs = [
                f"{name} {value}" for name, value in asdict(self.recipe_of(task)).items() if value != usual[name]
            ]
            recipe += f"; {task}: {', '.join(differs)}"
        return [
            f"Backbone {Path(backbone).name if Path(backbone).is_dir() else backbone}; {rows}, {training}; "
            f"{seeds}{fewer}.",
            f"Recipe: {recipe}.",
            f"Intervals are 95 %, from {self.resamples:,} resamples of the rows of a set and of the seeds; two methods "
            "on the same rows are compared on the same resamples. With one seed they cover the choice of rows only.",
        ]


def training_of(model: Model) -> MethodTraining:
    """How a model's method is trained."""
    return METHOD_TRAININGS.get(model.method, PLAIN)


def members_of(model: Model) -> list[Model]:
    """The plain fine-tunings that a model is made of, which other cells use too: of this seed and the next."""
    training = training_of(model)
    count = training.fine_tunings if training.from_plain else 0
    return [replace(model.plain, seed=model.seed + i) for i in range(count)]


def title_of(model: Model) -> str:
    """'bert-tiny on mnli, swag, seed 0'"""
    method = "" if model == model.plain else f", {model.method}"
    return f"{Path(model.name).name} on {model.task}{method}, seed {model.seed}"


class FineTunedModels:
    """The source of a reproduction: its rows, the models in DIR/models, and arrays in DIR/kept."""

    label_order: tuple[str, ...] | None = None

    def __init__(self, directory: Path, settings: ReproductionSettings) -> None:
        self.settings = settings
        self._directory = directory
        self._arrays = Pieces(directory / "kept")
        self._divided = cache(self._divide)
        self.dataset = cache(self._dataset)
        self.load = lru_cache(maxsize=1)(self._load)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process with another working directory."""
        settings = replace(
            self.settings,
            backbone=self.settings.backbone and absolute(self.settings.backbone),
            others=tuple(map(absolute, self.settings.others)),
            data_dir=self.settings.data_dir and self.settings.data_dir.absolute(),
        )
        return FineTunedModels, (self._directory.absolute(), settings)

    # ── rows ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def task(self, on: str) -> Task:
        return find_task(on.partition("/")[0])

    def _dataset(self, on: str) -> Dataset:
        """The set called 'mnli' or 'mnli/test', 'mnli/calibration', 'mnli/train'; 'mnli/reference' is in scope.

        In place of test rows that are too few for the limit, those of a larger labelled set.
        """
        (name, _, split), settings = on.partition("/"), self.settings
        if split == REFERENCE:
            return draw(self.dataset(f"{name}/{TRAIN}").in_scope(), REFERENCE_ROWS)
        limit = settings.training_rows if split == TRAIN else settings.limit
        if split in (TRAIN, CALIBRATION) and (parts := self._divided(name)):
            return draw(parts[split], limit)
        task = self.task(name)
        rows = load(task, split or TEST, settings.data_dir, limit=limit)
        if split in ("", TEST) and LARGER in task.splits and len(rows) < (limit or 0):
            with suppress(DataError):  # it is in files only, and not everyone has them
                return load(task, LARGER, settings.data_dir, limit=limit)
        return rows

    def _divide(self, name: str) -> dict[str, Dataset]:
        """The calibration rows of a task without training rows, as training and calibration rows; else empty.

        Rows of one group, such as an article, stay together.
        """
        task, data_dir = self.task(name), self.settings.data_dir
        try:
            find_rows(task, TRAIN, data_dir)
        except DataError:
            data, column = load(task, CALIBRATION, data_dir), task.layout.group
            groups = None if column is None else [str(row.meta[column]) for row in data.examples]
            parts = {}
            for split, share in ((TRAIN, (0, TRAINING_SHARE)), (CALIBRATION, (TRAINING_SHARE, 100))):
                source = f"{data.source}, {share[0]}–{share[1]} % of those"
                parts[split] = replace(data, examples=tuple(take_share(data.examples, share, groups)), source=source)
            return parts
        return {}

    def training_note(self, name: str) -> str:
        """Where the training rows of a task came from, in words."""
        divided = ""
        if self._divided(name):
            divided = (
                f" ({name} has no training rows here: {TRAINING_SHARE} % of its calibration rows train, the others "
                "calibrate; the test rows are untouched)"
            )
        limit, rows = self.settings.training_rows, self.dataset(f"{name}/{TRAIN}")
        fewer = f", fewer than the {limit:,} asked for" if limit is not None and len(rows) < limit else ""
        return f"{name}: trained on {len(rows):,} rows of {rows.source}{divided}{fewer}"

    def reference(self, model: Model) -> str:
        return f"{model.task}/{REFERENCE}"

    def max_length(self, model: Model) -> int | None:
        return self.settings.recipe_of(model.task).max_length

    def describe(self, job: Job) -> str:
        perturbed = f"+{job.perturbation}" if job.perturbation else ""
        scaled = f", ×{job.scale:g}" if job.scale != 1 else ""
        return f"predicting {job.method.name} on {job.on}{perturbed}{scaled}, {title_of(job.model)}"

    # ── models ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        """The models of a cell, one for each seed."""
        training = METHOD_TRAININGS.get(cell.contender.method.key, PLAIN)
        backbone = self.settings.backbone_of(cell.backbone)
        allowed = [self.settings.seeds, cell.seeds, None if training is PLAIN else self.settings.trained_seeds]
        seeds = min(count for count in allowed if count is not None)
        return [(Model(backbone, cell.task, training.key, seed), seed) for seed in range(seeds)]

    def path(self, fit: Model) -> Path:
        """The directory of a model; other rows, another recipe or backbone give another one."""
        identity = json.dumps(asdict(self._job(fit).run(training_of(fit).name)), sort_keys=True)
        key = hashlib.sha256(identity.encode()).hexdigest()[:10]
        return self._directory / "models" / f"{fit.task}-{fit.method}-{fit.seed}-{key}"

    def _load(self, fit: Model) -> Checkpoint:
        return load_checkpoint(self.path(fit), kind=self.task(fit.task).kind, device=self.settings.device)

    def kept(self, name: str, fit: Model, identity: Sequence[object], compute: Callable[[], Arrays]) -> Arrays:
        """Arrays computed with a model, stored in DIR/kept; `identity` is all else that decides their values."""
        text = json.dumps([*identity, self.path(fit).name], sort_keys=True, default=asdict)
        piece = f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"
        return kept_arrays(self._arrays, piece, compute)

    def work(self, fit: Model) -> float:
        """The work of a fine-tuning, in passes over a sequence."""
        return self._step(fit) * self.steps(fit)

    def steps(self, fit: Model) -> int:
        """The optimizer steps of a model, without those of the models that it is made of."""
        return steps(training_of(fit), self._job(fit), len(members_of(fit)))

    def measured(self, fit: Model) -> Speed:
        """How fast the backbone of a model is, on rows of its task; nothing is kept."""
        with hub_access(fit.name):
            return speed(self._job(fit))

    def _step(self, fit: Model) -> float:
        """The work of an optimizer step; forward and backward together count as three passes."""
        job, task = self._job(fit), self.task(fit.task)
        batch = min(job.recipe.batch_size, len(job.train))
        return 3.0 * batch * (len(task.labels) if "choices" in HEADS[task.kind].inputs else 1)  # one for each option

    def _job(self, fit: Model) -> TrainingJob:
        rows = self.dataset(f"{fit.task}/{TRAIN}")
        settings = self.settings
        return TrainingJob(fit.name, rows, settings.recipe_of(fit.task), seed=fit.seed, device=settings.device)

    def fine_tune(self, fit: Model, advance: Callable[[float], None] = nothing) -> None:
        """Train a model, or resume; `advance` gets the finished work. A finished model is not trained again."""
        bases = members_of(fit)
        for base in bases:
            self.fine_tune(base)
        step = self._step(fit)
        with hub_access(fit.name):
            fine_tune(
                self._job(fit),
                self.path(fit),
                training_of(fit),
                bases=list(map(self.path, bases)),
                resume=True,
                advance=lambda done: advance(step * done),
            )

    def fine_tune_on(self, remote: Remote, fits: Sequence[Model]) -> None:
        """Let other machines train what is missing of some models; first what others are made of.

        A model that cannot be trained is left out: `fine_tune` then says why.
        """
        missing = [fit for fit in fits if read_finished(self.path(fit)) is None]
        for wave in ([fit for fit in missing if not members_of(fit)], [fit for fit in missing if members_of(fit)]):
            if wave:
                remote.run([partial(self._fine_tune_there, fit) for fit in wave], nothing)

    def _fine_tune_there(self, fit: Model) -> float:
        with suppress(*UNAVAILABLE):
            self.fine_tune(fit)
        return 0.0
