"""The variance of the margin over passes: what the input temperature reads."""

import numpy as np
from numpy.typing import ArrayLike

from uatlite import predictive
from uatlite.calibration.inputs import FloatArray, check_passes
from uatlite.predictive import Counts


def margin_variance(pass_logits: ArrayLike, counts: Counts | None = None) -> FloatArray:
    """`predictive.margin_variance` of checked logits of two passes or more: (passes, rows, classes) to (rows,).

    Where rows have different numbers of passes, `counts` (rows,), a row with a single one has the variance 0.
    """
    if counts is None:
        return predictive.margin_variance(check_passes(pass_logits, minimum=2))
    logits = np.asarray(pass_logits, dtype=np.float64)
    for passes, rows in predictive.groups(counts):
        check_passes(logits[:passes, rows], minimum=1)
    return predictive.margin_variance(logits, counts)
