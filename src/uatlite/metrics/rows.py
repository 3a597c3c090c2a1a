"""Probabilities and labels, checked once, with what every metric derives from them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import InputError
from uatlite.metrics.ranking import Floats, Ranking

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
