"""The models of a reproduction, shared by all tables: one for each backbone, task, trained method and seed.

DIR/models/TASK-METHOD-SEED-KEY/    a classifier and the record of its training

KEY is a hash of everything that decides the weights.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import Tensor, nn
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.lab.paper.datasets import Datasets
from uatlite.lab.paper.settings import ReproductionSettings
from uatlite.lab.train.methods import METHOD_TRAININGS, steps, train_method
from uatlite.lab.train.recipe import PLAIN, MethodTraining, TrainingJob, read_finished, step_counter
from uatlite.model.load import Checkpoint, load_checkpoint
from uatlite.text.hub import hub_access
from uatlite.text.schema import Task


@dataclass(frozen=True)
class FineTuning:
    """What a model is fine-tuned from, on and for. `method` is 'base' unless the method has a training of its own."""

    backbone: str
    task: str
    method: str
    seed: int

    @property
    def plain(self) -> "FineTuning":
        """The plain fine-tuning of the same backbone, task and seed, which some methods begin with."""
        return replace(self, method=PLAIN.key)

    @property
    def members(self) -> list["FineTuning"]:
        """The plain fine-tunings that the model is made of, which other cells use too: of this seed and the next."""
        count = self.training.fine_tunings if self.training.from_plain else 0
        return [replace(self.plain, seed=self.seed + number) for number in range(count)]

    @property
    def title(self) -> str:
        method = "" if self.method == PLAIN.key else f", {self.method}"
        return f"{Path(self.backbone).name} on {self.task}{method}, seed {self.seed}"

    @property
    def training(self) -> MethodTraining:
        """How the method is trained."""
        return METHOD_TRAININGS.get(self.method, PLAIN)


class ModelDirectory:
    """A directory of fine-tuned models."""

    def __init__(self, directory: Path, datasets: Datasets, settings: ReproductionSettings) -> None:
        self._directory = directory
        self._datasets = datasets
        self._settings = settings
        self._loaded: tuple[FineTuning, Checkpoint] | None = None

    def path(self, fit: FineTuning) -> Path:
        """The directory of a model; other rows, another recipe or backbone give another one."""
        identity = json.dumps(asdict(self._job(fit).run(fit.training.name)), sort_keys=True)
        key = hashlib.sha256(identity.encode()).hexdigest()[:10]
        return self._directory / f"{fit.task}-{fit.method}-{fit.seed}-{key}"

    def work(self, fit: FineTuning) -> float:
        """The work of a fine-tuning, in passes over a sequence; a forward and backward step counts as three."""
        data = self._datasets.task(fit.task)
        batch = min(self._settings.recipe_of(fit.task).batch_size, len(data.train))
        return 3.0 * self._steps(fit) * batch * sequences(data.task)

    def finished(self, fit: FineTuning) -> bool:
        """Whether a model is there already."""
        return read_finished(self.path(fit)) is not None

    def fine_tune(self, fit: FineTuning, advance: Callable[[float], None]) -> None:
        """Train a model, or resume; `advance` gets the finished work. A finished model is not trained again."""
        for member in fit.members:
            self.fine_tune(member, lambda work: None)
        whole, done = self.work(fit), 0.0
        work_of_step = whole / max(1, self._steps(fit))

        def count(steps: float) -> None:
            nonlocal done
            done += work_of_step * steps
            advance(work_of_step * steps)

        with hub_access(fit.backbone):
            train_method(
                fit.training,
                self._job(fit),
                self.path(fit),
                bases=[self.path(member) for member in fit.members],
                resume=True,
                report=step_counter(count),
            )
        advance(whole - done)

    def load(self, fit: FineTuning) -> Checkpoint:
        """A trained model; the last one stays in memory."""
        if self._loaded is None or self._loaded[0] != fit:
            self._loaded = fit, load_checkpoint(self.path(fit), kind=self._datasets.task(fit.task).task.kind)
        return self._loaded[1]

    def _steps(self, fit: FineTuning) -> int:
        return steps(fit.training, self._job(fit), len(fit.members))

    def _job(self, fit: FineTuning) -> TrainingJob:
        train = self._datasets.task(fit.task).train
        return TrainingJob(fit.backbone, train, recipe=self._settings.recipe_of(fit.task), seed=fit.seed)


def sequences(task: Task) -> int:
    """Sequences of a row: one, or one for each option of a multiple-choice question."""
    return len(task.labels) if task.kind == "choice" else 1


@contextmanager
def rescaled_embeddings(model: PreTrainedModel, factor: float) -> Iterator[None]:
    """Within the block the model's word embeddings are e_j ← c·e_j; positions and segments stay as they are.

    The weights are not touched: a hook on the embedding's output multiplies, and is removed also after an error.
    """
    if not factor > 0:
        raise ConfigurationError(f"factor={factor} is not above 0.")

    def scale(module: nn.Module, args: object, output: Tensor) -> Tensor:
        return output * factor

    hook = None if factor == 1 else model.get_input_embeddings().register_forward_hook(scale)
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()
