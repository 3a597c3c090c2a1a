"""What methods with weights of their own share: settings as fields, and weights that are found in the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from uatlite.errors import ConfigurationError
from uatlite.methods.settings import change_fields, field_names, spell_fields

if TYPE_CHECKING:
    from uatlite.backbone.method_weights import MethodWeights


@dataclass(frozen=True)
class TrainedMethod:
    """A method that runs on models which `uatlite train --method KEY` made; every field but the seed is a setting."""

    key: ClassVar[str]
    summary: ClassVar[str]
    trained: ClassVar[bool] = True

    seed: int = 0

    @property
    def name(self) -> str:
        settings = spell_fields(self)
        return f"{self.key}:{settings}" if settings else self.key

    def changed(self, **settings: str) -> Self:
        return change_fields(self, settings, self.key)

    def seeded(self, seed: int) -> Self:
        return replace(self, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.key, **{name: getattr(self, name) for name in field_names(self)}}

    def as_trained(self, weights: MethodWeights) -> Self:
        """The method as these weights of it were trained to be run."""
        return self

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        """The method that `to_dict` described."""
        settings = {name: value for name, value in values.items() if name != "method"}
        try:
            return replace(self, **settings)
        except TypeError as error:
            raise ConfigurationError(f"the stored settings of {self.key} are of another version ({error}).") from error


def at_least(method: TrainedMethod, **lowest: float) -> None:
    """Raise unless each named setting is at least so much."""
    for name, low in lowest.items():
        if getattr(method, name) < low:
            raise ConfigurationError(f"{method.key}: {name}={getattr(method, name)} is not {low} or more.")
