"""Input temperature: each text has its own temperature, higher where the margin varies more over the passes."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.predictive import OFFSET, PROBIT, log_softmax, logit_features, softmax, widened
from uatlite.trust.calibrators import Learned, best_temperature, check_fit, check_variance, vector
from uatlite.values import Floats, Integers, check_logits

WIDENINGS = (0.0, *np.geomspace(1e-3, 1e3, 25).tolist())
"""The grid of a·π/8·mean(σ²) on which the search for a begins; the last value bounds a."""


def best_widening(logits: Floats, labels: Integers, variance: Floats) -> float:
    """The a ≥ 0 with the least penalised NLL when T is the best for each a:

        n·NLL + log(1 + s),   s = a·π/8·mean(σ²)

    The penalty is a prior ∝ 1/(1 + s). With few rows the NLL hardly tells a large a from an infinite one, where
    only logits/σ counts. The prior then decides; many rows outweigh it (docs/reference/calibration.md).

    For a fixed a the NLL is convex in 1/T, so T is profiled out and one dimension is left. It need not be
    convex in a: a grid finds the valley, a bounded search its minimum. Exactly 0 unless a larger a is better.
    """
    profile = _profile(logits, labels, variance)
    spread = float(variance.mean())
    if spread == 0.0:
        return 0.0
    grid = [step / (PROBIT * spread) for step in WIDENINGS]
    losses = [profile(widening) for widening in grid]
    best = int(np.argmin(losses))
    valley = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(profile, bounds=valley, method="bounded", options={"xatol": 1e-9 * valley[1]})
    loss, widening = min((losses[best], grid[best]), (float(found.fun), float(found.x)))
    # A gain of the size of rounding does not count: then a is 0 and the result is exactly temperature scaling.
    return widening if loss < losses[0] - 1e-12 else 0.0


def _profile(logits: Floats, labels: Integers, variance: Floats) -> Callable[[float], float]:
    """a -> the penalised NLL of `best_widening`, divided by the number of rows, with the best T."""
    rows, spread = np.arange(len(labels)), float(variance.mean())

    def profile(widening: float) -> float:
        scaled = logits * widened(variance, widening)[:, None]
        losses = -log_softmax(scaled / best_temperature(scaled, labels))[rows, labels]
        return float(losses.mean() + math.log1p(widening * PROBIT * spread) / len(rows))

    return profile


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The values of b that are tried."""
COARSE = WIDENINGS[1::4]
"""The values of a·π/8·mean(σ²) on which they are compared."""


def best_share(logits: Floats, labels: Integers, effective: Callable[[float], Floats]) -> float:
    """The b of `SHARES` with the least penalised NLL over a grid of a: that of `best_widening`, and b²/2.

    The penalty is a normal prior of standard deviation 1, whose middle is what the logits alone tell.
    """

    def loss(share: float) -> float:
        variance = effective(share)
        spread = float(variance.mean())
        if spread == 0.0:
            return math.inf
        profile = _profile(logits, labels, variance)
        least = min(profile(step / (PROBIT * spread)) for step in COARSE)
        return least + share**2 / (2 * len(labels))

    return min(SHARES, key=loss)


class InputTemperature(Learned):
    """softmax(logits / (T·sqrt(1 + a·π/8·σ̃²))),   log σ̃² = u + b·(log σ² - u)

    with σ² the variance of the margin, and u what its logarithm usually is for such logits: a linear regression on the
    highest logits, their margin and the entropy, for which no labels are needed. T > 0, a ≥ 0 and b, from 0 to 1, have
    the least penalised NLL. b is the share of the unusual in a variance that counts. In another domain variances are
    unusual for reasons of their own, such as the length of texts, so b is 0 unless rows speak for more.

    At a = 0 it is temperature scaling exactly, so nothing is lost where the variance does not help.
    """

    name = "input-temperature"
    keeps_argmax = True
    uses_variance = True
    learned: ClassVar = {
        "classes": int,
        "temperature": float,
        "widening": float,
        "share": float,
        "usual": vector,
        "limits": vector,
    }
    classes_: int
    temperature_: float
    widening_: float
    share_: float
    """b"""
    usual_: Floats
    """(features + 1,): the weights of u, and its intercept"""
    limits_: Floats
    """(2,): the lowest and highest log σ² of the validation rows, which log σ̃² keeps to"""

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `temperature_` (T), `widening_` (a) and `share_` (b) from validation rows; variance is (rows,)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=20, every_class=False)
        v = check_variance(variance, rows=len(z))
        self.classes_ = z.shape[1]
        logs = np.log(v + OFFSET)
        self.limits_ = np.array([logs.min(), logs.max()])
        self.usual_ = _regression(logit_features(z), logs)
        self.share_ = best_share(z, y, lambda share: self._effective(z, v, share))
        effective = self._effective(z, v, self.share_)
        self.widening_ = best_widening(z, y, effective)
        self.temperature_ = best_temperature(z * widened(effective, self.widening_)[:, None], y)
        return self

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described; one without b is older, when the variance itself counted."""
        older = {"share": 1.0, "usual": [], "limits": [-1e9, 1e9]}
        return super().from_dict({**older, **state})

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """softmax(logits / (T·sqrt(1 + a·π/8·σ̃²))), (rows, classes)."""
        return self.probabilities_with(logits, self.effective_variance(logits, variance))

    def effective_variance(self, logits: ArrayLike, variance: ArrayLike | None) -> Floats:
        """σ̃² (rows,)."""
        self.check_fitted()
        z = check_logits(logits, classes=self.classes_)
        return self._effective(z, check_variance(variance, rows=len(z)), self.share_)

    def probabilities_with(self, logits: ArrayLike, effective: ArrayLike | None) -> Floats:
        """The same with σ̃² given."""
        self.check_fitted()
        z = check_logits(logits, classes=self.classes_)
        scales = widened(check_variance(effective, rows=len(z)), self.widening_)
        return softmax(z * scales[:, None] / self.temperature_)

    def _effective(self, logits: Floats, variance: Floats, share: float) -> Floats:
        logs = np.log(variance + OFFSET)
        if share < 1:
            usual = logit_features(logits) @ self.usual_[:-1] + self.usual_[-1]
            logs = usual + share * (logs - usual)
        return np.asarray(np.maximum(np.exp(np.clip(logs, *self.limits_)) - OFFSET, 0.0))


def _regression(features: Floats, y: Floats) -> Floats:
    """Weights and intercept (features + 1,) of the least-squares regression of y (rows,), the smallest if many fit."""
    centre, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9 * np.abs(scale).max(), scale, np.inf)
    weights = np.linalg.lstsq((features - centre) / scale, y - y.mean(), rcond=1e-9)[0] / scale
    return np.append(weights, y.mean() - centre @ weights)
