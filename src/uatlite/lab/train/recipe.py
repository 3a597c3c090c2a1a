"""How a classifier is fine-tuned: plain values. The defaults are the paper's.

What a fine-tuning is and how it went, written beside its weights.

DIR/model.safetensors, config.json, tokenizer.json …   the classifier, as transformers saves it
    uatlite-method.safetensors                         the weights of a method that has some
    uatlite-training.json                              what it was trained from and on; written last
    checkpoints/                                       while the run goes on, to resume from; removed at its end

What a method changes about a fine-tuning; all else is the recipe's.

None of it may keep state outside the model: a run is resumed from the model, the optimizer and the number of the step.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, DataError
from uatlite.passes.config import change_fields, spell_fields
from uatlite.text.write import atomic_file
from uatlite.values import Dataset


def _check(name: str, value: object, allowed: bool, what: str) -> None:
    if not allowed:
        raise ConfigurationError(f"Recipe({name}={value!r}) is not allowed: {what}.")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW with linear warm-up and linear decay to 0 over the whole run.

    `patience` stops after that many epochs in a row without a better NLL on the validation rows, and keeps the
    weights of the best epoch; None trains all epochs and keeps the last. Sequences are padded to the longest of their
    batch; `group_by_length` draws batches of like length, which saves padding and makes batches a little less random.
    """

    learning_rate: float = 2e-5
    warmup_steps: int = 500
    batch_size: int = 16
    epochs: int = 3
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int | None = None
    max_length: int | None = None
    group_by_length: bool = False

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0")
        _check("warmup_steps", self.warmup_steps, self.warmup_steps >= 0, "0 or more")
        _check("batch_size", self.batch_size, self.batch_size >= 1, "1 or more")
        _check("epochs", self.epochs, self.epochs >= 1, "1 or more")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        _check("clip", self.clip, self.clip > 0, "above 0; a large number clips nothing")
        _check("patience", self.patience, self.patience is None or self.patience >= 1, "1 or more, or None")
        _check("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "8 or more, or None")

    def steps(self, rows: int) -> int:
        """Optimizer steps of the whole run over so many rows, on one device."""
        return self.epochs * -(-rows // self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


# 2e-5 and 500 warm-up steps are for tens of thousands of rows; over the demo's few thousand they would leave the
# model where it began. Short sequences, batches of like length and one epoch are what two cores do in two minutes.
DEMO = Recipe(learning_rate=2e-4, warmup_steps=10, batch_size=32, epochs=1, max_length=64, group_by_length=True)

# A few thousand rows on a small backbone, for a first look at a table.
FEW_ROWS = Recipe(learning_rate=3e-4, warmup_steps=20, batch_size=32, epochs=3, max_length=128, group_by_length=True)

RECIPES: dict[str, Recipe] = {"paper": Recipe(), "demo": DEMO, "few-rows": FEW_ROWS}


RECORD = "uatlite-training.json"
CHECKPOINTS = "checkpoints"
PACKAGES = ("uatlite", "torch", "transformers")
_BEGUN = "run.json"


@dataclass(frozen=True)
class TrainingRun:
    """All that decides the weights of a fine-tuning: a run is resumed only as the same run."""

    backbone: str
    train: str
    """`Dataset.fingerprint` of the training rows"""
    validation: str | None
    """that of the validation rows, where they decide when to stop"""
    recipe: dict[str, Any]
    seed: int
    method: str = "base"
    """how the method was fitted, every setting spelt (`MethodTraining.identity`)"""

    @classmethod
    def of(
        cls,
        backbone: str | Path,
        train: Dataset,
        validation: Dataset | None,
        recipe: Recipe,
        seed: int,
        method: str = "base",
    ) -> "TrainingRun":
        """The run of these settings."""
        if recipe.patience is not None and validation is None:
            raise ConfigurationError(f"patience={recipe.patience} needs validation rows to watch; give some, or None.")
        watched = validation.fingerprint if validation is not None and recipe.patience is not None else None
        return cls(str(backbone), train.fingerprint, watched, recipe.to_dict(), seed, method)


@dataclass(frozen=True)
class TrainingRecord:
    """A finished fine-tuning."""

    run: TrainingRun
    rows: int
    source: str
    """in words, where the training rows came from"""
    steps: int
    seconds: float
    train_loss: float
    validation_nll: float | None
    """of the weights that were kept, where validation rows were given"""


def begin(directory: Path, run: TrainingRun) -> None:
    """Make room for a new run's checkpoints; those of another one are removed."""
    home = directory / CHECKPOINTS
    shutil.rmtree(home, ignore_errors=True)
    try:
        home.mkdir(parents=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {error.strerror}.") from error
    (home / _BEGUN).write_text(json.dumps(asdict(run)), encoding="utf-8")


def is_begun(directory: Path, run: TrainingRun) -> bool:
    """Whether the directory holds checkpoints of this run; those of another one are an error."""
    note = directory / CHECKPOINTS / _BEGUN
    if not note.is_file():
        return False
    begun = json.loads(note.read_text(encoding="utf-8"))
    if differs := [name for name, value in asdict(run).items() if begun.get(name) != value]:
        raise ConfigurationError(
            f"{directory} holds a run with another {', '.join(differs)}; resume with the settings that it was begun "
            "with, or train into another directory."
        )
    return True


def finish(directory: Path, trained: TrainingRecord) -> None:
    """Write the record and remove the checkpoints."""
    versions = {"versions": {package: version(package) for package in PACKAGES}}
    with atomic_file(directory / RECORD) as file:
        file.write(json.dumps(asdict(trained) | versions, indent=2, ensure_ascii=False).encode())
    shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)


def finished(directory: str | Path, run: TrainingRun) -> TrainingRecord | None:
    """The record of this very run, if the directory holds its result."""
    record = Path(directory) / RECORD
    if not record.is_file():
        return None
    try:
        values = json.loads(record.read_text(encoding="utf-8"))
        del values["versions"]
        found = TrainingRecord(**values | {"run": TrainingRun(**values["run"])})
    except (ValueError, KeyError, TypeError):
        return None  # a record of another version or a broken one: as good as none
    return found if found.run == run else None


Batches = Callable[[], Iterator[dict[str, Tensor]]]
"""The training rows from the first on, in padded batches with `labels`."""


@dataclass(frozen=True)
class MethodTraining:
    """The plain fine-tuning. A method of its own overrides what it does otherwise, and its fields are settings."""

    key: ClassVar[str] = "base"
    after_training: ClassVar[bool] = False
    """Whether it only adds to a model that was trained plainly."""

    @property
    def name(self) -> str:
        """The canonical spelling, as in 'swag:rank=20'."""
        settings = spell_fields(self)
        return f"{self.key}:{settings}" if settings else self.key

    @property
    def identity(self) -> str:
        """The spelling with every setting, defaults too: a run stays what it was when a default changes."""
        settings = spell_fields(self, all_of_them=True)
        return f"{self.key}:{settings}" if settings else self.key

    def changed(self, **settings: str) -> Self:
        """The same with some settings replaced, their values as spelt on a command line."""
        return change_fields(self, settings, f"the training of {self.key}")

    def check(self, recipe: Recipe) -> None:
        """Raise where a recipe cannot be followed."""

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        """Change the new model before the first step: another head, room to collect in."""

    def penalty(self, model: PreTrainedModel, rows: int) -> Tensor | None:
        """What is added to the training loss of a batch; `rows` are those of the whole training set."""
        return None

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        """Parameters with settings of their own for the optimizer: `params`, and `lr` or `weight_decay` or both."""
        return []

    def schedule(self, step: int, warmup: int, total: int) -> float | None:
        """The learning rate after so many steps, as a share of the recipe's; None for its own schedule."""
        return None

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        """Called before the first step, with 0, and after every step of the optimizer."""

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        """Make the trained model what is saved, with its method weights attached; it is in evaluation mode."""


PLAIN = MethodTraining()


def refuse_patience(training: MethodTraining, recipe: Recipe) -> None:
    """Raise where a run may end early whose last part is what a method is made of."""
    if recipe.patience is not None:
        raise ConfigurationError(
            f"{training.key} is made of the last part of a run, which a patience of {recipe.patience} may cut off; "
            "train it without one."
        )
