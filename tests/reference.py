"""Slow and obvious references, and rows whose truth is known, for tests of any room."""

import numpy as np
from scipy.special import softmax

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def draw_logits(rows: int, classes: int, *, seed: int = 0, overconfidence: float = 2.0) -> Rows:
    """Logits (rows, classes), labels (rows,) drawn from softmax(logits / overconfidence), variance (rows,)."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0, 1.5, (rows, classes))
    labels = (rng.random(rows)[:, None] > softmax(true, axis=1).cumsum(axis=1)[:, :-1]).sum(axis=1)
    return overconfidence * true, labels, rng.gamma(2.0, 1.0, rows)
