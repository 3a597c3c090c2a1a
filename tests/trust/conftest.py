"""Scores with a true risk at every threshold."""

from collections.abc import Callable

import numpy as np
import pytest

Sample = tuple[np.ndarray, np.ndarray]


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
