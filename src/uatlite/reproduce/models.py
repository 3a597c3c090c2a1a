"""The fine-tunings that tables share: one for each backbone, task, method with weights of its own, and seed.

DIR/models/TASK-METHOD-SEED-KEY/    the classifier and the record of its run; the key is of all that decides its weights
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from uatlite.backbone.loading import Checkpoint, load_checkpoint
from uatlite.data.schema import Task
from uatlite.reproduce.rows import Supplies
from uatlite.reproduce.settings import Settings
from uatlite.training.fitting import PLAIN, Fitting
from uatlite.training.methods import FITTINGS, Job, steps, train_method
from uatlite.training.progress import Report
from uatlite.training.runs import finished


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
        return cls(backbone, task, method if method in FITTINGS else PLAIN.key, seed)

    @property
    def plain(self) -> "Fit":
        """The plain fine-tuning with these settings, which a method may have as a part."""
        return replace(self, method=PLAIN.key)

    @property
    def title(self) -> str:
        method = "" if self.method == PLAIN.key else f", {self.method}"
        return f"{Path(self.backbone).name} on {self.task}{method}, seed {self.seed}"


class Models:
    """A directory of fitted models."""

    def __init__(self, directory: Path, supplies: Supplies, settings: Settings) -> None:
        self._directory = directory
        self._supplies = supplies
        self._settings = settings
        self._loaded: tuple[Fit, Checkpoint] | None = None

    def home(self, fit: Fit) -> Path:
        """Where the model of a fit lies: other rows, another recipe or backbone is another directory."""
        about = json.dumps(asdict(self._job(fit).run(_fitting(fit).name)), sort_keys=True)
        key = hashlib.sha256(about.encode()).hexdigest()[:10]
        return self._directory / f"{fit.task}-{fit.method}-{fit.seed}-{key}"

    def steps(self, fit: Fit) -> int:
        """Optimizer steps that fitting reports."""
        return steps(_fitting(fit), self._job(fit))

    def sequences(self, fit: Fit) -> int:
        """Sequences that go through the model while it is fitted, all epochs and members together."""
        supply = self._supplies.of(fit.task)
        return self.steps(fit) * min(self._settings.recipe.batch_size, len(supply.train)) * sequences(supply.task)

    def fit(self, fit: Fit, report: Report) -> None:
        """Fit a model unless it is there; one that was interrupted goes on from its last checkpoint."""
        base = self.home(fit.plain)
        has_base = fit != fit.plain and finished(base, self._job(fit).run(PLAIN.identity)) is not None
        usable = has_base and (fit.method == "ensemble" or _fitting(fit).after_training)
        train_method(
            _fitting(fit), self._job(fit), self.home(fit), base=base if usable else None, resume=True, report=report
        )

    def load(self, fit: Fit) -> Checkpoint:
        """The fitted model; the last one is kept in memory."""
        if self._loaded is None or self._loaded[0] != fit:
            self._loaded = fit, load_checkpoint(self.home(fit), kind=self._supplies.of(fit.task).task.kind)
        return self._loaded[1]

    def _job(self, fit: Fit) -> Job:
        train = self._supplies.of(fit.task).train
        return Job(fit.backbone, train, recipe=self._settings.recipe, seed=fit.seed)


def sequences(task: Task) -> int:
    """What a row of a task is to a model: a question with options is a sequence for each of them."""
    return len(task.labels) if task.kind == "choice" else 1


def _fitting(fit: Fit) -> Fitting:
    return FITTINGS.get(fit.method, PLAIN)
