"""What Platt, histogram binning and isotonic share: each class against all others, then normalised.

Platt scaling (Platt, 1999): a sigmoid of the log odds for each class against the rest.

Histogram binning (Zadrozny & Elkan, 2001): the observed frequency of each class in bins of equal mass.

Isotonic regression (Zadrozny & Elkan, 2002): a rising step function of the log odds for each class.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, logsumexp, softmax

from uatlite.errors import ConfigurationError
from uatlite.values import FloatArray, IntArray, check_fit, check_fitted, check_logits


def log_odds(logits: FloatArray) -> FloatArray:
    """log(p_k / (1 - p_k)) of the softmax: z_k - logsumexp of the other logits, (rows, classes).

    Unlike the raw logit it does not change when a row's logits are shifted, unlike p_k it does not saturate,
    and for two classes it is the margin.
    """
    logs = log_softmax(logits, axis=1)
    top = logits.argmax(axis=1)[:, None]
    others = logs.copy()
    np.put_along_axis(others, top, -np.inf, axis=1)
    # 1 - p_k loses all digits as p_k nears 1, which only the top class can: for that one the others are summed.
    odds = logs - np.log1p(-np.minimum(np.exp(logs), 0.5))
    at_top = np.take_along_axis(logs, top, axis=1) - logsumexp(others, axis=1, keepdims=True)
    np.put_along_axis(odds, top, at_top, axis=1)
    return np.asarray(odds)


def membership(labels: IntArray, classes: int) -> FloatArray:
    """1.0 where the row has the class, else 0.0, (rows, classes)."""
    return np.asarray(labels[:, None] == np.arange(classes), dtype=np.float64)


def normalised(shares: FloatArray) -> FloatArray:
    """Rows of positive shares (rows, classes) divided by their sums."""
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


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


def bin_frequencies(feature: FloatArray, positive: FloatArray, bins: int) -> tuple[FloatArray, FloatArray]:
    """Inner edges (≤ bins-1,) at the feature's quantiles, and the frequency of the class in each bin.

    One more row, spread as the class is overall (share π), joins every bin: (positives + π) / (rows + 1).
    So no frequency is 0 or 1, and no later row has an infinite loss.
    """
    edges = np.unique(np.quantile(feature, np.arange(1, bins) / bins))
    which = np.searchsorted(edges, feature, side="right")
    rows = np.bincount(which, minlength=len(edges) + 1)
    positives = np.bincount(which, weights=positive, minlength=len(edges) + 1)
    return edges, (positives + positive.mean()) / (rows + 1)


class HistogramBinning:
    """Per class, `bins` bins of equal mass over its log odds; frequencies divided by the sum over classes."""

    name: ClassVar[str] = "histogram"
    keeps_argmax: ClassVar[bool] = False
    uses_variance: ClassVar[bool] = False

    def __init__(self, bins: int = 10) -> None:
        self.bins = bins

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn `edges_` and `frequencies_`, one array for each class, from logits (rows, classes)."""
        if self.bins < 2:
            raise ConfigurationError(f"bins={self.bins} makes no histogram; use 2 or more.")
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=5 * self.bins, every_class=True)
        features, members = log_odds(z), membership(y, z.shape[1])
        fitted = [bin_frequencies(features[:, k], members[:, k], self.bins) for k in range(z.shape[1])]
        self.edges_ = [edges for edges, _ in fitted]
        self.frequencies_ = [frequencies for _, frequencies in fitted]
        return self

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> FloatArray:
        """The frequency of each class's bin, normalised, (rows, classes)."""
        check_fitted(self, "edges_")
        features = log_odds(check_logits(logits, classes=len(self.edges_)))
        shares = [
            frequencies[np.searchsorted(edges, feature, side="right")]
            for edges, frequencies, feature in zip(self.edges_, self.frequencies_, features.T, strict=True)
        ]
        return normalised(np.stack(shares, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """{"calibrator": "histogram", "bins": ..., "edges": [[...]], "frequencies": [[...]]}."""
        check_fitted(self, "edges_")
        return {
            "calibrator": self.name,
            "bins": self.bins,
            "edges": [edges.tolist() for edges in self.edges_],
            "frequencies": [frequencies.tolist() for frequencies in self.frequencies_],
        }

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        new = cls(bins=int(state["bins"]))
        new.edges_ = [np.array(edges, dtype=np.float64) for edges in state["edges"]]
        new.frequencies_ = [np.array(values, dtype=np.float64) for values in state["frequencies"]]
        return new


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
