"""Calibrators that fit each class against all others and then normalise: Platt, histogram binning, isotonic.

Platt scaling (Platt, 1999) fits a sigmoid of the log odds. Histogram binning (Zadrozny & Elkan, 2001) takes the
observed frequency in bins of equal mass. Isotonic regression (Zadrozny & Elkan, 2002) fits a rising function.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import ConfigurationError
from uatlite.predictive import log_softmax, softmax
from uatlite.trust.calibrators import Learned, check_fit, membership, vector
from uatlite.values import Floats, check_logits


def log_odds(logits: Floats) -> Floats:
    """log(p_k / (1 - p_k)) of the softmax: z_k - logsumexp of the other logits, (rows, classes).

    Unlike the raw logit it does not change when a row's logits are shifted, unlike p_k it does not saturate,
    and for two classes it is the margin.
    """
    logs = log_softmax(logits)
    top = logits.argmax(axis=1)[:, None]
    others = logs.copy()
    np.put_along_axis(others, top, -np.inf, axis=1)
    # 1 - p_k loses all digits as p_k nears 1, which only the top class can: for that one the others are summed.
    odds = logs - np.log1p(-np.minimum(np.exp(logs), 0.5))
    at_top = np.take_along_axis(logs, top, axis=1) - np.logaddexp.reduce(others, axis=1, keepdims=True)
    np.put_along_axis(odds, top, at_top, axis=1)
    return np.asarray(odds)


def log_expit(x: Floats) -> Floats:
    """log(1 / (1 + e^-x))"""
    return np.asarray(-np.logaddexp(0.0, -x))


class OneVsRest(Learned, ABC):
    """Base class of the three: it fits two arrays for each class, on the log odds of that class against the rest."""

    minimum_rows: int

    @abstractmethod
    def fit_class(self, feature: Floats, positive: Floats) -> tuple[Any, Any]:
        """What is learned for one class from its log odds (rows,) and 1 where a row has the class (rows,)."""

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn both arrays of each class from logits (rows, classes) and labels (rows,)."""
        z, y = check_fit(logits, labels, name=self.name, minimum_rows=self.minimum_rows, every_class=True)
        columns = zip(log_odds(z).T, membership(y, z.shape[1]).T, strict=True)
        fitted = zip(*(self.fit_class(feature, positive) for feature, positive in columns), strict=True)
        for (name, read), values in zip(self.learned.items(), fitted, strict=True):
            setattr(self, f"{name}_", read(values))
        return self


def vectors(values: Any) -> list[Floats]:
    """A JSON list of lists of numbers as a list of arrays."""
    return [vector(one) for one in values]


class Platt(OneVsRest):
    """sigmoid(A_k·f_k + B_k), f_k the log odds of class k against the rest, divided by the sum over classes.

    For two classes the two sigmoids mirror each other, so their sum is 1 and this is Platt's own method.
    """

    name = "platt"
    minimum_rows = 20
    learned: ClassVar = {"slopes": vector, "offsets": vector}
    slopes_: Floats
    offsets_: Floats

    def fit_class(self, feature: Floats, positive: Floats) -> tuple[float, float]:
        """Slope A and offset B of sigmoid(A·f + B) by maximum likelihood on Platt's smoothed targets.

        The targets are (N₊+1)/(N₊+2) and 1/(N₋+2) in place of 1 and 0, so A stays finite on separable rows.
        """
        from scipy.optimize import minimize
        from scipy.special import expit

        count = positive.sum()
        targets = np.where(positive > 0, (count + 1) / (count + 2), 1 / (len(positive) - count + 2))
        scale = float(np.abs(feature).max()) or 1.0  # the search sees numbers of order one
        design = np.stack([feature / scale, np.ones_like(feature)], axis=1)

        def loss(parameters: Floats) -> tuple[float, Floats]:
            signal = design @ parameters
            value = -(targets * log_expit(signal) + (1 - targets) * log_expit(-signal)).mean()
            return value, design.T @ (expit(signal) - targets) / len(targets)

        def curvature(parameters: Floats) -> Floats:
            chance = expit(design @ parameters)
            return np.asarray((design * (chance * (1 - chance))[:, None]).T @ design / len(targets))

        start = np.array([0.0, np.log(targets.mean() / (1 - targets.mean()))])
        found = minimize(
            loss, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-11, "maxiter": 500}
        )
        return float(found.x[0] / scale), float(found.x[1])

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """The normalised sigmoids, (rows, classes); divided in the log domain, where no sum is 0."""
        self.check_fitted()
        features = log_odds(check_logits(logits, classes=len(self.slopes_)))
        return softmax(log_expit(features * self.slopes_ + self.offsets_))


class Frequencies(OneVsRest):
    """Base class of the two that read the frequency of each class off its log odds."""

    @abstractmethod
    def share(self, feature: Floats, first: Floats, second: Floats) -> Floats:
        """The share of one class, (rows,), before it is divided by the sum over classes."""

    def probabilities(self, logits: ArrayLike, variance: ArrayLike | None = None) -> Floats:
        """The shares of all classes divided by their sum, (rows, classes)."""
        self.check_fitted()
        first, second = (getattr(self, f"{name}_") for name in self.learned)
        features = log_odds(check_logits(logits, classes=len(first)))
        shares = np.stack([self.share(*column) for column in zip(features.T, first, second, strict=True)], axis=1)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


class HistogramBinning(Frequencies):
    """Per class, `bins` bins of equal mass over its log odds; frequencies divided by the sum over classes."""

    name = "histogram"
    settings: ClassVar = {"bins": int}
    learned: ClassVar = {"edges": vectors, "frequencies": vectors}
    edges_: list[Floats]
    frequencies_: list[Floats]

    def __init__(self, bins: int = 10) -> None:
        self.bins = bins

    def fit(self, logits: ArrayLike, labels: ArrayLike, variance: ArrayLike | None = None) -> Self:
        """Learn the edges of the bins and the frequencies of each class; that takes five rows for each bin."""
        if self.bins < 2:
            raise ConfigurationError(f"bins={self.bins} makes no histogram; use 2 or more.")
        self.minimum_rows = 5 * self.bins
        return super().fit(logits, labels, variance)

    def fit_class(self, feature: Floats, positive: Floats) -> tuple[Floats, Floats]:
        """Inner edges (≤ bins-1,) at the feature's quantiles, and the frequency of the class in each bin.

        One more row, spread as the class is overall (share π), joins every bin: (positives + π) / (rows + 1).
        So no frequency is 0 or 1, and no later row has an infinite loss.
        """
        edges = np.unique(np.quantile(feature, np.arange(1, self.bins) / self.bins))
        which = np.searchsorted(edges, feature, side="right")
        rows = np.bincount(which, minlength=len(edges) + 1)
        positives = np.bincount(which, weights=positive, minlength=len(edges) + 1)
        return edges, (positives + positive.mean()) / (rows + 1)

    def share(self, feature: Floats, first: Floats, second: Floats) -> Floats:
        """The frequency of each row's bin."""
        return np.asarray(second[np.searchsorted(first, feature, side="right")])


class Isotonic(Frequencies):
    """Per class, the isotonic fit over its log odds, linear between knots and constant beyond; divided by the sum."""

    name = "isotonic"
    minimum_rows = 50
    learned: ClassVar = {"knots": vectors, "values": vectors}
    knots_: list[Floats]
    values_: list[Floats]

    def fit_class(self, feature: Floats, positive: Floats) -> tuple[Floats, Floats]:
        """Knots and values of scikit-learn's isotonic fit, kept off 0 and 1.

        The ends are those of n rows plus one spread as the class is overall (share π): π/(n+1) and (n+π)/(n+1).
        """
        from sklearn.isotonic import IsotonicRegression  # slow to import, and not needed by all

        rows, share = len(feature), positive.mean()
        low, high = share / (rows + 1), (rows + share) / (rows + 1)
        fitted = IsotonicRegression(y_min=low, y_max=high, out_of_bounds="clip").fit(feature, positive)
        return np.asarray(fitted.X_thresholds_, dtype=np.float64), np.asarray(fitted.y_thresholds_, dtype=np.float64)

    def share(self, feature: Floats, first: Floats, second: Floats) -> Floats:
        """The value interpolated between the knots."""
        return np.interp(feature, first, second)
