"""Exact statements from counts: how many errors a promise allows, and how far a share may be off."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom


def risk_upper_bound(errors: int, answered: int, confidence: float) -> float:
    """Clopper–Pearson: the risk r with P(Binomial(answered, r) ≤ errors) = 1 - confidence; 1 if all erred.

    For a threshold that was fixed beforehand the true selective risk is at most this with the confidence.
    """
    if errors >= answered:
        return 1.0
    return float(beta.ppf(confidence, errors + 1, answered - errors))


def allowed_errors(answered: ArrayLike, target: float, confidence: float) -> NDArray[np.int64]:
    """The most errors among `answered` rows with which the Clopper–Pearson bound is at most `target`; else -1.

    The largest k with P(Binomial(answered, target) ≤ k) ≤ 1 - confidence, for each entry of `answered`.
    """
    trials = np.asarray(answered, dtype=np.int64)
    level = 1.0 - confidence
    most = np.asarray(binom.ppf(level, trials, target), dtype=np.int64)  # the first k with P(≤ k) ≥ level
    return np.where(binom.cdf(most, trials, target) <= level, most, most - 1)


def coverage_interval(answered: int, rows: int, confidence: float) -> tuple[float, float]:
    """Answered share ± sqrt(log(2/(1-confidence)) / (2·rows)), cut to [0, 1].

    Dvoretzky–Kiefer–Wolfowitz with Massart's constant: it holds for all thresholds at once, and so for one
    that was chosen on the same rows.
    """
    share = answered / rows
    width = math.sqrt(math.log(2.0 / (1.0 - confidence)) / (2.0 * rows))
    return max(share - width, 0.0), min(share + width, 1.0)
