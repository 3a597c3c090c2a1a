"""The settings, the progress and the result of a fine-tuning, on disk beside its weights.

DIR/model.safetensors, config.json, tokenizer.json …   the classifier, as transformers saves it
    uatlite-method.safetensors                         the weights of a method that has some
    uatlite-training.json                              the `TrainingRecord`, written last
    checkpoints/                                       to resume from; removed at the end of the run
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError
from uatlite.lab.train.recipe import Recipe
from uatlite.text.pieces import Pieces, read_record, write_record
from uatlite.values import Dataset

RECORD = "uatlite-training.json"
CHECKPOINTS = "checkpoints"
PACKAGES = ("uatlite", "torch", "transformers")


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
    """how the method was trained, with every setting (`MethodTraining.identity`)"""

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

    def describe(self) -> str:
        """One line for a person."""
        nll = "" if self.validation_nll is None else f", validation NLL {self.validation_nll:.4f}"
        return (
            f"{self.steps:,} steps over {self.rows:,} rows in {self.seconds:.0f} s, "
            f"training loss {self.train_loss:.4f}{nll}"
        )


def begin(directory: Path, run: TrainingRun, *, resume: bool) -> bool:
    """Start a run, or with `resume` continue it; returns whether there is a run to continue.

    Without `resume` the checkpoints of an earlier run are removed; with it, checkpoints of another run are an error.
    """
    pieces = _checkpoints(directory)
    if resume and pieces.begun:
        if differs := pieces.differences(asdict(run)):
            raise ConfigurationError(
                f"{directory} holds a run with another {', '.join(differs)}; resume with the settings that it was "
                "begun with, or train into another directory."
            )
        return True
    pieces.remove()
    pieces.begin(asdict(run))
    return False


def finish(directory: Path, record: TrainingRecord) -> None:
    """Write the record and remove the checkpoints."""
    write_record(directory / RECORD, asdict(record) | {"versions": {name: version(name) for name in PACKAGES}})
    _checkpoints(directory).remove()


def read_finished(directory: str | Path) -> TrainingRecord | None:
    """The record of the finished run in a directory; a broken or older record counts as none."""
    values = read_record(Path(directory) / RECORD) or {}
    values.pop("versions", None)
    try:
        run = TrainingRun(**values["run"])
        recipe = Recipe(**run.recipe).to_dict()  # a record from before a setting existed has its default
        return TrainingRecord(**values | {"run": replace(run, recipe=recipe)})
    except (KeyError, TypeError, ConfigurationError):
        return None


def finished(directory: str | Path, run: TrainingRun) -> TrainingRecord | None:
    """The record of this run, if the directory holds its result."""
    found = read_finished(directory)
    return found if found is not None and found.run == run else None


def _checkpoints(directory: Path) -> Pieces:
    return Pieces(directory / CHECKPOINTS, record="run.json")


@dataclass(frozen=True)
class Step:
    """The run after `done` of `total` optimizer steps; `loss` is the mean over the steps since the last report."""

    done: int
    total: int
    loss: float | None = None
    validation_nll: float | None = None


Report = Callable[[Step], None]


def step_counter(advance: Callable[[float], None]) -> Report:
    """A report that advances a progress bar by the steps since the last one."""
    done = 0

    def report(step: Step) -> None:
        nonlocal done
        advance(step.done - done)
        done = step.done

    return report
