"""Histogram binning (Zadrozny & Elkan, 2001): the observed frequency of each class in bins of equal mass."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.calibration.inputs import FloatArray, check_fit, check_fitted, check_logits
from uatlite.calibration.one_vs_rest import log_odds, membership, normalised
from uatlite.errors import ConfigurationError


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
