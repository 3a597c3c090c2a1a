"""Methods with weights of their own: deep ensembles, snapshot ensembles and SWAG.

Their settings are fields; their weights come with the model that `uatlite train --method` made.

Deep ensembles (Lakshminarayanan et al., 2017) and snapshot ensembles (Huang et al., 2017) run one pass for each member.
The first member is the model itself. The others are its method weights `members` (members - 1, parameters), each all
parameters of a model in one vector.

SWA-Gaussian (Maddox et al., 2019) draws weights from a Gaussian around the average θ of the last training steps, which
the model itself holds. Its method weights are the variances s² (parameters,) and the last K deviations d_k
(K, parameters) from the running average. A draw is

    θ + sqrt(scale)·(s·z / √2 + Σ_k d_k·y_k / sqrt(2(K - 1))),   z, y ~ N(0, I).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from uatlite.codec import NOT_STORED, dump
from uatlite.errors import ConfigurationError, ModelError
from uatlite.methods.method import MethodDefaults, Passes
from uatlite.methods.one_pass import BASE
from uatlite.spelling import change, differences, spelling

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.model.weights import MethodWeights


@dataclass(frozen=True)
class TrainedMethod(MethodDefaults):
    """A method that runs on models which `uatlite train --method KEY` made; every field but the seed is a setting."""

    key: ClassVar[str]
    summary: ClassVar[str]
    trained: ClassVar[bool] = True

    seed: int = field(default=0, metadata=NOT_STORED)

    @property
    def name(self) -> str:
        return spelling(self.key, differences(self, type(self)()))

    def changed(self, **settings: str) -> Self:
        return change(self, settings, self.key)

    def seeded(self, seed: int) -> Self:
        return replace(self, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.key, **dump(self)}

    def as_trained(self, weights: MethodWeights) -> Self:
        return self

    def from_dict(self, values: Mapping[str, Any]) -> Self:
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


@dataclass(frozen=True)
class Ensemble(TrainedMethod):
    """Models of one architecture that were fine-tuned independently."""

    key: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "models fine-tuned independently of each other, one pass of each"

    members: int = 5

    def __post_init__(self) -> None:
        at_least(self, members=1)

    @property
    def passes(self) -> int:
        return self.members

    def as_trained(self, weights: MethodWeights) -> Self:
        return replace(self, members=1 + len(weights.tensors["members"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (members, batch, classes) of the first `members` members."""
        import torch

        from uatlite.model.weights import weights_for, with_parameters

        weights = weights_for(model, self.key)
        vectors = weights.tensors["members"]
        if self.members > 1 + len(vectors):
            raise ModelError(
                f"{self.name} asks for {self.members} members and this model has {1 + len(vectors)}: "
                f"ask for {self.key}:members={1 + len(vectors)}, or train more of them."
            )
        others = weights.made(model, self.key, lambda: [with_parameters(model, vector) for vector in vectors])
        members = [model, *others[: self.members - 1]]
        passes = [BASE.run(member, encoded) for member in members]
        return Passes(torch.cat([one.logits for one in passes]), representation=passes[0].representation)


@dataclass(frozen=True)
class Snapshot(Ensemble):
    """The weights at the ends of the cycles of one training."""

    key: ClassVar[str] = "snapshot"
    summary: ClassVar[str] = "an ensemble from one training with a cyclic learning rate, one pass for each cycle"


ENSEMBLE, SNAPSHOT = Ensemble(), Snapshot()


@dataclass(frozen=True)
class Swag(TrainedMethod):
    """`samples` draws of all weights, the same for every text; they are kept until another seed is asked for."""

    key: ClassVar[str] = "swag"
    summary: ClassVar[str] = "weights drawn from a Gaussian around the average of the last training steps"

    samples: int = 10
    scale: float = 1.0

    def __post_init__(self) -> None:
        at_least(self, samples=1, scale=0.0)

    @property
    def stochastic(self) -> bool:
        return self.scale > 0

    @property
    def passes(self) -> int:
        return self.samples

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (samples, batch, classes)."""
        import torch

        from uatlite.model.heads import draw_weights
        from uatlite.model.weights import flat_parameters, weights_for, with_parameters

        weights = weights_for(model, self.key)

        def drawn() -> list[PreTrainedModel]:
            mean, spread = flat_parameters(model), weights.tensors
            return [
                with_parameters(model, draw_weights(mean, spread, self.seed, number, self.scale))
                for number in range(self.samples)
            ]

        models = weights.made(model, self, drawn)
        passes = [BASE.run(one, encoded) for one in models]
        read = [one.representation for one in passes if one.representation is not None]
        mean = torch.stack(read).mean(dim=0) if len(read) == len(passes) else None
        return Passes(torch.cat([one.logits for one in passes]), representation=mean)


SWAG = Swag()
