"""How a classifier is fine-tuned: the recipe, whose defaults are the paper's, and what a method changes about it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError, check_choice
from uatlite.spelling import change, differences, spelling
from uatlite.values import Kind


def _check(name: str, value: object, allowed: bool, what: str) -> None:
    if not allowed:
        raise ConfigurationError(f"Recipe({name}={value!r}) is not allowed: {what}.")


PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """AdamW with linear warm-up and linear decay to 0 over the whole run.

    `patience` stops after that many epochs in a row without a better NLL on the validation rows, and keeps the
    weights of the best epoch; None trains all epochs and keeps the last. Sequences are padded to the longest of their
    batch; `group_by_length` draws batches of similar length, which saves padding but makes batches less random.
    `precision` is that of the matrix products: bf16 halves the time on processors and GPUs that have it. Weights,
    gradients and the optimizer stay in fp32.
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
    precision: str = "fp32"

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0")
        _check("warmup_steps", self.warmup_steps, self.warmup_steps >= 0, "0 or more")
        _check("batch_size", self.batch_size, self.batch_size >= 1, "1 or more")
        _check("epochs", self.epochs, self.epochs >= 1, "1 or more")
        _check("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        _check("clip", self.clip, self.clip > 0, "above 0; a large number clips nothing")
        _check("patience", self.patience, self.patience is None or self.patience >= 1, "1 or more, or None")
        _check("max_length", self.max_length, self.max_length is None or self.max_length >= 8, "8 or more, or None")
        check_choice("precision", self.precision, PRECISIONS)

    def steps(self, rows: int) -> int:
        """Optimizer steps of a whole run over `rows` rows, on one device."""
        return self.epochs * -(-rows // self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


# The paper's 2e-5 and 500 warm-up steps are for tens of thousands of rows; with the demo's few thousand the model would
# hardly change. Short sequences, batches of similar length and one epoch take two minutes on two cores.
DEMO = Recipe(learning_rate=2e-4, warmup_steps=10, batch_size=32, epochs=1, max_length=64, group_by_length=True)

# A few thousand rows on a small backbone, for a first look at a table.
FEW_ROWS = Recipe(learning_rate=3e-4, warmup_steps=20, batch_size=32, epochs=3, max_length=128, group_by_length=True)

RECIPES: dict[str, Recipe] = {"paper": Recipe(), "demo": DEMO, "few-rows": FEW_ROWS}

CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "few-rows": {
        "sst2": {"learning_rate": 1e-4, "warmup_steps": 60, "epochs": 1},
        "mnli": {"learning_rate": 2e-4, "warmup_steps": 60, "batch_size": 64, "epochs": 2},
        "squad2": {"learning_rate": 2e-4, "epochs": 2},
        "medqa": {"epochs": 1},
        "clinc150": {"learning_rate": 5e-4, "warmup_steps": 60, "batch_size": 64},
        "wnut17": {"epochs": 5},
        "goemotions": {"learning_rate": 2e-4, "warmup_steps": 60, "batch_size": 64, "epochs": 2},
    }
}
"""recipe -> task -> what is different there: easy tasks with many rows take fewer epochs, many labels higher rates.

A row of MedQA is four sequences, and the paper's own BERT-base stays at one right answer in four."""


def recipe_for(name: str, task: str | None = None) -> Recipe:
    """The recipe of a name, for a task of the catalogue or for any rows."""
    check_choice("recipe", name, RECIPES)
    return replace(RECIPES[name], **CHANGES.get(name, {}).get(task or "", {}))


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
    one_answer: ClassVar[bool] = False
    """Whether the method can be trained for one answer a text only."""
    whole_run: ClassVar[bool] = False
    """Whether the method is made of the last part of a run, which early stopping may cut off."""

    @property
    def name(self) -> str:
        """The short spelling, as in 'swag:rank=20': only settings that are not the default."""
        return spelling(self.key, differences(self, type(self)()))

    @property
    def identity(self) -> str:
        """The spelling with every setting, also defaults: a run stays the same when a default changes."""
        return spelling(self.key, differences(self, None))

    @property
    def fine_tunings(self) -> int:
        """How many models are fine-tuned, each with its own seed."""
        return 1

    def changed(self, **settings: str) -> Self:
        """A copy with some settings replaced; values as spelt on a command line."""
        return change(self, settings, f"the training of {self.key}")

    def check_positive(self, *names: str) -> None:
        """Raise unless these settings are above 0."""
        for name in names:
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{self.key}: {name}={getattr(self, name)} is not above 0.")

    def check(self, recipe: Recipe) -> None:
        """Raise unless the method can be trained by this recipe."""
        if self.whole_run and recipe.patience is not None:
            raise ConfigurationError(
                f"{self.key} is made of the last part of a run, which a patience of {recipe.patience} may cut off; "
                "train it without one."
            )

    def check_kind(self, kind: Kind) -> None:
        """Raise unless the method can be trained on rows of this kind."""
        if self.one_answer and kind in ("entities", "labels"):
            rows = "entities" if kind == "entities" else "several labels a text"
            raise ConfigurationError(
                f"{self.key} is for one answer a text and cannot be trained on {rows}; use base or ensemble."
            )

    def prepare(self, model: PreTrainedModel, seed: int) -> None:
        """Change the new model before the first step: another head, buffers to collect weights in."""

    def penalty(self, model: PreTrainedModel, rows: int) -> Tensor | None:
        """A term added to the training loss of a batch; `rows` is the size of the whole training set."""
        return None

    def groups(self, model: PreTrainedModel) -> list[dict[str, Any]]:
        """Parameters with their own optimizer settings: `params`, and `lr` or `weight_decay` or both."""
        return []

    def schedule(self, step: int, warmup: int, total: int) -> float:
        """The learning rate after `step` steps, as a share of the recipe's: up over the warm-up, then down to 0."""
        return step / warmup if step < warmup else (total - step) / max(1, total - warmup)

    def after_step(self, model: PreTrainedModel, step: int, total: int) -> None:
        """Called before the first step, with 0, and after every step of the optimizer."""

    def finish(self, model: PreTrainedModel, batches: Batches) -> None:
        """Turn the trained model, in evaluation mode, into what is saved, with the method's weights attached."""

    def combine(self, models: Sequence[PreTrainedModel]) -> None:
        """Attach the weights of the other fine-tuned models to the first one."""


PLAIN = MethodTraining()
