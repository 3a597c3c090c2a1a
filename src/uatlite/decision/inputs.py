"""What every rule accepts: the checks of scores, errors and shares, in one place."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.calibration.inputs import FloatArray
from uatlite.errors import CalibrationError, ConfigurationError, InputError


def check_scores(scores: ArrayLike) -> FloatArray:
    """Scores as float64 of shape (rows,), without NaN."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"scores have the shape {array.shape}; give one score for each row, (rows,).")
    if np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise InputError(f"{count} of {len(array)} scores are NaN; drop or rescore those rows.")
    return array


def check_rows(scores: ArrayLike, errors: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Scores (rows,) and errors (rows,), True where the prediction is wrong, of at least one row."""
    s, e = check_scores(scores), np.asarray(errors)
    if e.dtype != np.bool_ or e.shape != s.shape:
        raise InputError(
            f"errors have the type {e.dtype} and the shape {e.shape}; {len(s)} scores need the type bool and the "
            f"shape ({len(s)},): predicted != label."
        )
    if len(s) == 0:
        raise CalibrationError("there are no calibration rows; give labelled rows that the model was not trained on.")
    return s, e


def check_share(name: str, value: float) -> None:
    """Raise unless 0 < value < 1."""
    if not 0.0 < value < 1.0:
        raise ConfigurationError(f"{name}={value!r} is not between 0 and 1; five percent is 0.05.")


def check_tells_apart(scores: FloatArray, name: str) -> None:
    """Raise if every row has the same score: no threshold can then choose among them."""
    if (scores == scores[0]).all():
        raise CalibrationError(
            f"all {len(scores)} rows have the {name} score {scores[0]:g}, so it cannot tell whom to answer; "
            "use 'confidence', or two passes or more for a score over passes."
        )
