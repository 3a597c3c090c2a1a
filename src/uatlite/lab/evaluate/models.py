"""The models and rows of `uatlite evaluate`: a plain model, those trained for a method, and the sets of a plan."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from uatlite.errors import CalibrationError, ConfigurationError, DataError, MissingDependency, ModelError
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.plan import CALIBRATION, OUT_OF_SCOPE, Plan
from uatlite.lab.evaluate.runs import BASE_METHOD, Job, Model, Source
from uatlite.lab.evaluate.scope import REFERENCE, REFERENCE_ROWS
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.weights import attached
from uatlite.text.examples import read_examples
from uatlite.text.rows import Reject
from uatlite.text.schema import Task
from uatlite.text.tasks import load, sample
from uatlite.values import Dataset, Example

TRAIN = "train"


def sets_of(plan: Plan) -> list[CellSpec]:
    """The sets of a plan, as cells without a measure: the test set, perturbed test sets, shifts."""
    test = CellSpec(measure="", task=plan.test.task.name, on=plan.test.name, home=plan.test.name)
    perturbed = [replace(test, perturbation=perturbation) for perturbation in plan.perturbations]
    return [test, *perturbed, *(replace(test, on=choice.name) for choice in plan.shifts)]


class Sets:
    """A model of a plan, and the sets of the plan, each read once."""

    def __init__(self, plan: Plan, name: str, hash: str) -> None:
        self.plan, self.name, self.hash = plan, name, hash
        self.label_order = plan.label_order
        self._sets: dict[str, Dataset] = {}

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        method = cell.contender.method
        trained = method.key if method.trained else BASE_METHOD
        return [(Model(self.name, self.plan.test.task.name, trained), seed) for seed in self.plan.seeds_of(method)]

    def describe(self, job: Job) -> str:
        name = (job.contender or job.method).name
        return f"{name}, {job.set_name}" + (f", seed {job.seed}" if job.method.stochastic else "")

    def task(self, on: str) -> Task:
        shift = next((choice.task for choice in self.plan.shifts if choice.name == on), None)
        return shift or self.plan.test.task  # texts out of scope have its labels

    def dataset(self, name: str) -> Dataset:
        if name not in self._sets:
            self._sets[name] = self._load(name)
        return self._sets[name]

    def _load(self, name: str) -> Dataset:
        plan, (_, _, split) = self.plan, name.partition("/")
        if name == plan.outside_name:
            return outside_texts(plan)
        if split == REFERENCE:
            rows = min(REFERENCE_ROWS, plan.limit or REFERENCE_ROWS)
            return load(plan.test.task, TRAIN, plan.data_dir, limit=rows).in_scope()
        return load(self.task(name), split, plan.data_dir, limit=plan.limit)

    def max_length(self, model: Model) -> int | None:
        return self.plan.max_length

    def reference(self, model: Model) -> str | None:
        task, test = self.plan.test.task, self.plan.test
        if CALIBRATION not in task.splits:
            raise CalibrationError(f"{task.name} has no calibration split")
        if test.split == CALIBRATION:
            raise CalibrationError(f"{task.name}/{CALIBRATION} is the set under test")
        name = f"{task.name}/{REFERENCE}"
        if TRAIN in task.splits and test.split != TRAIN:
            try:
                return name if len(self.dataset(name)) else None
            except (DataError, MissingDependency):
                pass
        return None


class GivenModels(Sets):
    """The source of an evaluation of one class a text: a plain model, and those trained for a method."""

    def __init__(self, checkpoints: Sequence[Checkpoint], plan: Plan) -> None:
        self.plain, self.trained = by_method(checkpoints)
        super().__init__(plan, self.plain.name, self.plain.hash)
        self._names = [checkpoint.name for checkpoint in checkpoints]

    @property
    def elsewhere(self) -> Callable[[], Source]:
        return partial(load_models, list(map(absolute, self._names)), self._names, self.plan)

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        method = cell.contender.method
        if method.trained and method.key not in self.trained:
            there = f" (those given are trained for {', '.join(self.trained)})" if self.trained else ""
            raise ModelError(
                f"{method.name} needs a model that was trained for it, and none was given{there}. Train one, and name "
                f"its directory beside {self.name}: uatlite train --method {method.key} --task TASK -o DIR."
            )
        return super().models(cell)

    def load(self, model: Model) -> Checkpoint:
        return self.trained.get(model.method, self.plain)


def by_method(checkpoints: Sequence[Checkpoint]) -> tuple[Checkpoint, dict[str, Checkpoint]]:
    """The plain model, which is trained for no method (without such a model the first one); method -> its model."""
    trained: dict[str, Checkpoint] = {}
    plain: list[Checkpoint] = []
    for checkpoint in checkpoints:
        weights = attached(checkpoint.model)
        if weights is None:
            plain.append(checkpoint)
        elif weights.method in trained:
            raise ConfigurationError(
                f"{trained[weights.method].name} and {checkpoint.name} are both trained for {weights.method}; "
                "evaluate one of them at a time."
            )
        else:
            trained[weights.method] = checkpoint
    if len(plain) > 1:
        names = ", ".join(checkpoint.name for checkpoint in plain)
        raise ConfigurationError(
            f"{names} are all plain models, and every method would run on the first. Give one of them, and beside "
            "it models that were trained for a method; or evaluate each by itself."
        )
    return (plain or list(checkpoints))[0], trained


def load_models(paths: Sequence[str], names: Sequence[str], plan: Plan) -> GivenModels:
    """The source of an evaluation on another machine that sees the same files."""
    checkpoints = [load_checkpoint(path, kind=plan.test.task.kind) for path in paths]
    return GivenModels([replace(model, name=name) for model, name in zip(checkpoints, names, strict=True)], plan)


def absolute(name: str) -> str:
    """A model's name for a process with another working directory."""
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def outside_texts(plan: Plan) -> Dataset:
    """The texts out of scope of a plan, without labels, as a data set of the task under test."""
    assert plan.out_of_scope is not None
    task, split = plan.out_of_scope.task, plan.out_of_scope.split
    if task.path is not None and task.layout.label is None:
        examples, source = list(map(_usable, read_examples(task.path, task.layout))), str(task.path)
    else:
        data = load(task, split, plan.data_dir)
        examples, source = list(data.examples), data.source
        if data.out_of_scope is not None:
            examples = [example for example in examples if example.label == data.out_of_scope]
            source += f", rows labelled {task.out_of_scope}"
    if not examples:
        raise DataError(f"--out-of-scope: {source} holds no text; give a file or a split with texts out of scope.")
    chosen = sample([replace(example, label=None) for example in examples], plan.limit)
    return Dataset(task.name, OUT_OF_SCOPE, plan.test.task.labels, tuple(chosen), source)


def _usable(row: Example | Reject) -> Example:
    if isinstance(row, Reject):
        raise DataError(f"{row.file}, line {row.line}: {row.reason}.")
    return row
