"""Rows in order of a score, with equal scores kept together: the ground of every curve."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """Row indices from the highest score to the lowest (rows,), and the last rank of each tie (ties,).

    A tie is a maximal run of equal scores; most have one row. Curves are read only where a tie ends, so no
    metric depends on the order in which tied rows came.
    """

    order: NDArray[np.intp]
    ends: NDArray[np.intp]

    @classmethod
    def of(cls, scores: Floats) -> "Ranking":
        """Rank the scores (rows,) from high to low."""
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
        return cls(order, ends)

    def sums(self, counts: Floats, values: Floats | None = None) -> Floats:
        """Sums over each tie, from the top down: (resamples, ties).

        Each row counts `counts` (resamples, rows) times, and carries `values` (rows,), or 1.
        """
        weights = counts[:, self.order]
        if values is not None:
            weights *= values[self.order]
        if len(self.ends) == len(self.order):
            return weights
        return np.add.reduceat(weights, np.append(0, self.ends[:-1] + 1), axis=1)

    def cumulate(self, counts: Floats, values: Floats | None = None) -> Floats:
        """Sums from the top down to the end of each tie, with a leading 0: (resamples, 1 + ties)."""
        running = np.zeros((len(counts), 1 + len(self.ends)))
        np.cumsum(self.sums(counts, values), axis=1, out=running[:, 1:])
        return running
