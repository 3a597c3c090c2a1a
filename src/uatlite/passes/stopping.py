"""When a text has had enough passes: its decision is settled at a stated confidence.

The passes of a configuration are a finite population of M, the cap, and the decision is that of their mean logits. The
first k passes are a sample of it: passes are exchangeable, also those of stratified masks, whose order is a random
permutation. So for a contrast y of the logits with mean ȳ and standard deviation s over k passes, the mean over all
M passes has the standard error

    s/√k · √(1 - k/M)

around ȳ, and the probability that it lies beyond a boundary b is the tail of Student's t at |ȳ - b| standard errors. A
text stops at a look when the sum of these probabilities is at most (1 - confidence)/looks. The sum is over all other
classes (b = 0, y = top logit minus that class's) and, with a rule to abstain, over its boundary. By the union bound
the decision differs from that of all M passes with probability at most 1 - confidence, over all looks.

Few passes say little about s, so it may borrow strength from other texts (Smyth, 2004): a prior of `weight` degrees of
freedom around a variance that depends on how decided a text is,

    spread² · exp(trend · |ȳ|),

all three learned from validation texts by `fit_prior`. With it a text may stop after a single pass.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError

Floats = NDArray[np.float64]

FEWEST = 2
"""Fewest passes with a standard deviation."""
FEWEST_TEXTS = 10
"""Fewest texts to learn a prior from."""
LARGEST_WEIGHT = 100.0
"""Most degrees of freedom of a prior; beyond that all texts have practically the same spread."""


@dataclass(frozen=True)
class Stopping:
    """The rule by which a text stops. The defaults look at the label alone and use no prior."""

    confidence: float = 0.99
    """probability that the decision is that of all passes"""
    block: int = 2
    """passes between two looks"""
    boundary: float | None = None
    """log-odds of the calibrated confidence above which a text is answered; None without a rule to abstain"""
    temperature: float = 1.0
    """divides the logits for that confidence"""
    spread: float = 0.0
    """the usual standard deviation over passes of a contrast of the logits with mean 0"""
    weight: float = 0.0
    """degrees of freedom of `spread`; 0 if it is not known"""
    trend: float = 0.0
    """change of the logarithm of that variance per logit of the mean's distance from 0"""

    def __post_init__(self) -> None:
        if not 0.5 < self.confidence < 1:
            raise ConfigurationError(f"confidence={self.confidence!r} is not between 0.5 and 1, as in 0.99.")
        if not isinstance(self.block, int) or self.block < FEWEST:
            raise ConfigurationError(f"block={self.block!r} is not a whole number of passes, {FEWEST} or more.")
        if not self.temperature > 0 or self.spread < 0 or self.weight < 0:
            raise ConfigurationError(
                f"temperature={self.temperature!r}, spread={self.spread!r}, weight={self.weight!r}: allowed are a "
                "temperature above 0 and the others from 0 on."
            )

    def looks(self, cap: int) -> tuple[int, ...]:
        """The numbers of passes after which a text may stop before the cap; the first is 1 with a prior."""
        first = (1,) if self.weight > 0 and cap > 1 else ()
        return (*first, *range(self.block, cap, self.block))

    def settled(self, logits: Floats, cap: int) -> NDArray[np.bool_]:
        """Which texts may stop, from the logits (passes, texts, classes) of their first passes: (texts,)."""
        looks = max(1, len(self.looks(cap)))
        return np.asarray(self._chance_of_change(logits, cap) <= (1 - self.confidence) / looks)

    def counts(self, logits: Floats) -> NDArray[np.int64]:
        """The passes that each text would have run, from the logits of all: (passes, texts, classes) to (texts,)."""
        cap, texts, _ = logits.shape
        counts = np.full(texts, cap, dtype=np.int64)
        for look in reversed(self.looks(cap)):
            counts[self.settled(logits[:look], cap)] = look
        return counts

    def _chance_of_change(self, logits: Floats, cap: int) -> Floats:
        """An upper bound on the probability that the mean over all passes decides otherwise: (texts,)."""
        mean = logits.mean(axis=0)
        top = mean.argmax(axis=1)[:, None]
        contrasts = np.take_along_axis(logits, top[None], axis=2) - logits
        chances = self._tail(contrasts, 0.0, cap)
        np.put_along_axis(chances, top, 0.0, axis=1)
        total = chances.sum(axis=1)
        if self.boundary is None:
            return np.asarray(total)
        odds = self._odds(logits, mean, top)
        return np.asarray(total + self._tail(odds, self.temperature * self.boundary, cap))

    def _odds(self, logits: Floats, mean: Floats, top: NDArray[np.int64]) -> Floats:
        """T·log-odds of the top class (passes, texts), to first order around the mean logits; exact for two classes."""
        from scipy.special import logsumexp, softmax

        rest = mean / self.temperature
        np.put_along_axis(rest, top, -np.inf, axis=1)
        best = np.take_along_axis(mean, top, axis=1)[:, 0]
        at_mean = best - self.temperature * logsumexp(rest, axis=1)
        weights = -softmax(rest, axis=1)
        np.put_along_axis(weights, top, 1.0, axis=1)
        return np.asarray(at_mean + ((logits - mean) * weights).sum(axis=2))

    def _tail(self, values: Floats, boundary: float, cap: int) -> Floats:
        """The probability that the mean over `cap` passes is beyond the boundary, from (passes, ...): (...)."""
        from scipy.stats import t as student  # importing it takes half a second

        count = len(values)
        own = count - 1
        freedom = self.weight + own
        mean = values.mean(axis=0)
        usual = self.spread**2 * np.exp(self.trend * np.abs(mean))
        found = values.var(axis=0, ddof=1) if own else 0.0
        error = np.sqrt((self.weight * usual + own * found) / freedom / count * (1 - count / cap))
        distance = np.abs(mean - boundary)
        # Without any spread the mean stays where it is; on the boundary it may still be decided either way.
        errors_away = np.divide(distance, error, out=np.where(distance > 0, np.inf, 0.0), where=error > 0)
        return np.asarray(student.sf(errors_away, freedom))


def fit_prior(logits: Floats) -> tuple[float, float, float]:
    """`spread`, `weight` and `trend` from the logits of all passes of validation texts, (passes, texts, classes).

    With d = passes - 1 and s² the variance of the top-2 margin y of each text, log s² has over texts the mean
    log spread² + trend·|ȳ| + ψ(d/2) - log(d/2) - ψ(weight/2) + log(weight/2) and the variance ψ'(d/2) + ψ'(weight/2).
    """
    from scipy.optimize import brentq
    from scipy.special import digamma, polygamma

    best = np.argsort(-logits.mean(axis=0), axis=1, kind="stable")[:, :2]
    pair = np.take_along_axis(logits, best[None], axis=2)
    margins = pair[..., 0] - pair[..., 1]
    variance, sizes = margins.var(axis=0, ddof=1), margins.mean(axis=0)
    half = (len(logits) - 1) / 2
    logs = np.log(variance[variance > 0]) - digamma(half) + np.log(half)
    if len(logs) < FEWEST_TEXTS:
        return 0.0, 0.0, 0.0
    trend, at_zero = np.polyfit(sizes[variance > 0], logs, 1)
    residuals = logs - at_zero - trend * sizes[variance > 0]
    excess = float((residuals**2).sum() / (len(logs) - 2) - polygamma(1, half))
    half_weight = LARGEST_WEIGHT / 2
    if excess > polygamma(1, half_weight):
        half_weight = brentq(lambda x: polygamma(1, x) - excess, 1e-3, half_weight)
    spread = np.exp(at_zero + digamma(half_weight) - np.log(half_weight)) ** 0.5
    return float(spread), 2 * float(half_weight), float(trend)
