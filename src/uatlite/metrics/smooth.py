"""Smooth ECE: a calibration error without bins (Błasiok and Nakkiran, 2024).

The gaps are smoothed by a Gaussian of width w, reflected at 0 and 1. On [0, 1] that kernel is the cosine
series K_w(t, c) = 1 + 2 sum_k exp(-(pi k w)²/2) cos(pi k t) cos(pi k c), so smoothing many resamples at many
widths is a matrix product with weights that only the width changes.
"""

from functools import cache

import numpy as np

from uatlite.metrics.metric import Statistic, metric
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows

NODES = 1024  # gaps are shared between neighbouring nodes c = j / NODES, in proportion
COSINES = 512
NARROWEST = 1 / 256  # at this width the first cosine left out weighs exp(-19.7), 3e-9
STEPS = 12


@metric("lower", pivotal=True)
def smooth_ece(rows: Rows) -> Statistic:
    """The fixed point w = E(w) of E(w) = integral_0^1 |1/n sum_i K_w(t, c_i) (c_i - correct_i)| dt.

    E falls as w grows, so there is one such w; below the width 1/256 the error at that width is returned.
    """

    def statistic(counts: Floats) -> Floats:
        series = node_gaps(rows, counts) @ waves().T  # (resamples, cosines)
        series[:, 1:] *= 2
        return fixed_point(series)

    return statistic


@cache
def waves() -> Floats:
    """cos(pi k c) at the nodes c: (cosines, nodes)."""
    return np.cos(np.pi * np.outer(np.arange(COSINES), np.arange(NODES + 1)) / NODES)


def node_gaps(rows: Rows, counts: Floats) -> Floats:
    """The mean gap that falls to each node: (resamples, nodes)."""
    place = np.minimum(rows.confidence, 1) * NODES
    left = np.minimum(place.astype(np.intp), NODES - 1)
    gap = rows.confidence - rows.correct
    shares = ((left, gap * (left + 1 - place)), (left + 1, gap * (place - left)))
    sums = np.zeros((len(counts), NODES + 1))
    for count, row in zip(counts, sums, strict=True):
        for node, share in shares:
            row += np.bincount(node, weights=count * share, minlength=NODES + 1)
    return np.asarray(sums / counts.sum(axis=1, keepdims=True))


def error_at(width: Floats, series: Floats) -> Floats:
    """E(w) for each resample, with widths (resamples,): the trapezoid rule over every second node."""
    damping = np.exp(-((np.pi * np.arange(COSINES) * width[:, None]) ** 2) / 2)
    curve = np.abs((series * damping) @ waves()[:, ::2])
    return np.asarray((curve.sum(axis=1) - (curve[:, 0] + curve[:, -1]) / 2) / (curve.shape[1] - 1))


def fixed_point(series: Floats) -> Floats:
    """Bisect w - E(w) for every resample at once, and interpolate inside the last bracket."""
    low, high = np.full(len(series), NARROWEST), np.ones(len(series))
    below, above = error_at(low, series), error_at(high, series)
    narrow = np.where(below <= low, below, np.nan)
    for _ in range(STEPS):
        middle = (low + high) / 2
        error = error_at(middle, series)
        wider = error > middle
        low, below = np.where(wider, middle, low), np.where(wider, error, below)
        high, above = np.where(wider, high, middle), np.where(wider, above, error)
    slope = (above - below) / (high - low)
    crossing = (below - slope * low) / (1 - slope)
    return np.where(np.isnan(narrow), crossing, narrow)
