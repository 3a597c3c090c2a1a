"""Isotonic regression (Zadrozny & Elkan, 2002): a rising step function of the log odds for each class."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.calibration.inputs import FloatArray, check_fit, check_fitted, check_logits
from uatlite.calibration.one_vs_rest import log_odds, membership, normalised


def fit_rising(feature: FloatArray, positive: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Knots and values of scikit-learn's isotonic fit, kept off 0 and 1.

    The ends are those of n rows plus one spread as the class is overall (share π): π/(n+1) and (n+π)/(n+1).
    """
    from sklearn.isotonic import IsotonicRegression  # slow to import, and not needed by all

    rows, share = len(feature), positive.mean()
    fitted = IsotonicRegression(y_min=share / (rows + 1), y_max=(rows + share) / (rows + 1), out_of_bounds="clip").fit(
        feature, positive
    )
    return np.asarray(fitted.X_thresholds_, dtype=np.float64), np.asarray(fitted.y_thresholds_, dtype=np.float64)


class Isotonic:
    """Per class, the isotonic fit over its log odds, linear between knots; divided by the sum over them."""

    name: ClassVar[str] = "isotonic"
    keeps_argmax: ClassVar[bool] = False
    uses_variance: ClassVar[bool] = False

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `knots_` and `values_`, one array for each class, from logits (rows, classes)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=50, every_class=True)
        features, members = log_odds(z), membership(y, z.shape[1])
        fitted = [fit_rising(features[:, k], members[:, k]) for k in range(z.shape[1])]
        self.knots_ = [knots for knots, _ in fitted]
        self.values_ = [values for _, values in fitted]
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """The interpolated values, constant beyond the outer knots, normalised, (rows, classes)."""
        check_fitted(self, "knots_")
        features = log_odds(check_logits(logits, classes=len(self.knots_)))
        shares = [
            np.interp(feature, knots, values)
            for knots, values, feature in zip(self.knots_, self.values_, features.T, strict=True)
        ]
        return normalised(np.stack(shares, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "isotonic", "knots": [[...]], "values": [[...]]}."""
        check_fitted(self, "knots_")
        return {
            "calibrator": self.name,
            "knots": [knots.tolist() for knots in self.knots_],
            "values": [values.tolist() for values in self.values_],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls()
        new.knots_ = [np.array(knots, dtype=np.float64) for knots in state["knots"]]
        new.values_ = [np.array(values, dtype=np.float64) for values in state["values"]]
        return new
