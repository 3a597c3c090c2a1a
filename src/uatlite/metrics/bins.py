"""Fixed-width bins of probabilities, and sums over them for many resamples at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows

BINS = 15


@dataclass(frozen=True, eq=False)
class Binned:
    """Rows in bins: the bin as an indicator (rows, bins), and the gap, probability - outcome (rows,)."""

    member: Floats
    gap: Floats

    def sizes(self, counts: Floats) -> Floats:
        """How many rows each bin has: (resamples, bins)."""
        return counts @ self.member

    def gaps(self, counts: Floats) -> Floats:
        """The sum of the gaps in each bin: (resamples, bins)."""
        return counts @ (self.member * self.gap[:, None])

    def squared_gaps(self, counts: Floats) -> Floats:
        """The sum of the squared gaps in each bin: (resamples, bins)."""
        return counts @ (self.member * np.square(self.gap)[:, None])


def bin_of(rows: Rows, values: Floats, bins: int) -> NDArray[np.intp]:
    """The bin of each value: bin b holds (b/bins, (b+1)/bins], and the first one also 0.

    Edges are quotients b/bins, each the float nearest to the exact edge: np.linspace misses some of them by
    an ulp, and a confidence of 0.6 would then fall on either side of 9/15 by luck.
    """
    edges = rows.threshold(np.arange(1, bins) / bins)
    return np.searchsorted(edges, values, side="left")


def by_confidence(rows: Rows, bins: int) -> Binned:
    """Rows binned by confidence, with gap = confidence - correct."""
    check_bins(bins)
    return Binned(np.eye(bins)[bin_of(rows, rows.confidence, bins)], rows.confidence - rows.correct)


def by_class(rows: Rows, bins: int) -> Iterator[Binned]:
    """For each class c in turn, rows binned by p_c, with gap = p_c - [label is c]."""
    check_bins(bins)
    for probability, label in zip(rows.probabilities.T, rows.one_hot.T, strict=True):
        yield Binned(np.eye(bins)[bin_of(rows, probability, bins)], probability - label)


def check_bins(bins: int) -> None:
    """Raise unless there is at least one bin."""
    if bins < 1:
        raise ConfigurationError(f"bins={bins} is not allowed: at least 1. The convention is {BINS}.")
