"""Temperature scaling (Guo et al., 2017): one positive number that divides all logits."""

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import softmax

from uatlite.calibration.inputs import FloatArray, IntArray, check_fit, check_fitted, check_logits

TEMPERATURE_BOUNDS = (0.01, 1000.0)
"""Where the likelihood has no minimiser, T stops here: 0.01 where validation rows are all right with any
sharpness (T → 0), 1000 where the logits tell nothing or mislead (T → ∞)."""


def best_temperature(logits: FloatArray, labels: IntArray) -> float:
    """The T in `TEMPERATURE_BOUNDS` that minimises the mean NLL of softmax(logits / T).

    With β = 1/T the NLL is convex, and its slope mean_i(sum_j p_ij z_ij - z_iy) rises with β, so the
    minimiser is the root of the slope. A root is found to rounding, a minimum only to the square root of it.
    """
    gaps = logits - np.take_along_axis(logits, labels[:, None], axis=1)

    def slope(log_inverse: float) -> float:
        weights = softmax(math.exp(log_inverse) * gaps, axis=1)
        return float((weights * gaps).sum(axis=1).mean())

    sharpest, flattest = (-math.log(bound) for bound in TEMPERATURE_BOUNDS)
    if not gaps.any():  # every logit of a row is the same: no temperature changes anything
        return 1.0
    if slope(flattest) >= 0:
        return TEMPERATURE_BOUNDS[1]
    if slope(sharpest) <= 0:
        return TEMPERATURE_BOUNDS[0]
    return math.exp(-brentq(slope, flattest, sharpest, xtol=1e-12))


class Temperature:
    """softmax(logits / T) with the T that minimises the NLL of the validation rows."""

    name: ClassVar[str] = "temperature"
    keeps_argmax: ClassVar[bool] = True
    uses_variance: ClassVar[bool] = False

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `temperature_` from logits (rows, classes) and labels (rows,)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=10, every_class=False)
        self.classes_ = z.shape[1]
        self.temperature_ = best_temperature(z, y)
        return self

    @property
    def at_bound_(self) -> bool:
        """Whether the likelihood had no minimiser within `TEMPERATURE_BOUNDS`."""
        check_fitted(self, "temperature_")
        return self.temperature_ in TEMPERATURE_BOUNDS

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """softmax(logits / T), (rows, classes)."""
        check_fitted(self, "temperature_")
        z = check_logits(logits, classes=self.classes_)
        result: FloatArray = softmax(z / self.temperature_, axis=1)
        return result

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "temperature", "classes": ..., "temperature": T}."""
        check_fitted(self, "temperature_")
        return {"calibrator": self.name, "classes": self.classes_, "temperature": self.temperature_}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls()
        new.classes_ = int(state["classes"])
        new.temperature_ = float(state["temperature"])
        return new
