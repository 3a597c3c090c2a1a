"""What every calibrator accepts: the checks of logits, labels, variances and passes, in one place."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def check_logits(logits: ArrayLike, *, classes: int | None = None) -> FloatArray:
    """Mean logits as float64 of shape (rows, classes), finite, with the classes that were fitted."""
    array = np.asarray(logits, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(
            f"logits have the shape {array.shape}; they must be (rows, classes) with two classes or more. "
            "Average logits of shape (passes, rows, classes) over the passes first."
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise InputError(f"{bad} of {len(array)} rows of logits hold NaN or infinity; drop or rescore them.")
    if classes is not None and array.shape[1] != classes:
        raise InputError(
            f"logits have {array.shape[1]} classes, the calibrator was fitted on {classes}; "
            "fit it again on logits of this model."
        )
    return array


def check_labels(labels: ArrayLike, *, rows: int, classes: int) -> IntArray:
    """Labels as int64 of shape (rows,), each in 0 .. classes-1."""
    array = np.asarray(labels)
    if array.shape != (rows,):
        raise InputError(f"labels have the shape {array.shape}; {rows} rows of logits need the shape ({rows},).")
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"labels have the type {array.dtype}; give class indices 0 .. {classes - 1} as integers.")
    outside = array[(array < 0) | (array >= classes)]
    if outside.size:
        raise InputError(
            f"label {int(outside[0])} is outside 0 .. {classes - 1} ({outside.size} such rows); "
            "map the labels to the columns of the logits and drop unlabelled rows."
        )
    return array.astype(np.int64)


def check_fit(
    logits: ArrayLike, labels: ArrayLike, *, name: str, minimum_rows: int, every_class: bool
) -> tuple[FloatArray, IntArray]:
    """Logits (rows, classes) and labels (rows,) that a calibrator can learn from, else an error with the reason."""
    z = check_logits(logits)
    y = check_labels(labels, rows=len(z), classes=z.shape[1])
    if len(z) < minimum_rows:
        raise CalibrationError(
            f"{len(z)} labelled rows are too few for the calibrator {name!r}, which needs {minimum_rows}; "
            "label more rows, or use 'none'."
        )
    seen = np.unique(y)
    if len(seen) < 2:
        raise CalibrationError(
            f"all {len(y)} labels are {int(seen[0])}: such rows are no sample of the data; "
            "give validation rows of at least two classes."
        )
    if every_class and len(seen) < z.shape[1]:
        absent = np.setdiff1d(np.arange(z.shape[1]), seen).tolist()
        raise CalibrationError(
            f"the calibrator {name!r} fits each class by itself and no row has the label {absent}; "
            "add rows of it, or use 'temperature'."
        )
    return z, y


def check_variance(variance: ArrayLike | None, *, rows: int) -> FloatArray:
    """The margin's variance as float64 of shape (rows,), finite and not negative."""
    if variance is None:
        raise InputError(
            "the calibrator 'input-temperature' needs the margin's variance of each row; "
            "pass variance=margin_variance(logits of every pass), or use 'temperature'."
        )
    array = np.asarray(variance, dtype=np.float64)
    if array.shape != (rows,):
        raise InputError(f"variance has the shape {array.shape}; {rows} rows of logits need the shape ({rows},).")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("variance holds a negative number, NaN or infinity; give a variance, not a log or a std.")
    return array


def check_passes(logits: ArrayLike, *, minimum: int) -> FloatArray:
    """Logits of every pass as float64, (passes, rows, classes), finite, with `minimum` passes or more."""
    array = np.asarray(logits, dtype=np.float64)
    if array.ndim != 3 or array.shape[2] < 2:
        raise InputError(
            f"logits of every pass have the shape {array.shape}; they must be (passes, rows, classes) "
            "with two classes or more."
        )
    if array.shape[0] < minimum:
        raise InputError(
            f"{array.shape[0]} pass gives no spread over passes; run at least {minimum} passes, "
            "or use a method that gives its variance without sampling."
        )
    if not np.isfinite(array).all():
        raise InputError("logits of the passes hold NaN or infinity; drop or rescore those rows.")
    return array


def check_fitted(calibrator: Any, attribute: str) -> None:
    """Raise unless `fit` has run."""
    if not hasattr(calibrator, attribute):
        raise CalibrationError(
            f"{type(calibrator).__name__} is not fitted; call fit(logits, labels) on validation rows first."
        )
