"""What a metric is, and what it is computed from: checked rows, and their ranking by a score.

A metric is a score of probabilities against labels, for the rows themselves and for resamples of them: sums take many
resamples at once, where `counts` (resamples, rows) says how often each row is repeated.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Concatenate, Generic, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.values import Floats, Integers, check_labels, check_probabilities


@dataclass(frozen=True, eq=False)
class Ranking:
    """Row indices from the highest score to the lowest (rows,), and the last rank of each tie (ties,).

    A tie is a maximal run of equal scores; most have one row. Curves are read only where a tie ends, so no
    metric depends on the order in which tied rows came.
    """

    order: NDArray[np.intp]
    ends: NDArray[np.intp]

    @classmethod
    def of(cls, scores: Floats) -> "Ranking":
        """Rank the scores (rows,) from high to low."""
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
        return cls(order, ends)

    def sums(self, counts: Floats, values: Floats | None = None) -> Floats:
        """Sums over each tie, from the top down: (resamples, ties).

        Each row counts `counts` (resamples, rows) times, and carries `values` (rows,), or 1.
        """
        weights = counts[:, self.order]
        if values is not None:
            weights *= values[self.order]
        if len(self.ends) == len(self.order):
            return weights
        return np.add.reduceat(weights, np.append(0, self.ends[:-1] + 1), axis=1)

    def cumulate(self, counts: Floats, values: Floats | None = None) -> Floats:
        """Sums from the top down to the end of each tie, with a leading 0: (resamples, 1 + ties)."""
        running = np.zeros((len(counts), 1 + len(self.ends)))
        np.cumsum(self.sums(counts, values), axis=1, out=running[:, 1:])
        return running


@dataclass(frozen=True, eq=False)
class Judged:
    """Probabilities (rows, columns), what is the case, and the precision they came in.

    `labels` are the columns (rows,), or where several may be the case 0 and 1 for each (rows, columns).
    Probabilities are used as given and are not renormalised. Thresholds and bin edges are rounded to
    `precision` before they are compared, so that a float32 0.6 lies on the edge 0.6 and not beyond it.
    """

    probabilities: Floats
    labels: Integers
    precision: np.dtype[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def threshold(self, value: ArrayLike) -> Floats:
        """The value as the rows' own precision writes it."""
        return np.asarray(value).astype(self.precision).astype(np.float64)

    @cached_property
    def one_hot(self) -> Floats:
        """What is the case, as indicators (rows, columns)."""
        if self.labels.ndim == 2:
            return self.labels.astype(np.float64)
        return np.eye(self.probabilities.shape[1])[self.labels]


def precision_of(given: NDArray[Any]) -> np.dtype[Any]:
    """The precision of an array as it was given; numbers that are no floats are as precise as float64."""
    return given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class Rows(Judged):
    """Checked predictions: probabilities (rows, classes), whose rows sum to 1, and labels (rows,)."""

    @classmethod
    def of(cls, probabilities: ArrayLike, labels: ArrayLike) -> "Rows":
        """Check both arrays and bind them."""
        given = np.asarray(probabilities)
        values = check_probabilities(given, rows=1)
        return cls(values, check_labels(labels, rows=len(values), classes=values.shape[1]), precision_of(given))

    @cached_property
    def confidence(self) -> Floats:
        """The largest probability of each row (rows,)."""
        return np.asarray(self.probabilities.max(axis=1))

    @cached_property
    def predicted(self) -> Integers:
        """The class of the largest probability (rows,), the first of them where several are equal."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def correct(self) -> Floats:
        """1 where the predicted class is the label, 0 where it is not (rows,)."""
        return np.asarray(self.predicted == self.labels, dtype=np.float64)

    @cached_property
    def ranking(self) -> Ranking:
        """The rows from the most confident to the least, equal confidences together."""
        return Ranking.of(self.confidence)

    @cached_property
    def doubt(self) -> Ranking:
        """The rows from the least confident to the most."""
        return Ranking.of(-self.confidence)


Statistic = Callable[[Floats], Floats]
"""Counts (resamples, rows) -> values (resamples,). A count says how often a row is repeated; the value equals
that of the plain metric on rows literally repeated so often. NaN where the metric is undefined."""

_Options = ParamSpec("_Options")


@dataclass(frozen=True, eq=False)
class Metric(Generic[_Options]):
    """Call it as metric(probabilities, labels): (rows, classes) and (rows,) to one number.

    `values` is the statistic of rows: `Statistic` with the rows before the counts and options after them. `truth` is
    None for metrics that are means or smooth functions of means: their bootstrap interval is that of percentiles.
    Metrics with an upward bias (calibration errors) name the quantity that they estimate, as it is in the sample; their
    interval is pivotal. See `uatlite.metrics.intervals`.
    """

    values: Callable[Concatenate[Rows, Floats, _Options], Floats]
    truth: Callable[Concatenate[Rows, Floats, _Options], Floats] | None = None

    def __post_init__(self) -> None:
        # help() and inspect show the call that users make, not the one that `values` receives.
        array = partial(inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=ArrayLike)
        options = list(inspect.signature(self.values).parameters.values())[2:]
        signature = inspect.Signature([array("probabilities"), array("labels"), *options], return_annotation=float)
        object.__setattr__(self, "__signature__", signature)
        object.__setattr__(self, "__doc__", getattr(self.values, "func", self.values).__doc__)

    def __call__(
        self, probabilities: ArrayLike, labels: ArrayLike, *args: _Options.args, **kwargs: _Options.kwargs
    ) -> float:
        rows = Rows.of(probabilities, labels)
        return float(self.values(rows, np.ones((1, len(rows))), *args, **kwargs)[0])

    def bind(self, **options: Any) -> "Metric[[]]":
        """The metric with its options fixed, as the registry lists it."""
        return Metric(partial(self.values, **options), self.truth and partial(self.truth, **options))


def pivotal(values: Callable[Concatenate[Rows, Floats, _Options], Floats]) -> Metric[_Options]:
    """A metric that is biased upward, and is its own truth."""
    return Metric(values, values)


def at_once(statistic: Statistic, rows: int) -> float:
    """The value of a statistic with every row counted once."""
    return float(statistic(np.ones((1, rows)))[0])


def mean_of(values: Floats) -> Statistic:
    """The mean over rows of one value for each row (rows,)."""
    return lambda counts: np.asarray(counts @ values / counts.sum(axis=1))


def ratio(numerator: Floats, denominator: Floats, *, otherwise: float = np.nan) -> Floats:
    """numerator / denominator, and `otherwise` where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    result = np.full(numerator.shape, otherwise)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result
