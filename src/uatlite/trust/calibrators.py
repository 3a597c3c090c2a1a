"""The contract of a calibrator: fitted on validation logits, applied to any logits, kept as plain JSON.

No calibration: the softmax of the logits as they are.

Temperature scaling (Guo et al., 2017): one positive number that divides all logits.

Input temperature: a temperature for each text, wider where the margin varies more (DESIGN §2).

Vector scaling (Guo et al., 2017): a weight and a bias for each class.
"""

import math
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from uatlite.predictive import PROBIT, widened
from uatlite.trust.one_vs_rest import membership
from uatlite.values import FloatArray, IntArray, check_fit, check_fitted, check_labels, check_logits, check_variance


@runtime_checkable
class Calibrator(Protocol):
    """Turns mean logits (rows, classes) into calibrated probabilities (rows, classes).

    `__init__` stores settings, `fit` validates and learns, and what was learned ends in `_`. A row of the
    result depends on that row alone, and on nothing that is added to all its logits.
    """

    name: ClassVar[str]
    """The key in `CALIBRATORS` and in the dict that `to_dict` returns."""
    keeps_argmax: ClassVar[bool]
    """Whether the most probable class is always the one with the largest logit."""
    uses_variance: ClassVar[bool]
    """Whether `fit` and `probabilities` need the margin's variance (rows,)."""

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn from validation rows: logits (rows, classes), labels (rows,), variance (rows,) or None."""
        ...

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """Probabilities (rows, classes); each row sums to 1."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All that was learned, as plain JSON values; floats survive JSON bit by bit."""
        ...

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        ...


class Identity:
    """softmax(logits): learns nothing, and is the line that every other calibrator has to beat."""

    name: ClassVar[str] = "none"
    keeps_argmax: ClassVar[bool] = True
    uses_variance: ClassVar[bool] = False

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Check logits (rows, classes) and labels (rows,); there is nothing to learn."""
        z = check_logits(logits)
        check_labels(labels, rows=len(z), classes=z.shape[1])
        self.classes_ = z.shape[1]
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """softmax(logits), (rows, classes)."""
        check_fitted(self, "classes_")
        result: FloatArray = softmax(check_logits(logits, classes=self.classes_), axis=1)
        return result

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "none", "classes": ...}."""
        check_fitted(self, "classes_")
        return {"calibrator": self.name, "classes": self.classes_}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls()
        new.classes_ = int(state["classes"])
        return new


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


WIDENINGS = (0.0, *np.geomspace(1e-3, 1e3, 25).tolist())
"""The values of a·π/8·mean(σ²) between which the best is sought; the last one bounds a."""


def best_widening(logits: FloatArray, labels: IntArray, variance: FloatArray) -> float:
    """The a ≥ 0 with the least penalised NLL when T is the best for each a:

        n·NLL + log(1 + s),   s = a·π/8·mean(σ²)

    The penalty is a prior ∝ 1/(1 + s). With few rows the NLL hardly tells a large a from an infinite one, where
    logits/σ is all that counts. The prior then decides; many rows outweigh it (docs/reference/calibration.md).

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


def centred(logits: FloatArray) -> FloatArray:
    """Logits minus their row's mean: class weights would else make a shift of a whole row count."""
    return np.asarray(logits - logits.mean(axis=1, keepdims=True))


def fit_weights(logits: FloatArray, labels: IntArray, prior: float) -> tuple[FloatArray, FloatArray]:
    """Weights and biases (classes,) that minimise NLL + (‖w-1‖² + ‖b‖²)/(2·prior²·rows); convex."""
    rows, classes = logits.shape
    members = membership(labels, classes)
    ridge = 1.0 / (prior**2 * rows)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        weights, biases = parameters[:classes], parameters[classes:]
        log_chances = log_softmax(logits * weights + biases, axis=1)
        pull = parameters - neutral
        value = -(members * log_chances).sum() / rows + 0.5 * ridge * pull @ pull
        excess = (np.exp(log_chances) - members) / rows
        return value, np.concatenate([(excess * logits).sum(axis=0), excess.sum(axis=0)]) + ridge * pull

    neutral = np.concatenate([np.ones(classes), np.zeros(classes)])
    options = {"gtol": 1e-10, "ftol": 1e-15, "maxiter": 2000, "maxfun": 20_000}
    found = minimize(loss, neutral, jac=True, method="L-BFGS-B", options=options)
    return found.x[:classes], found.x[classes:]


class VectorScaling:
    """softmax(w ⊙ z/T + b) on row-centred logits z, shrunk toward plain temperature scaling.

    T is the best temperature, and w - 1 and b have a normal prior of standard deviation `prior`: it keeps the
    weights finite on separable rows and fades as 1/rows.
    """

    name: ClassVar[str] = "vector"
    keeps_argmax: ClassVar[bool] = False
    uses_variance: ClassVar[bool] = False

    def __init__(self, prior: float = 1.0) -> None:
        self.prior = prior

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `weights_` (1/T included) and `biases_`, (classes,) each."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=20, every_class=True)
        temperature = best_temperature(z, y)
        weights, self.biases_ = fit_weights(centred(z) / temperature, y, self.prior)
        self.weights_ = weights / temperature
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """softmax(weights_ ⊙ centred logits + biases_), (rows, classes)."""
        check_fitted(self, "weights_")
        z = centred(check_logits(logits, classes=len(self.weights_)))
        result: FloatArray = softmax(z * self.weights_ + self.biases_, axis=1)
        return result

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "vector", "prior": ..., "weights": [w_k], "biases": [b_k]}."""
        check_fitted(self, "weights_")
        return {
            "calibrator": self.name,
            "prior": self.prior,
            "weights": self.weights_.tolist(),
            "biases": self.biases_.tolist(),
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls(prior=float(state["prior"]))
        new.weights_ = np.array(state["weights"], dtype=np.float64)
        new.biases_ = np.array(state["biases"], dtype=np.float64)
        return new
