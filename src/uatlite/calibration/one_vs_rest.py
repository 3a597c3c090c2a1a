"""What Platt, histogram binning and isotonic share: each class against all others, then normalised."""

import numpy as np
from scipy.special import logsumexp

from uatlite.calibration.inputs import FloatArray, IntArray


def log_odds(logits: FloatArray) -> FloatArray:
    """log(p_k / (1 - p_k)) of the softmax: z_k - logsumexp of the other logits, (rows, classes).

    Unlike the raw logit it does not change when a row's logits are shifted, unlike p_k it does not saturate,
    and for two classes it is the margin.
    """
    columns = [logits[:, k] - logsumexp(np.delete(logits, k, axis=1), axis=1) for k in range(logits.shape[1])]
    return np.stack(columns, axis=1)


def membership(labels: IntArray, classes: int) -> FloatArray:
    """1.0 where the row has the class, else 0.0, (rows, classes)."""
    return np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)


def normalised(shares: FloatArray) -> FloatArray:
    """Rows of positive shares (rows, classes) divided by their sums."""
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
