"""The contract of a method: what it is called, what it is set to, and the passes that it gives.

Nothing here, and nothing in a method until it runs, imports torch: stored predictions are read by name without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.layers import Propagation


@dataclass(frozen=True, eq=False)
class Passes:
    """What a method says about a batch of texts."""

    logits: Tensor
    """(passes, batch, classes), float32"""
    margin_variance: Tensor | None = None
    """(batch,): the variance of the top-1 minus the top-2 logit, from a method that knows it without sampling"""
    sources: Propagation | None = None
    """where that variance comes from, by layer, component and token, from a method that finds it on the way"""
    counts: Tensor | None = None
    """(batch,): how many of the passes are a text's own, the first so many; the others hold NaN. None where all are"""
    spent: Tensor | None = None
    """(batch,): how many passes were run for each text, where that is not the number that it has logits of"""


@runtime_checkable
class Method(Protocol):
    """A frozen value that turns a model and tokenised texts into the logits of every pass.

    The same method, seed, model and text give the same logits, whatever else is in the batch, and the model is left
    as it was. A method with weights of its own (an ensemble's members, a Gaussian-process head) finds them in the
    model that its directory was loaded as, so the model's hash covers them and a method is settings alone.
    """

    @property
    def name(self) -> str:
        """The canonical spelling: the key in `METHODS`, then what differs from it, as in 'uat:gate=k'."""
        ...

    @property
    def summary(self) -> str:
        """One line for the list of methods."""
        ...

    @property
    def stochastic(self) -> bool:
        """Whether the seed changes anything; one that is not is run once, however many seeds are asked for."""
        ...

    @property
    def passes(self) -> int:
        """How many passes it runs over each text, or at most where texts differ."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it needs weights of its own, which `uatlite train --method` gives."""
        ...

    @property
    def knows_variance(self) -> bool:
        """Whether its passes tell the variance of the margin: two or more of them, or one that computes it."""
        ...

    def changed(self, **settings: str) -> Self:
        """The same method with some settings replaced, their values as spelt on a command line."""
        ...

    def seeded(self, seed: int) -> Self:
        """The same method with another seed."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Everything but the seed that decides its numbers, as plain JSON values; 'method' is the key in `METHODS`."""
        ...

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """The passes over tokenised texts, (batch, tokens) or (batch, choices, tokens)."""
        ...
