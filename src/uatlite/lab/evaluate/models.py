"""What an experiment runs on: its models, its jobs, and the source they come from; and the source of an evaluation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uatlite.errors import CalibrationError, ConfigurationError, DataError, MissingDependency, ModelError
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.plan import CALIBRATION, OUT_OF_SCOPE, REFERENCE, REFERENCE_ROWS, Contender, Plan
from uatlite.lab.evaluate.store import set_name
from uatlite.methods.method import Method
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.model.weights import attached
from uatlite.text.examples import example_or_reject, require_columns
from uatlite.text.rows import Reject, read_rows
from uatlite.text.schema import Task
from uatlite.text.tasks import load, sample
from uatlite.values import Dataset

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

BASE_METHOD = "base"
TRAIN = "train"


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
    """Where the models and the rows of an experiment come from; a pickle of it makes the same on another machine."""

    @property
    def label_order(self) -> tuple[str, ...] | None:
        """The task's labels in the order of the model's columns, where their names do not tell it."""

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


class GivenModels:
    """The source of an evaluation: a plain model, those trained for a method, and the sets of a plan."""

    def __init__(self, checkpoints: Sequence[Checkpoint], plan: Plan) -> None:
        self.plain, self.trained = by_method(checkpoints)
        self.plan, self.name, self.label_order = plan, self.plain.name, plan.label_order
        self.dataset = cache(self._dataset)
        self._names = [checkpoint.name for checkpoint in checkpoints]

    def __reduce__(self) -> tuple[Any, ...]:
        return load_models, (list(map(absolute, self._names)), self._names, self.plan)

    def models(self, cell: CellSpec) -> list[tuple[Model, int]]:
        method = cell.contender.method
        if method.trained and method.key not in self.trained:
            there = f" (those given are trained for {', '.join(self.trained)})" if self.trained else ""
            raise ModelError(
                f"{method.name} needs a model that was trained for it, and none was given{there}. Train one, and name "
                f"its directory beside {self.name}: uatlite train --method {method.key} --task TASK -o DIR."
            )
        model = Model(self.name, self.plan.test.task.name, method.key if method.trained else BASE_METHOD)
        return [(model, seed) for seed in range(self.plan.seeds if method.stochastic else 1)]

    def load(self, model: Model) -> Checkpoint:
        return self.trained.get(model.method, self.plain)

    def describe(self, job: Job) -> str:
        name = (job.contender or job.method).name
        return f"{name}, {job.set_name}" + (f", seed {job.seed}" if job.method.stochastic else "")

    def task(self, on: str) -> Task:
        shift = next((choice.task for choice in self.plan.shifts if choice.name == on), None)
        return shift or self.plan.test.task  # texts out of scope have its labels

    def _dataset(self, name: str) -> Dataset:
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
        test, task = self.plan.test, self.plan.test.task
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
    checkpoints = [load_checkpoint(path, kind=plan.test.task.kind, device=plan.device) for path in paths]
    return GivenModels([replace(model, name=name) for model, name in zip(checkpoints, names, strict=True)], plan)


def absolute(name: str) -> str:
    """A model's name for a process with another working directory."""
    return str(Path(name).absolute()) if Path(name).is_dir() else name


def sets_of(plan: Plan) -> list[CellSpec]:
    """The sets of a plan, as cells without a measure: the test set, perturbed test sets, shifts."""
    test = CellSpec(measure="", task=plan.test.task.name, on=plan.test.name, home=plan.test.name)
    perturbed = [replace(test, perturbation=perturbation) for perturbation in plan.perturbations]
    return [test, *perturbed, *(replace(test, on=choice.name) for choice in plan.shifts)]


def outside_texts(plan: Plan) -> Dataset:
    """The texts out of scope of a plan, without labels, as a data set of the task under test."""
    assert plan.out_of_scope is not None
    task, split = plan.out_of_scope.task, plan.out_of_scope.split
    if task.path is not None and task.layout.label is None:
        examples, source = [], str(task.path)
        for row in require_columns(read_rows(task.path), task.layout, with_label=False):
            example = example_or_reject(row, task.layout, None, unnamed=f"{row.file}:{row.line}")
            if isinstance(example, Reject):
                raise example.as_error()
            examples.append(example)
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


@contextmanager
def rescaled_embeddings(model: "PreTrainedModel", factor: float) -> Iterator[None]:
    """Within the block the model's word embeddings are e_j ← c·e_j; positions and segments stay as they are.

    The weights are not touched: a hook on the embedding's output multiplies, and is removed also after an error.
    """
    if not factor > 0:
        raise ConfigurationError(f"factor={factor} is not above 0.")

    def scale(module: object, args: object, output: "Tensor") -> "Tensor":
        return output * factor

    hook = None if factor == 1 else model.get_input_embeddings().register_forward_hook(scale)
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()
