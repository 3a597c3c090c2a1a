"""Rows in order of a score, with equal scores kept together: the ground of every curve.

Probabilities and labels, checked once, with what every metric derives from them.

Fixed-width bins of probabilities, and sums over them for many resamples at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import ConfigurationError, InputError

Floats = NDArray[np.float64]


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


Integers = NDArray[np.int64]

# Probabilities published with five decimals miss 1 by up to classes * 5e-6, which is 7.5e-4 for the 150
# classes of CLINC150; a float32 softmax misses it by 1e-6. Logits, percentages and bfloat16 rows miss it by
# more.
SUM_TOLERANCE = 1e-3


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
        """Check both arrays and bind them; raises InputError with the place of the first fault."""
        given = np.asarray(probabilities)
        values = check_probabilities(given)
        precision = given.dtype if given.dtype.kind == "f" else np.dtype(np.float64)
        return cls(values, check_labels(labels, *values.shape), precision)

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


def check_probabilities(given: NDArray[Any]) -> Floats:
    """Probabilities as float64 (rows, classes), or an InputError that names the first bad row."""
    if given.ndim != 2 or 0 in given.shape:
        raise InputError(
            f"probabilities have shape {given.shape}; allowed is (rows, classes), at least one of each. "
            "For a single column p of a binary task pass np.column_stack([1 - p, p])."
        )
    if given.dtype.kind not in "fiub":
        raise InputError(f"probabilities have type {given.dtype}; allowed are real numbers. Convert them first.")
    values = given.astype(np.float64)
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InputError(
            f"probabilities[{row}, {column}] is {values[row, column]}; allowed are finite numbers "
            "from 0 to 1. Pass the softmax of the logits, and drop rows without a prediction."
        )
    sums = values.sum(axis=1)
    row = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[row] - 1) > SUM_TOLERANCE:
        raise InputError(
            f"probabilities[{row}] sums to {sums[row]:.6g}; allowed is 1 within {SUM_TOLERANCE:g}. "
            "Pass the softmax of the logits, computed in float32 or better."
        )
    return values


def check_labels(labels: ArrayLike, rows: int, classes: int) -> Integers:
    """Labels as int64 (rows,), or an InputError that names the first bad one."""
    given = np.asarray(labels)
    if given.shape != (rows,):
        raise InputError(f"labels have shape {given.shape}; allowed is ({rows},), one for each row of probabilities.")
    if given.dtype.kind not in "iu":
        raise InputError(
            f"labels have type {given.dtype}; allowed are integers, the column of the true class. "
            "Map names to columns, or convert with labels.astype(int)."
        )
    outside = (given < 0) | (given >= classes)
    if outside.any():
        row = int(np.argmax(outside))
        raise InputError(
            f"labels[{row}] is {given[row]}; allowed are 0 to {classes - 1} for {classes} classes. "
            "Drop rows without a label; score out-of-scope rows with auroc, aupr or fpr95."
        )
    return given.astype(np.int64)


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
