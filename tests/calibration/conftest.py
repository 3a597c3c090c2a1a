"""Validation rows for calibrators: logits whose true temperature is known."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def draw(rows: int, classes: int, *, seed: int = 0, overconfidence: float = 2.0) -> Rows:
    """Logits (rows, classes), labels (rows,) drawn from softmax(logits / overconfidence), variance (rows,)."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0, 1.5, (rows, classes))
    chances = softmax(true, axis=1)
    labels = (rng.random(rows)[:, None] > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return overconfidence * true, labels, rng.gamma(2.0, 1.0, rows)


@pytest.fixture
def rows() -> Callable[..., Rows]:
    return draw
