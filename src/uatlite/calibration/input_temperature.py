"""Input temperature: a temperature for each text, wider where the margin varies more (DESIGN §2)."""

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from uatlite.calibration.inputs import (
    FloatArray,
    IntArray,
    check_fit,
    check_fitted,
    check_logits,
    check_variance,
)
from uatlite.calibration.temperature import best_temperature
from uatlite.predictive import PROBIT, widened

WIDENINGS = (0.0, *np.geomspace(1e-3, 1e3, 25).tolist())
"""The values of a·π/8·mean(σ²) between which the best is sought; the last one bounds a."""


def best_widening(logits: FloatArray, labels: IntArray, variance: FloatArray) -> float:
    """The a ≥ 0 with the least penalised NLL when T is the best for each a:

        n·NLL + log(1 + s),   s = a·π/8·mean(σ²)

    The penalty is a prior ∝ 1/(1 + s). With few rows the NLL hardly tells a large a from an infinite one, where
    logits/σ is all that counts. The prior then decides; many rows outweigh it (docs/calibration.md).

    For a fixed a the NLL is convex in 1/T, so T is profiled out and one dimension is left. It need not be
    convex in a: a grid finds the valley, a bounded search its floor. Exactly 0 unless more is truly better.
    """
    spread = float(variance.mean())
    if spread == 0.0:
        return 0.0
    rows = np.arange(len(labels))

    def profile(widening: float) -> float:
        scaled = logits * widened(variance, widening)[:, None]
        losses = -log_softmax(scaled / best_temperature(scaled, labels), axis=1)[rows, labels]
        return float(losses.mean() + math.log1p(widening * PROBIT * spread) / len(rows))

    grid = [step / (PROBIT * spread) for step in WIDENINGS]
    losses = [profile(widening) for widening in grid]
    best = int(np.argmin(losses))
    valley = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(profile, bounds=valley, method="bounded", options={"xatol": 1e-9 * valley[1]})
    loss, widening = min((losses[best], grid[best]), (float(found.fun), float(found.x)))
    # A gain of rounding size is no gain: then a is 0 and the result is temperature scaling to the last bit.
    return widening if loss < losses[0] - 1e-12 else 0.0


class InputTemperature:
    """softmax(logits / (T·sqrt(1 + a·π/8·σ²))) with σ² the variance of the margin, T > 0 and a ≥ 0 by penalised NLL.

    At a = 0 it is temperature scaling exactly, so where the variance does not help, nothing is lost.
    """

    name: ClassVar[str] = "input-temperature"
    keeps_argmax: ClassVar[bool] = True
    uses_variance: ClassVar[bool] = True

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `temperature_` (T) and `widening_` (a) from validation rows; variance is (rows,)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=20, every_class=False)
        v = check_variance(variance, rows=len(z))
        self.classes_ = z.shape[1]
        self.widening_ = best_widening(z, y, v)
        self.temperature_ = best_temperature(z * widened(v, self.widening_)[:, None], y)
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """softmax(logits / (T·sqrt(1 + a·π/8·σ²))), (rows, classes)."""
        check_fitted(self, "temperature_")
        z = check_logits(logits, classes=self.classes_)
        scales = widened(check_variance(variance, rows=len(z)), self.widening_)
        result: FloatArray = softmax(z * scales[:, None] / self.temperature_, axis=1)
        return result

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "input-temperature", "classes": ..., "temperature": T, "widening": a}."""
        check_fitted(self, "temperature_")
        return {
            "calibrator": self.name,
            "classes": self.classes_,
            "temperature": self.temperature_,
            "widening": self.widening_,
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls()
        new.classes_ = int(state["classes"])
        new.temperature_ = float(state["temperature"])
        new.widening_ = float(state["widening"])
        return new
