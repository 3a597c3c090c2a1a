"""Calibration rows divided in two: those that fit a calibrator, and those that decide about what it gives.

A promise about new rows must not rest on rows that fitted what it is about.
"""

import numpy as np
from numpy.typing import NDArray

FITTING_SHARE = 3
"""One row in so many fits: a temperature needs few rows, a promise many."""


def fitting_rows(rows: int, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows fit, (rows,), a third drawn by the seed; the others decide.

    Not by label: the rows that decide must be a plain random sample, or the promise's proof does not cover them.
    """
    return np.asarray(np.random.default_rng(seed).permutation(rows) % FITTING_SHARE == 0)
