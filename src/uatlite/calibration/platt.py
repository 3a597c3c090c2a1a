"""Platt scaling (Platt, 1999): a sigmoid of the log odds for each class against the rest."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_expit, softmax

from uatlite.calibration.inputs import FloatArray, check_fit, check_fitted, check_logits
from uatlite.calibration.one_vs_rest import log_odds, membership


def fit_sigmoid(feature: FloatArray, positive: FloatArray) -> tuple[float, float]:
    """Slope A and offset B of sigmoid(A·f + B) by maximum likelihood on Platt's smoothed targets.

    The targets are (N₊+1)/(N₊+2) and 1/(N₋+2) in place of 1 and 0, so A stays finite on separable rows.
    """
    count = positive.sum()
    targets = np.where(positive > 0, (count + 1) / (count + 2), 1 / (len(positive) - count + 2))
    scale = float(np.abs(feature).max()) or 1.0  # the search sees numbers of order one
    design = np.stack([feature / scale, np.ones_like(feature)], axis=1)

    def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        signal = design @ parameters
        value = -(targets * log_expit(signal) + (1 - targets) * log_expit(-signal)).mean()
        return value, design.T @ (expit(signal) - targets) / len(targets)

    def curvature(parameters: FloatArray) -> FloatArray:
        chance = expit(design @ parameters)
        return np.asarray((design * (chance * (1 - chance))[:, None]).T @ design / len(targets))

    start = np.array([0.0, np.log(targets.mean() / (1 - targets.mean()))])
    found = minimize(
        loss, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-11, "maxiter": 500}
    )
    return float(found.x[0] / scale), float(found.x[1])


class Platt:
    """sigmoid(A_k·f_k + B_k), f_k the log odds of class k against the rest, divided by the sum over classes.

    For two classes the two sigmoids are each other's mirror image, so the sum is 1 and this is Platt's own.
    """

    name: ClassVar[str] = "platt"
    keeps_argmax: ClassVar[bool] = False
    uses_variance: ClassVar[bool] = False

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `slopes_` and `offsets_`, (classes,) each, from logits (rows, classes) and labels (rows,)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=20, every_class=True)
        features, members = log_odds(z), membership(y, z.shape[1])
        fitted = [fit_sigmoid(features[:, k], members[:, k]) for k in range(z.shape[1])]
        self.slopes_ = np.array([slope for slope, _ in fitted])
        self.offsets_ = np.array([offset for _, offset in fitted])
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """The normalised sigmoids, (rows, classes); divided in the log domain, where no sum is 0."""
        check_fitted(self, "slopes_")
        features = log_odds(check_logits(logits, classes=len(self.slopes_)))
        result: FloatArray = softmax(log_expit(features * self.slopes_ + self.offsets_), axis=1)
        return result

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "platt", "slopes": [A_k], "offsets": [B_k]}."""
        check_fitted(self, "slopes_")
        return {"calibrator": self.name, "slopes": self.slopes_.tolist(), "offsets": self.offsets_.tolist()}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls()
        new.slopes_ = np.array(state["slopes"], dtype=np.float64)
        new.offsets_ = np.array(state["offsets"], dtype=np.float64)
        return new
