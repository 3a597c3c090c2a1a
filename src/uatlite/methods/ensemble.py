"""Deep ensembles (Lakshminarayanan et al., 2017) and snapshot ensembles (Huang et al., 2017): one pass for each member.

The first member is the model itself. The others are its method weights `members` (members - 1, parameters), each all
parameters of a model in one vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from uatlite.errors import ModelError
from uatlite.methods.deterministic import BASE
from uatlite.methods.method import Passes
from uatlite.methods.trained import TrainedMethod, at_least

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.backbone.method_weights import MethodWeights


@dataclass(frozen=True)
class Ensemble(TrainedMethod):
    """Models of one architecture that were fine-tuned independently."""

    key: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "models fine-tuned independently of each other, one pass of each"
    stochastic: ClassVar[bool] = False

    members: int = 5

    def __post_init__(self) -> None:
        at_least(self, members=1)

    @property
    def passes(self) -> int:
        return self.members

    @property
    def knows_variance(self) -> bool:
        return self.members > 1

    def as_trained(self, weights: MethodWeights) -> Self:
        return replace(self, members=1 + len(weights.tensors["members"]))

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """Logits (members, batch, classes) of the first so many members."""
        import torch

        from uatlite.backbone.copies import with_parameters
        from uatlite.backbone.method_weights import weights_for

        weights = weights_for(model, self.key)
        vectors = weights.tensors["members"]
        if self.members > 1 + len(vectors):
            raise ModelError(
                f"{self.name} asks for {self.members} members and this model has {1 + len(vectors)}: "
                f"ask for {self.key}:members={1 + len(vectors)}, or train more of them."
            )
        others = weights.made(model, self.key, lambda: [with_parameters(model, vector) for vector in vectors])
        members = [model, *others[: self.members - 1]]
        return Passes(torch.cat([BASE.run(member, encoded).logits for member in members]))


@dataclass(frozen=True)
class Snapshot(Ensemble):
    """The weights at the ends of the cycles of one training."""

    key: ClassVar[str] = "snapshot"
    summary: ClassVar[str] = "an ensemble from one training with a cyclic learning rate, one pass for each cycle"


ENSEMBLE, SNAPSHOT = Ensemble(), Snapshot()
