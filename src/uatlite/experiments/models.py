"""The models of an evaluation: the plain one, and one for each method that was trained to have weights of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from uatlite.backbone.loading import Checkpoint
from uatlite.backbone.method_weights import attached
from uatlite.errors import ConfigurationError, ModelError
from uatlite.methods import Method


@dataclass(frozen=True, eq=False)
class Models:
    """Which model each method runs on."""

    plain: Checkpoint
    """what methods without a training of their own run on"""
    trained: Mapping[str, Checkpoint] = field(default_factory=dict)
    """method -> the model that was trained for it"""

    @classmethod
    def of(cls, checkpoints: Sequence[Checkpoint]) -> "Models":
        """The plain model is the first that was trained for no method; where there is none, the first of all."""
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
        return cls((plain or list(checkpoints))[0], trained)

    def of_method(self, method: Method) -> Checkpoint:
        """The model that a method runs on; an error where it needs one that is not there."""
        if not method.trained:
            return self.plain
        key = str(method.to_dict()["method"])
        if key not in self.trained:
            there = f" (those given are trained for {', '.join(self.trained)})" if self.trained else ""
            raise ModelError(
                f"{method.name} needs a model that was trained for it, and none was given{there}. Train one, and name "
                f"its directory beside {self.plain.name}: uatlite train --method {key} --task TASK -o DIR."
            )
        return self.trained[key]
