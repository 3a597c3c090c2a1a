"""Rows whose truth is known: logits with a true temperature, and scores with a true risk at every threshold."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import softmax

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
Sample = tuple[np.ndarray, np.ndarray]


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


def draw_scores(rows: int, rng: np.random.Generator) -> Sample:
    """Scores (rows,) uniform on [0, 1] and errors (rows,) with P(error | score s) = (1 - s) / 2."""
    scores = rng.random(rows)
    return scores, rng.random(rows) < (1 - scores) / 2


def true_risk(threshold: float) -> float:
    """P(error | score > t) = (1 - t) / 4."""
    return 0.0 if threshold == np.inf else (1 - max(threshold, 0.0)) / 4


@pytest.fixture
def sample() -> Callable[[int, np.random.Generator], Sample]:
    return draw_scores


@pytest.fixture
def risk_of() -> Callable[[float], float]:
    return true_risk
