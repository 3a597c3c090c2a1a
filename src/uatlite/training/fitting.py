"""What a method changes about a fine-tuning; all else is the recipe's.

None of it may keep state outside the model: a run is resumed from the model, the optimizer and the number of the step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Tensor
from transformers import PreTrainedModel

from uatlite.errors import ConfigurationError
from uatlite.methods.settings import change_fields, spell_fields
from uatlite.training.recipe import Recipe

Batches = Callable[[], Iterator[dict[str, Tensor]]]
"""The training rows from the first on, in padded batches with `labels`."""


@dataclass(frozen=True)
class Fitting:
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


PLAIN = Fitting()


def refuse_patience(fitting: Fitting, recipe: Recipe) -> None:
    """Raise where a run may end early whose last part is what a method is made of."""
    if recipe.patience is not None:
        raise ConfigurationError(
            f"{fitting.key} is made of the last part of a run, which a patience of {recipe.patience} may cut off; "
            "train it without one."
        )
