"""Vector scaling (Guo et al., 2017): a weight and a bias for each class."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from uatlite.calibration.inputs import FloatArray, IntArray, check_fit, check_fitted, check_logits
from uatlite.calibration.one_vs_rest import membership
from uatlite.calibration.temperature import best_temperature


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
