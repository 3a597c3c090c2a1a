"""What a fine-tuning is and how it went, written beside its weights.

DIR/model.safetensors, config.json, tokenizer.json …   the classifier, as transformers saves it
    uatlite-method.safetensors                         the weights of a method that has some
    uatlite-training.json                              what it was trained from and on; written last
    checkpoints/                                       while the run goes on, to resume from; removed at its end
"""

import json
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from uatlite.data.writing import atomic_file
from uatlite.errors import ConfigurationError, DataError
from uatlite.training.recipe import Recipe
from uatlite.values import Dataset

RECORD = "uatlite-training.json"
CHECKPOINTS = "checkpoints"
PACKAGES = ("uatlite", "torch", "transformers")
_BEGUN = "run.json"


@dataclass(frozen=True)
class Run:
    """All that decides the weights of a fine-tuning: a run is resumed only as the same run."""

    backbone: str
    train: str
    """`Dataset.fingerprint` of the training rows"""
    validation: str | None
    """that of the validation rows, where they decide when to stop"""
    recipe: dict[str, Any]
    seed: int
    method: str = "base"
    """how the method was fitted, every setting spelt (`Fitting.identity`)"""

    @classmethod
    def of(
        cls,
        backbone: str | Path,
        train: Dataset,
        validation: Dataset | None,
        recipe: Recipe,
        seed: int,
        method: str = "base",
    ) -> "Run":
        """The run of these settings."""
        if recipe.patience is not None and validation is None:
            raise ConfigurationError(f"patience={recipe.patience} needs validation rows to watch; give some, or None.")
        watched = validation.fingerprint if validation is not None and recipe.patience is not None else None
        return cls(str(backbone), train.fingerprint, watched, recipe.to_dict(), seed, method)


@dataclass(frozen=True)
class Trained:
    """A finished fine-tuning."""

    run: Run
    rows: int
    source: str
    """in words, where the training rows came from"""
    steps: int
    seconds: float
    train_loss: float
    validation_nll: float | None
    """of the weights that were kept, where validation rows were given"""


def begin(directory: Path, run: Run) -> None:
    """Make room for a new run's checkpoints; those of another one are removed."""
    home = directory / CHECKPOINTS
    shutil.rmtree(home, ignore_errors=True)
    try:
        home.mkdir(parents=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {error.strerror}.") from error
    (home / _BEGUN).write_text(json.dumps(asdict(run)), encoding="utf-8")


def is_begun(directory: Path, run: Run) -> bool:
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


def finish(directory: Path, trained: Trained) -> None:
    """Write the record and remove the checkpoints."""
    versions = {"versions": {package: version(package) for package in PACKAGES}}
    with atomic_file(directory / RECORD) as file:
        file.write(json.dumps(asdict(trained) | versions, indent=2, ensure_ascii=False).encode())
    shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)


def finished(directory: str | Path, run: Run) -> Trained | None:
    """The record of this very run, if the directory holds its result."""
    record = Path(directory) / RECORD
    if not record.is_file():
        return None
    try:
        values = json.loads(record.read_text(encoding="utf-8"))
        del values["versions"]
        found = Trained(**values | {"run": Run(**values["run"])})
    except (ValueError, KeyError, TypeError):
        return None  # a record of another version or a broken one: as good as none
    return found if found.run == run else None
