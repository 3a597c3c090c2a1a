"""How far confidence is from accuracy: bins, the calibration errors, and their change under a shift.

With rows in bins b of n_b rows, g_b is the mean gap (confidence - correct) of a bin. All errors but the debiased one
are biased upward, because noise in a bin has no sign once the absolute value is taken; their intervals are pivotal.

Smooth ECE (Błasiok and Nakkiran, 2024) has no bins: a Gaussian of width w, reflected at 0 and 1, smooths the gaps. On
[0, 1] that kernel is the cosine series K_w(t, c) = 1 + 2 sum_k exp(-(pi k w)²/2) cos(pi k t) cos(pi k c), so smoothing
many resamples at many widths is a matrix product in which only the weights depend on the width.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from uatlite.errors import ConfigurationError
from uatlite.metrics.accuracy import brier
from uatlite.metrics.rows import Judged, Metric, Rows, pivotal, ratio
from uatlite.values import Floats

BINS = 15
"""The usual number of bins."""


@dataclass(frozen=True, eq=False)
class Binned:
    """Rows in bins: the bin as an indicator (rows, bins), and the gap, probability - outcome (rows,)."""

    member: Floats
    gap: Floats

    def gaps(self, counts: Floats, power: int = 1) -> Floats:
        """The sum of the gaps in each bin, to a power: (resamples, bins). The power 0 counts the rows."""
        return counts @ (self.member * self.gap[:, None] ** power)

    def mean_gaps(self, counts: Floats) -> Floats:
        """The mean gap of each bin, 0 without rows: (resamples, bins)."""
        return ratio(self.gaps(counts), self.gaps(counts, 0), otherwise=0.0)


def binned(rows: Judged, values: Floats, outcomes: Floats, bins: int) -> Binned:
    """Rows by the bin of their value: bin b holds (b/bins, (b+1)/bins], and the first one also 0.

    Edges are quotients b/bins, each the float nearest to the exact edge: np.linspace misses some of them by
    an ulp, and a confidence of 0.6 would then fall on either side of 9/15 by luck.
    """
    check_bins(bins)
    edges = rows.threshold(np.arange(1, bins) / bins)
    return Binned(np.eye(bins)[np.searchsorted(edges, values, side="left")], values - outcomes)


def by_confidence(rows: Rows, bins: int) -> Binned:
    """Rows binned by confidence, with gap = confidence - correct."""
    return binned(rows, rows.confidence, rows.correct, bins)


def by_class(rows: Judged, bins: int) -> Iterator[Binned]:
    """For each class c in turn, rows binned by p_c, with gap = p_c - [label is c]."""
    columns = zip(rows.probabilities.T, rows.one_hot.T, strict=True)
    return (binned(rows, probability, label, bins) for probability, label in columns)


def check_bins(bins: int) -> None:
    """Raise unless there is at least one bin."""
    if bins < 1:
        raise ConfigurationError(f"bins={bins} is not allowed: at least 1. The convention is {BINS}.")


@pivotal
def ece(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """Expected calibration error, sum_b n_b/n |g_b|, over fixed-width right-closed bins of the confidence."""
    return np.asarray(np.abs(by_confidence(rows, bins).gaps(counts)).sum(axis=1) / counts.sum(axis=1))


@pivotal
def mce(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """Maximum calibration error, max_b |g_b| over the bins that have rows."""
    return np.asarray(np.abs(by_confidence(rows, bins).mean_gaps(counts)).max(axis=1))


@partial(Metric, truth=ece.values)
def debiased_ece(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """ECE less the part that sampling noise alone would produce: max(0, sum_b n_b/n (|g_b| - noise_b)).

    The mean gap of a bin is about normal with the standard error s_b. If the true gap is d_b, the expected
    |g_b| is that of a folded normal, m(d, s) = s sqrt(2/pi) exp(-d²/2s²) + d erf(d / (s sqrt 2)). With the
    unbiased estimate d_b² = max(0, g_b² - s_b²), the excess is noise_b = m(d_b, s_b) - d_b. A bin of one row
    has no standard error and is left as it is.
    """
    of_rows, total = by_confidence(rows, bins), counts.sum(axis=1)
    sizes, gaps = of_rows.gaps(counts, 0), of_rows.mean_gaps(counts)
    variance = ratio(of_rows.gaps(counts, 2), sizes, otherwise=0.0) - gaps**2
    error = np.sqrt(ratio(np.maximum(variance, 0), np.maximum(sizes - 1, 0), otherwise=0.0))
    excess = sizes * (np.abs(gaps) - folded_noise(gaps, error))
    return np.asarray(np.maximum(excess.sum(axis=1) / total, 0))


def folded_noise(gaps: Floats, error: Floats) -> Floats:
    """What noise of the given standard error adds to |gap| in expectation, m(d, s) - d (see debiased_ece)."""
    true = np.sqrt(np.maximum(gaps**2 - error**2, 0))
    signal = ratio(true, error, otherwise=np.inf)
    erf = np.vectorize(math.erf, otypes=[np.float64])(signal / math.sqrt(2))
    return np.asarray(error * math.sqrt(2 / math.pi) * np.exp(-(signal**2) / 2) + true * (erf - 1))


@pivotal
def adaptive_ece(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """ECE over bins of equal mass, sum_b 1/bins |g_b|, in order of confidence.

    Every bin holds exactly n/bins rows: a row on a border is shared by both bins in proportion, and tied rows
    are shared as one, so that the order of rows does not matter.
    """
    check_bins(bins)
    borders = np.arange(bins + 1) / bins
    kept, gaps = rows.ranking.cumulate(counts), rows.ranking.cumulate(counts, rows.confidence - rows.correct)
    at = [np.interp(borders * k[-1], k, g) for k, g in zip(kept, gaps, strict=True)]
    return np.asarray(np.abs(np.diff(at, axis=1)).sum(axis=1) / kept[:, -1])


@pivotal
def classwise_ece(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """The mean over classes c of the ECE of p_c as the probability of "the label is c"."""
    return column_ece(rows, counts, bins)


def column_ece(rows: Judged, counts: Floats, bins: int = BINS) -> Floats:
    """The mean over columns, which need not exclude each other, of the ECE of their probabilities."""
    sums = [np.abs(column.gaps(counts)).sum(axis=1) for column in by_class(rows, bins)]
    return np.asarray(np.mean(sums, axis=0) / counts.sum(axis=1))


@pivotal
def brier_calibration(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """The part of the Brier score that recalibration could remove: sum_c sum_b n_cb/n g_cb².

    g_cb is the mean gap (p_c - [label is c]) of the rows in bin b of p_c.
    """
    parts = [
        ratio(column.gaps(counts) ** 2, column.gaps(counts, 0), otherwise=0.0).sum(axis=1)
        for column in by_class(rows, bins)
    ]
    return np.asarray(np.sum(parts, axis=0) / counts.sum(axis=1))


@pivotal
def brier_refinement(rows: Rows, counts: Floats, bins: int = BINS) -> Floats:
    """The rest, brier - brier_calibration = sum_c sum_b n_cb/n Var_cb(gap), the variance within bins.

    It is what remains when the mean of every bin is right; it falls when classes are told apart better.
    """
    return brier.values(rows, counts) - brier_calibration.values(rows, counts, bins)


_NODES = 1024  # gaps are shared between neighbouring nodes c = j / NODES, in proportion
COSINES = 512
NARROWEST = 1 / 256  # at this width the first cosine left out weighs exp(-19.7), 3e-9
_STEPS = 12


@pivotal
def smooth_ece(rows: Rows, counts: Floats) -> Floats:
    """The fixed point w = E(w) of E(w) = integral_0^1 |1/n sum_i K_w(t, c_i) (c_i - correct_i)| dt.

    E falls as w grows, so there is one such w; below the width 1/256 the error at that width is returned.
    """
    series = node_gaps(rows, counts) @ waves().T  # (resamples, cosines)
    series[:, 1:] *= 2
    low, high = np.full(len(series), NARROWEST), np.ones(len(series))
    below, above = error_at(low, series), error_at(high, series)
    narrow = np.where(below <= low, below, np.nan)
    for _ in range(_STEPS):  # bisect w - E(w) for every resample at once
        middle = (low + high) / 2
        error = error_at(middle, series)
        wider = error > middle
        low, below = np.where(wider, middle, low), np.where(wider, error, below)
        high, above = np.where(wider, high, middle), np.where(wider, above, error)
    slope = (above - below) / (high - low)
    crossing = (below - slope * low) / (1 - slope)  # inside the last bracket
    return np.where(np.isnan(narrow), crossing, narrow)


@cache
def waves() -> Floats:
    """cos(pi k c) at the nodes c: (cosines, nodes)."""
    return np.cos(np.pi * np.outer(np.arange(COSINES), np.arange(_NODES + 1)) / _NODES)


def node_gaps(rows: Rows, counts: Floats) -> Floats:
    """The mean gap that falls to each node: (resamples, nodes)."""
    position = np.minimum(rows.confidence, 1) * _NODES
    left = np.minimum(position.astype(np.intp), _NODES - 1)
    gap = rows.confidence - rows.correct
    shares = ((left, gap * (left + 1 - position)), (left + 1, gap * (position - left)))
    sums = np.zeros((len(counts), _NODES + 1))
    for count, row in zip(counts, sums, strict=True):
        for node, share in shares:
            row += np.bincount(node, weights=count * share, minlength=_NODES + 1)
    return np.asarray(sums / counts.sum(axis=1, keepdims=True))


def error_at(width: Floats, series: Floats) -> Floats:
    """E(w) for each resample, with widths (resamples,): the trapezoid rule over every second node."""
    damping = np.exp(-((np.pi * np.arange(COSINES) * width[:, None]) ** 2) / 2)
    curve = np.abs((series * damping) @ waves()[:, ::2])
    return np.asarray((curve.sum(axis=1) - (curve[:, 0] + curve[:, -1]) / 2) / (curve.shape[1] - 1))


SHIFT: dict[str, tuple[float, float]] = {"delta_ece": (-1.0, 1.0), "robustness_score": (0.5, 0.5)}
"""The two robustness scores as weights of the in-domain and the shifted ECE. Of the second, lower is better."""


def combine(in_domain: Rows, shifted: Rows, weights: tuple[float, float], counts: Floats) -> Floats:
    """A weighted sum of both ECEs over counts (resamples, in-domain rows then shifted rows)."""
    split = len(in_domain)
    return weights[0] * ece.values(in_domain, counts[:, :split]) + weights[1] * ece.values(shifted, counts[:, split:])
