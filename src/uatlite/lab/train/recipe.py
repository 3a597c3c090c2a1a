"""How a classifier is fine-tuned: the recipe, whose defaults are the paper's, what a method changes, and the record.

DIR/model.safetensors, config.json, tokenizer.json …   the classifier, as transformers saves it
    uatlite-method.safetensors                         the weights of a method that has some
    uatlite-training.json                              the `TrainingRecord`, written last
    checkpoints/                                       to resume from; removed at the end of the run
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor
from transformers import PreTrainedModel

from uatlite.codec import load
from uatlite.errors import ConfigurationError, StoreError, check_choice
from uatlite.lab.train.dataset import kind_of
from uatlite.model.architectures import HEADS
from uatlite.spelling import change, spelling
from uatlite.text.write import read_record
from uatlite.values import Dataset, Kind


def _check(name: str, value: object, allowed: bool, what: str) -> None:
    if not allowed:
        raise ConfigurationError(f"Recipe({name}={value!r}) is not allowed: {what}.")


PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW with linear warm-up and linear decay to 0 over the whole run.

    Sequences are padded to the longest of their batch; `group_by_length` draws batches of similar length, which saves
    padding but makes batches less random. `precision` is that of the matrix products: bf16 halves the time on
    processors and GPUs that have it. Weights, gradients and the optimizer stay in fp32.
    """

    learning_rate: float = 2e-5
    warmup_steps: int = 500
    batch_size: int = 16
    epochs: int = 3
    weight_decay: float = 0.01
    clip: float = 1.0
    max_length: int | None = None
    group_by_length: bool = False
    precision: str = "fp32"

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0")
        _check("warmup_steps", self.warmup_steps, self.warmup_steps >= 0, "0 or more")
        _check("batch_size", self.batch_size, self.batch_size >= 1, "1 or more")
        _check("epochs", self.epochs, self.epochs >= 1, "1 or more")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        _check("clip", self.clip, self.clip > 0, "above 0; a large number clips nothing")
        _check("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "8 or more, or None")
        check_choice("precision", self.precision, PRECISIONS)

    def steps(self, rows: int) -> int:
        """Optimizer steps of a whole run over `rows` rows, on one device."""
        return self.epochs * -(-rows // self.batch_size)


_DECLARED = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8"))
CHANGES: dict[str, dict[str, dict[str, Any]]] = {name: values.pop("tasks", {}) for name, values in _DECLARED.items()}
"""recipe -> task -> what is different there"""
RECIPES = {name: Recipe(**values) for name, values in _DECLARED.items()}
DEMO = RECIPES["demo"]


def recipe_for(name: str, task: str | None = None) -> Recipe:
    """The recipe of a name, for a task of the catalogue or for any rows."""
    check_choice("recipe", name, RECIPES)
    return replace(RECIPES[name], **CHANGES[name].get(task or "", {}))


Batches = Callable[[], Iterator[dict[str, Tensor]]]
"""Returns all training rows in padded batches with `labels`."""


@dataclass(frozen=True)
class MethodTraining:
    """The plain fine-tuning. A subclass is the training of a method: it overrides steps, and its fields are settings.

    It keeps no state outside the model: a run is resumed from the model, the optimizer and the number of the step.
    """

    key: ClassVar[str] = "base"
    from_plain: ClassVar[bool] = False
    """Whether the method is built from plainly trained models, so that a finished one can be used."""
    kinds: ClassVar[tuple[Kind, ...]] = tuple(HEADS)
    """The kinds of answers that the method can be trained for."""

    @property
    def name(self) -> str:
        """The short spelling, as in 'swag:rank=20': only settings that are not the default."""
        return spelling(self.key, self, type(self)())

    @property
    def identity(self) -> str:
        """The spelling with every setting, also defaults: a run stays the same when a default changes."""
        return spelling(self.key, self)

    @property
    def fine_tunings(self) -> int:
        """How many models are fine-tuned, each with its own seed."""
        return 1

    @property
    def copies(self) -> int:
        """How many times the weights of a model are kept."""
        return self.fine_tunings

    def changed(self, **settings: str) -> Self:
        """A copy with some settings replaced; values as spelt on a command line."""
        return change(self, settings, f"the training of {self.key}")

    def check_positive(self, *names: str) -> None:
        """Raise unless these settings are above 0."""
        for name in names:
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{self.key}: {name}={getattr(self, name)} is not above 0.")

    def check(self, job: "TrainingJob") -> None:
        """Raise unless the method can be trained by the recipe of a job, on rows of its kind."""
        kind = kind_of(job.train)
        if kind not in self.kinds:
            allowed = " and ".join(self.kinds)
            raise ConfigurationError(
                f"{self.key} cannot be trained on the kind {kind!r}, only on {allowed}; use base or ensemble."
            )

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        """Change the new model before the first step: another head, buffers to collect weights in."""

    def penalty(self, model: PreTrainedModel, rows: int) -> Tensor | float:
        """A term added to the training loss of a batch; `rows` is the size of the whole training set."""
        return 0.0

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        """Parameters with their own optimizer settings: `params`, and `lr` or `weight_decay` or both."""
        return []

    def schedule(self, step: int, warmup: int, total: int) -> float:
        """The learning rate after `step` steps, as a share of the recipe's: up over the warm-up, then down to 0."""
        return step / warmup if step < warmup else (total - step) / max(1, total - warmup)

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        """Called before the first step, with 0, and after every step of the optimizer."""

    def finish(self, model: PreTrainedModel, batches: Batches, others: Sequence[PreTrainedModel] = ()) -> None:
        """Turn the trained model, in evaluation mode, into what is saved, with the method's weights attached.

        `others` are further fine-tunings, where the method is made of several.
        """


PLAIN = MethodTraining()


RECORD = "uatlite-training.json"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class TrainingJob:
    """A backbone ('minilm', a directory, a hub id), rows and settings: what is the same for all methods.

    A checkpoint is kept every `checkpoint_steps` steps, or after every epoch. All runs on one device.
    """

    backbone: str | Path
    train: Dataset
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 0
    """decides the new head, the order of rows and dropout"""
    checkpoint_steps: int | None = None
    device: str = "auto"

    def run(self, method: str = "base") -> "TrainingRun":
        """The run that trains a method; `method` is its identity."""
        return TrainingRun(str(self.backbone), self.train.fingerprint, self.recipe, self.seed, method)


@dataclass(frozen=True)
class TrainingRun:
    """All that decides the weights of a fine-tuning: a run is resumed only as the same run."""

    backbone: str
    train: str
    """`Dataset.fingerprint` of the training rows"""
    recipe: Recipe
    seed: int
    method: str = "base"
    """how the method was trained, with every setting (`MethodTraining.identity`)"""


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
    versions: dict[str, str] = field(
        default_factory=lambda: {name: version(name) for name in ("uatlite", "torch", "transformers")}, compare=False
    )

    def describe(self) -> str:
        """One line for a person."""
        return (
            f"{self.steps:,} steps over {self.rows:,} rows in {self.seconds:.0f} s, training loss {self.train_loss:.4f}"
        )


def read_finished(directory: str | Path) -> TrainingRecord | None:
    """The record of the finished run in a directory; a broken one counts as none."""
    try:
        return load(TrainingRecord, _without_stopping(read_record(Path(directory) / RECORD)), advice="train again")
    except StoreError:
        return None


def _without_stopping(state: Any) -> Any:
    """A record from before early stopping went, without its fields; a run that did stop early keeps its `patience`."""
    if not isinstance(state, Mapping):
        return state
    empty = {name for name in ("patience", "validation") if state.get(name) is None} | {"validation_nll"}
    return {name: _without_stopping(value) for name, value in state.items() if name not in empty}


def finished(directory: str | Path, run: TrainingRun) -> TrainingRecord | None:
    """The record of this run, if the directory holds its result."""
    record = read_finished(directory)
    return record if record is not None and record.run == run else None
