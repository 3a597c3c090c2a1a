"""The contract of a method: its settings, the passes it gives, and what it learns from calibration rows.

Everything that other rooms need to know about a method is said here, so that nobody asks for its class. No method
imports torch before it runs: stored predictions are read by name without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, runtime_checkable

import numpy as np

from uatlite.passes.config import UATConfig
from uatlite.predictive import PassLogits
from uatlite.spelling import change, spelling
from uatlite.values import Integers, Kind

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates
    from uatlite.attribution.layers import Attribution


@dataclass(frozen=True, eq=False)
class Passes:
    """What a method says about a batch of texts; of a token classifier, batch is (batch, tokens) in every shape."""

    logits: Tensor
    """(passes, batch, classes), float32"""
    variance: Tensor | None = None
    """(batch, 1): variance of the top-1 minus the top-2 logit, from a method that knows it without sampling; of a model
    of many labels that of each label's logit, (batch, labels)"""
    sources: Attribution | None = None
    """that variance by layer, component and token, from a method that finds it on the way"""
    representation: Tensor | None = None
    """(batch, units): what the head reads, the mean over passes; None where it cannot be seen"""

    def arrays(self, chosen: Tensor | None = None) -> PassLogits:
        """The same in NumPy; with `chosen` (batch, tokens) only of these tokens, as rows."""

        def array(value: Tensor | None) -> Any:
            return None if value is None else value.detach().cpu().double().numpy()

        if chosen is None:
            return PassLogits(array(self.logits), array(self.variance), array(self.representation))
        variance, read = (None if value is None else value[chosen] for value in (self.variance, self.representation))
        return PassLogits(array(self.logits[:, chosen]), array(variance), array(read))


TAUGHT = 2000
"""Texts that a method learns from at most, drawn from all: more would add little and cost a teacher's passes."""


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows from which a method learns its free settings; it does not need their labels."""

    count: int
    run: Callable[[Method], PassLogits]
    """what a method says about these rows"""
    run_reference: Callable[[Method], PassLogits] | None = None
    """what a method says about further texts of the task, where there are some"""
    run_some: Callable[[Method, Integers], PassLogits] | None = None
    """what a method says about some of these rows, by their places; None where they can only be run together"""
    kind: Kind = "one"

    def teach(self, teacher: Method, seed: int = 0) -> tuple[Integers, PassLogits]:
        """What a teacher says about at most `TAUGHT` of the rows, and their places."""
        if self.run_some is None or self.count <= TAUGHT:
            return np.arange(self.count), self.run(teacher)
        places = np.sort(np.random.default_rng(seed).permutation(self.count)[:TAUGHT])
        return places, self.run_some(teacher, places)


@dataclass(frozen=True, eq=False)
class LearnedMethod:
    """A method with what it learned, and a sentence that says what that is."""

    method: Method
    reason: str = ""
    outputs: PassLogits | None = None
    """what it says about the rows that it learned from, each as if it had not been one of them; None where they do not
    depend on it"""


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass that turns a model and tokenised texts into the logits of every pass; its fields are settings.

    The same method, seed, model and text give the same logits, whatever else is in the batch, and the model is left
    as it was. A method with weights of its own (an ensemble's members, a Gaussian-process head) finds them in the
    model that its directory was loaded as, so the model's hash covers them and a method is settings alone.

    A method derives from this class. What it does not say itself is that of one plain pass: no seed, no dropout,
    nothing to learn. A dataclass that overrides one of the properties by a field gives the field a default.
    """

    @property
    def key(self) -> str:
        """Its name in `METHODS`."""
        ...

    @property
    def summary(self) -> str:
        """One line for the list of methods."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it needs weights of its own, made by `uatlite train --method`."""
        return False

    @property
    def seed(self) -> int:
        """The seed that it runs with; 0 where it has none."""
        return 0

    @property
    def stochastic(self) -> bool:
        """Whether the seed changes the result. Other methods run once, however many seeds are asked for."""
        return False

    @property
    def passes(self) -> int:
        """Passes per text."""
        return 1

    @property
    def cost(self) -> int:
        """Passes per text, a backward pass counted as one more."""
        return self.passes

    @property
    def knows_variance(self) -> bool:
        """Whether its passes give the variance of the margin: two or more of them, or one that computes it."""
        return self.passes > 1

    @property
    def config(self) -> UATConfig | None:
        """The dropout that its passes run under; None without dropout."""
        return None

    @property
    def learns(self) -> bool:
        """Whether it has free settings that calibration rows decide."""
        return False

    @property
    def name(self) -> str:
        """The canonical spelling: the key, then the settings that differ from the usual ones, as in 'uat:gate=k'."""
        return spelling(self.key, cast(Any, self), cast(Any, type(self)()))

    def changed(self, **settings: str) -> Self:
        """The same method with some settings replaced, their values as spelt on a command line."""
        return cast(Self, change(cast(Any, self), settings, self.key))

    def seeded(self, seed: int) -> Self:
        """The same method with another seed."""
        return self

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], tokens: Candidates | None = None) -> Passes:
        """The passes over tokenised texts, (batch, tokens) or (batch, choices, tokens).

        Of a token classifier the logits are (passes, batch, tokens, classes), and `tokens` chooses those whose variance
        is asked for, from a method that knows it without sampling: (batch, tokens, 1), NaN elsewhere.
        """
        ...

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        """What it says about rows whose plain pass is given; None where it needs passes of its own."""
        return None

    def learn(self, rows: CalibrationRows) -> LearnedMethod:
        """The method with its free settings learned."""
        return LearnedMethod(self)
