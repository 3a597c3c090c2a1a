"""Watching a stream for a shift: a bounded sample of its scores and distances, compared once at the end."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.decision import ShiftReference, ShiftReport

SAMPLE = 10_000
"""Rows that are compared. The calibration rows are fewer, and they limit what a test can see."""


class ShiftMonitor:
    """A uniform sample of at most `SAMPLE` rows of a stream.

    A row is in the sample if a hash of its place is among the smallest, so the sample is the same however the stream
    was cut and however often it was resumed.
    """

    def __init__(self, reference: ShiftReference | None, size: int = SAMPLE) -> None:
        self._reference = reference
        self._size = size
        self._keys: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._values: NDArray[np.float64] = np.zeros((0, 2))

    def add(self, places: ArrayLike, scores: ArrayLike, distances: ArrayLike | None) -> None:
        """Look at rows of the stream: their places in it (rows,), scores (rows,) and squared distances (rows,)."""
        if self._reference is None:
            return
        s = np.asarray(scores, dtype=np.float64)
        d = np.full(len(s), np.nan) if distances is None else np.asarray(distances, dtype=np.float64)
        keys = np.concatenate([self._keys, hashed(np.asarray(places, dtype=np.uint64))])
        values = np.concatenate([self._values, np.column_stack([s, d])])
        kept = np.argsort(keys, kind="stable")[: self._size]
        self._keys, self._values = keys[kept], values[kept]

    def report(self) -> ShiftReport | None:
        """Whether the rows seen are like the calibration rows; None without a summary of these."""
        if self._reference is None:
            return None
        scores, distances = self._values.T
        known = self._reference.ellipsoid is not None and len(scores) > 0 and not np.isnan(distances).any()
        return self._reference.check(scores, distances=distances if known else None)


def hashed(places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a one-to-one map of 64 bits that leaves no order in them."""
    with np.errstate(over="ignore"):
        z = places + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
