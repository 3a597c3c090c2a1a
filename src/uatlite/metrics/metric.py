"""What a metric is: a score of probabilities against labels, for the rows themselves and for resamples of them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, Literal, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from uatlite.metrics.ranking import Rows
from uatlite.values import Floats

Statistic = Callable[[Floats], Floats]
"""Counts (resamples, rows) -> values (resamples,). A count says how often a row is repeated; the value equals
that of the plain metric on rows literally repeated so often. NaN where the metric is undefined."""

Better = Literal["higher", "lower"]
Options = ParamSpec("Options")


@dataclass(frozen=True, eq=False)
class Metric(Generic[Options]):
    """Call it as metric(probabilities, labels): (rows, classes) and (rows,) to one number.

    `prepare` does the work that all resamples of the same rows share, and returns the statistic. `truth` is None for
    metrics that are means or smooth functions of means: their bootstrap interval is that of percentiles. Metrics
    with an upward bias (calibration errors) name the quantity that they estimate, as it is in the sample; their
    interval is pivotal. See `bootstrap`. `better` is None where neither direction is better by itself.
    """

    prepare: Callable[Concatenate[Rows, Options], Statistic]
    better: Better | None
    truth: Callable[Concatenate[Rows, Options], Statistic] | None = None

    def __post_init__(self) -> None:
        # help() and inspect show the call that users make, not the one that `prepare` receives.
        array = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=ArrayLike)
        options = list(inspect.signature(self.prepare).parameters.values())[1:]
        signature = inspect.Signature([array("probabilities"), array("labels"), *options], return_annotation=float)
        object.__setattr__(self, "__signature__", signature)
        object.__setattr__(self, "__doc__", self.prepare.__doc__)

    def __call__(
        self, probabilities: ArrayLike, labels: ArrayLike, *args: Options.args, **kwargs: Options.kwargs
    ) -> float:
        rows = Rows.of(probabilities, labels)
        return at_once(self.prepare(rows, *args, **kwargs), len(rows))

    def bind(self, *args: Options.args, **kwargs: Options.kwargs) -> "Metric[[]]":
        """The metric with its options fixed, as the registry lists it."""

        def settle(prepare: Callable[Concatenate[Rows, Options], Statistic]) -> Callable[[Rows], Statistic]:
            def settled(rows: Rows) -> Statistic:
                return prepare(rows, *args, **kwargs)

            settled.__doc__ = prepare.__doc__
            return settled

        return Metric(settle(self.prepare), self.better, None if self.truth is None else settle(self.truth))


def metric(
    better: Better | None, *, pivotal: bool = False, truth: "Metric[Any] | None" = None
) -> Callable[[Callable[Concatenate[Rows, Options], Statistic]], Metric[Options]]:
    """Turn a function of rows into a metric; `pivotal` ones are their own truth unless another is named."""

    def wrap(prepare: Callable[Concatenate[Rows, Options], Statistic]) -> Metric[Options]:
        if truth is not None:
            return Metric(prepare, better, truth.prepare)
        return Metric(prepare, better, prepare if pivotal else None)

    return wrap


def at_once(statistic: Statistic, rows: int) -> float:
    """The value of a statistic with every row counted once."""
    return float(statistic(np.ones((1, rows)))[0])


def mean_of(values: Floats) -> Statistic:
    """The mean over rows of one value for each row (rows,)."""

    def mean(counts: Floats) -> Floats:
        return np.asarray(counts @ values / counts.sum(axis=1))

    return mean


def ratio(numerator: Floats, denominator: Floats, *, otherwise: float = np.nan) -> Floats:
    """numerator / denominator, and `otherwise` where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    result = np.full(numerator.shape, otherwise)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result
