"""What every metric is computed from: checked rows, their ranking by a score, and bins of their probabilities.

Sums over ranks and bins take many resamples at once: `counts` (resamples, rows) says how often each row is repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import ConfigurationError
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
class Rows:
    """Checked predictions: probabilities (rows, classes), labels (rows,), and the precision they came in.

    Probabilities are used as given and are not renormalised. Thresholds and bin edges are rounded to
    `precision` before they are compared, so that a float32 0.6 lies on the edge 0.6 and not beyond it.
    """

    probabilities: Floats
    labels: Integers
    precision: np.dtype[Any]

    @classmethod
    def of(cls, probabilities: ArrayLike, labels: ArrayLike) -> "Rows":
        """Check both arrays and bind them."""
        given = np.asarray(probabilities)
        values = check_probabilities(given, rows=1)
        precision = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
        return cls(values, check_labels(labels, rows=len(values), classes=values.shape[1]), precision)

    def __len__(self) -> int:
        return len(self.labels)

    def threshold(self, value: ArrayLike) -> Floats:
        """The value as the rows' own precision writes it."""
        return np.asarray(value).astype(self.precision).astype(np.float64)

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
    def one_hot(self) -> Floats:
        """The labels as indicators (rows, classes)."""
        return np.eye(self.probabilities.shape[1])[self.labels]

    @cached_property
    def ranking(self) -> Ranking:
        """The rows from the most confident to the least, equal confidences together."""
        return Ranking.of(self.confidence)


BINS = 15


@dataclass(frozen=True, eq=False)
class Binned:
    """Rows in bins: the bin as an indicator (rows, bins), and the gap, probability - outcome (rows,)."""

    member: Floats
    gap: Floats

    def sizes(self, counts: Floats) -> Floats:
        """How many rows each bin has: (resamples, bins)."""
        return counts @ self.member

    def gaps(self, counts: Floats) -> Floats:
        """The sum of the gaps in each bin: (resamples, bins)."""
        return counts @ (self.member * self.gap[:, None])

    def squared_gaps(self, counts: Floats) -> Floats:
        """The sum of the squared gaps in each bin: (resamples, bins)."""
        return counts @ (self.member * np.square(self.gap)[:, None])


def bin_of(rows: Rows, values: Floats, bins: int) -> NDArray[np.intp]:
    """The bin of each value: bin b holds (b/bins, (b+1)/bins], and the first one also 0.

    Edges are quotients b/bins, each the float nearest to the exact edge: np.linspace misses some of them by
    an ulp, and a confidence of 0.6 would then fall on either side of 9/15 by luck.
    """
    edges = rows.threshold(np.arange(1, bins) / bins)
    return np.searchsorted(edges, values, side="left")


def by_confidence(rows: Rows, bins: int) -> Binned:
    """Rows binned by confidence, with gap = confidence - correct."""
    check_bins(bins)
    return Binned(np.eye(bins)[bin_of(rows, rows.confidence, bins)], rows.confidence - rows.correct)


def by_class(rows: Rows, bins: int) -> Iterator[Binned]:
    """For each class c in turn, rows binned by p_c, with gap = p_c - [label is c]."""
    check_bins(bins)
    for probability, label in zip(rows.probabilities.T, rows.one_hot.T, strict=True):
        yield Binned(np.eye(bins)[bin_of(rows, probability, bins)], probability - label)


def check_bins(bins: int) -> None:
    """Raise unless there is at least one bin."""
    if bins < 1:
        raise ConfigurationError(f"bins={bins} is not allowed: at least 1. The convention is {BINS}.")
