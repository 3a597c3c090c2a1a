"""What Platt, histogram binning and isotonic share: each class against all others, then normalised."""

import numpy as np
from scipy.special import log_softmax, logsumexp

from uatlite.calibration.inputs import FloatArray, IntArray


def log_odds(logits: FloatArray) -> FloatArray:
    """log(p_k / (1 - p_k)) of the softmax: z_k - logsumexp of the other logits, (rows, classes).

    Unlike the raw logit it does not change when a row's logits are shifted, unlike p_k it does not saturate,
    and for two classes it is the margin.
    """
    logs = log_softmax(logits, axis=1)
    top = logits.argmax(axis=1)[:, None]
    others = logs.copy()
    np.put_along_axis(others, top, -np.inf, axis=1)
    # 1 - p_k loses all digits as p_k nears 1, which only the top class can: for that one the others are summed.
    odds = logs - np.log1p(-np.minimum(np.exp(logs), 0.5))
    at_top = np.take_along_axis(logs, top, axis=1) - logsumexp(others, axis=1, keepdims=True)
    np.put_along_axis(odds, top, at_top, axis=1)
    return np.asarray(odds)


def membership(labels: IntArray, classes: int) -> FloatArray:
    """1.0 where the row has the class, else 0.0, (rows, classes)."""
    return np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)


def normalised(shares: FloatArray) -> FloatArray:
    """Rows of positive shares (rows, classes) divided by their sums."""
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
