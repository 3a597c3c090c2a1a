"""The variance of the margin over passes: what the input temperature reads."""

import numpy as np
from numpy.typing import ArrayLike

from uatlite.calibration.inputs import FloatArray, check_passes


def margin_variance(pass_logits: ArrayLike) -> FloatArray:
    """Var over passes (ddof 1) of the top-1 minus the top-2 logit: (passes, rows, classes) → (rows,).

    The two classes are those of the mean logits and stay the same in every pass; else a pass that swaps them
    would count as a small change of an always positive margin.
    """
    logits = check_passes(pass_logits, minimum=2)
    top_two = np.argsort(-logits.mean(axis=0), axis=1, kind="stable")[:, :2]
    chosen = np.take_along_axis(logits, top_two[None], axis=2)
    return np.asarray((chosen[:, :, 0] - chosen[:, :, 1]).var(axis=0, ddof=1))
