"""The contract of a method: its name and settings, the passes it gives, and what it learns from calibration rows.

Everything that other rooms need to know about a method is said here, so that nobody asks for its class. No method
imports torch before it runs: stored predictions are read by name without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError
from uatlite.passes.config import UATConfig
from uatlite.predictive import PassLogits
from uatlite.values import Floats

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from uatlite.attribution.first_order import Candidates
    from uatlite.attribution.layers import Propagation
    from uatlite.model.weights import MethodWeights


@dataclass(frozen=True, eq=False)
class Passes:
    """What a method says about a batch of texts; of a token classifier, batch is (batch, tokens) in every shape."""

    logits: Tensor
    """(passes, batch, classes), float32"""
    margin_variance: Tensor | None = None
    """(batch,): variance of the top-1 minus the top-2 logit, from a method that knows it without sampling; of a model
    of many labels that of each label's logit, (batch, labels)"""
    sources: Propagation | None = None
    """that variance by layer, component and token, from a method that finds it on the way"""
    representation: Tensor | None = None
    """(batch, units): what the head reads, the mean over passes; None where it cannot be seen"""


TAUGHT = 2000
"""Texts that a method learns from at most, drawn from all: more would add little and cost a teacher's passes."""


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows whose texts a method learns its free settings from."""

    labels: NDArray[np.int64]
    """(rows,), or (rows, labels) of 0 and 1 for a model of many labels"""
    run: Callable[[Method], PassLogits]
    """what a method says about these rows"""
    run_reference: Callable[[Method], PassLogits] | None = None
    """what a method says about unlabelled texts of the task, where there are some"""
    unit: str = "texts"
    """what rows are, for a sentence"""
    run_some: Callable[[Method, NDArray[np.int64]], PassLogits] | None = None
    """what a method says about some of these rows, by their places; None where they can only be run together"""

    @property
    def many(self) -> bool:
        """Whether a row has many labels and not one class."""
        return self.labels.ndim == 2

    def teach(self, teacher: Method, seed: int = 0) -> tuple[NDArray[np.int64], PassLogits]:
        """What a teacher says about at most `TAUGHT` of the rows, and their places."""
        places = np.arange(len(self.labels))
        if self.run_some is None or len(places) <= TAUGHT:
            return places, self.run(teacher)
        places = np.sort(np.random.default_rng(seed).permutation(len(places))[:TAUGHT])
        return places, self.run_some(teacher, places)


@dataclass(frozen=True, eq=False)
class Tuned:
    """A method with the settings that it learned, and a sentence that says what they are."""

    method: Method
    reason: str
    outputs: PassLogits | None = None
    """what it says about the rows that it learned from, each as if it had not been one of them; None where they do not
    depend on it"""


@runtime_checkable
class Method(Protocol):
    """A frozen value that turns a model and tokenised texts into the logits of every pass.

    The same method, seed, model and text give the same logits, whatever else is in the batch, and the model is left
    as it was. A method with weights of its own (an ensemble's members, a Gaussian-process head) finds them in the
    model that its directory was loaded as, so the model's hash covers them and a method is settings alone.
    """

    @property
    def name(self) -> str:
        """The canonical spelling: the key in `METHODS`, then the settings that differ, as in 'uat:gate=k'."""
        ...

    @property
    def summary(self) -> str:
        """One line for the list of methods."""
        ...

    @property
    def stochastic(self) -> bool:
        """Whether the seed changes the result. Other methods run once, however many seeds are asked for."""
        ...

    @property
    def seed(self) -> int:
        """The seed that it runs with; 0 where it has none."""
        ...

    @property
    def passes(self) -> int:
        """Passes per text."""
        ...

    @property
    def cost(self) -> int:
        """Passes per text, a backward pass counted as one more."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it needs weights of its own, made by `uatlite train --method`."""
        ...

    @property
    def knows_variance(self) -> bool:
        """Whether its passes give the variance of the margin: two or more of them, or one that computes it."""
        ...

    @property
    def config(self) -> UATConfig | None:
        """The dropout that its passes run under; None without dropout."""
        ...

    @property
    def sampled(self) -> UATConfig | None:
        """The configuration whose passes over every text are all that it runs; None where it runs anything else."""
        ...

    @property
    def tunable(self) -> bool:
        """Whether it has free settings that calibration rows decide."""
        ...

    def changed(self, **settings: str) -> Self:
        """The same method with some settings replaced, their values as spelt on a command line."""
        ...

    def seeded(self, seed: int) -> Self:
        """The same method with another seed."""
        ...

    def with_config(self, config: UATConfig) -> Self:
        """The same method under another configuration of dropout; an error where `config` is None."""
        ...

    def tuned(self, rows: CalibrationRows) -> Tuned:
        """The method with its free settings learned; an error where it is not tunable."""
        ...

    def untuned(self) -> Self:
        """The same method before anything was learned."""
        ...

    def as_trained(self, weights: MethodWeights) -> Self:
        """The method with the settings that its trained weights were made for."""
        ...

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        """What it says about rows whose plain pass is known; None where it needs passes of its own."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All settings but the seed and arrays, as plain JSON values; 'method' is the key in `METHODS`."""
        ...

    def to_arrays(self) -> dict[str, Floats]:
        """The arrays that it learned, by name; empty where it learned none."""
        ...

    def with_arrays(self, arrays: Mapping[str, Floats]) -> Self:
        """The method of `from_dict` with its arrays, found by name among others."""
        ...

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        """The method of the same key that `to_dict` described, with seed 0."""
        ...

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        """The passes over tokenised texts, (batch, tokens) or (batch, choices, tokens)."""
        ...

    def run_tokens(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], candidates: Candidates) -> Passes:
        """The passes of a token classifier: logits (passes, batch, tokens, classes).

        A method that knows variances without sampling gives those of the margins of the candidate tokens,
        (batch, tokens), NaN elsewhere.
        """
        ...


class MethodDefaults:
    """What holds for a method that says nothing else: no seed, no dropout, nothing to learn.

    A dataclass that overrides one of the properties by a field gives the field a default.
    """

    @property
    def stochastic(self) -> bool:
        return False

    @property
    def seed(self) -> int:
        return 0

    @property
    def passes(self) -> int:
        return 1

    @property
    def cost(self) -> int:
        return self.passes

    @property
    def trained(self) -> bool:
        return False

    @property
    def knows_variance(self) -> bool:
        return self.passes > 1

    @property
    def config(self) -> UATConfig | None:
        return None

    @property
    def sampled(self) -> UATConfig | None:
        return None

    @property
    def tunable(self) -> bool:
        return False

    def run(self, model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> Passes:
        raise NotImplementedError

    def run_tokens(self, model: PreTrainedModel, encoded: Mapping[str, Tensor], candidates: Candidates) -> Passes:
        return self.run(model, encoded)

    def seeded(self, seed: int) -> Self:
        return self

    def with_config(self, config: UATConfig) -> Self:
        raise ConfigurationError(f"{self!r} drops nothing, so it takes no configuration; use 'uat' or 'fast'.")

    def tuned(self, rows: CalibrationRows) -> Tuned:
        raise ConfigurationError(f"{self!r} has no settings that calibration rows decide.")

    def untuned(self) -> Self:
        return self

    def read_from(self, plain: PassLogits) -> PassLogits | None:
        return None

    def as_trained(self, weights: MethodWeights) -> Self:
        raise ConfigurationError(f"{self!r} is not a method that is trained.")

    def from_dict(self, values: Mapping[str, Any]) -> Self:
        return self

    def to_arrays(self) -> dict[str, Floats]:
        return {}

    def with_arrays(self, arrays: Mapping[str, Floats]) -> Self:
        return self
