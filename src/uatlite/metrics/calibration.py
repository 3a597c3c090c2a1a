"""How far confidence is from accuracy: the calibration errors.

With rows in bins b of n_b rows, g_b is the mean gap (confidence - correct) of a bin. All of these but the
debiased one are biased upward: noise in a bin has no sign once the absolute value is taken. Their intervals
are pivotal.
"""

import math

import numpy as np

from uatlite.metrics.bins import BINS, by_class, by_confidence, check_bins
from uatlite.metrics.metric import Statistic, metric, ratio
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows


@metric("lower", pivotal=True)
def ece(rows: Rows, bins: int = BINS) -> Statistic:
    """Expected calibration error, sum_b n_b/n |g_b|, over fixed-width right-closed bins of the confidence."""
    binned = by_confidence(rows, bins)

    def statistic(counts: Floats) -> Floats:
        return np.asarray(np.abs(binned.gaps(counts)).sum(axis=1) / counts.sum(axis=1))

    return statistic


@metric("lower", pivotal=True)
def mce(rows: Rows, bins: int = BINS) -> Statistic:
    """Maximum calibration error, max_b |g_b| over the bins that have rows."""
    binned = by_confidence(rows, bins)

    def statistic(counts: Floats) -> Floats:
        gaps = ratio(binned.gaps(counts), binned.sizes(counts), otherwise=0.0)
        return np.asarray(np.abs(gaps).max(axis=1))

    return statistic


@metric("lower", truth=ece)
def debiased_ece(rows: Rows, bins: int = BINS) -> Statistic:
    """ECE less the part that sampling noise alone would produce: max(0, sum_b n_b/n (|g_b| - noise_b)).

    The mean gap of a bin is about normal with the standard error s_b. If the true gap is d_b, the expected
    |g_b| is that of a folded normal, m(d, s) = s sqrt(2/pi) exp(-d²/2s²) + d erf(d / (s sqrt 2)). With the
    unbiased estimate d_b² = max(0, g_b² - s_b²), the excess is noise_b = m(d_b, s_b) - d_b. A bin of one row
    has no standard error and is left as it is.
    """
    binned = by_confidence(rows, bins)

    def statistic(counts: Floats) -> Floats:
        sizes, total = binned.sizes(counts), counts.sum(axis=1)
        gaps = ratio(binned.gaps(counts), sizes, otherwise=0.0)
        variance = ratio(binned.squared_gaps(counts), sizes, otherwise=0.0) - gaps**2
        error = np.sqrt(ratio(np.maximum(variance, 0), np.maximum(sizes - 1, 0), otherwise=0.0))
        excess = sizes * (np.abs(gaps) - folded_noise(gaps, error))
        return np.asarray(np.maximum(excess.sum(axis=1) / total, 0))

    return statistic


def folded_noise(gaps: Floats, error: Floats) -> Floats:
    """What noise of the given standard error adds to |gap| in expectation, m(d, s) - d (see debiased_ece)."""
    true = np.sqrt(np.maximum(gaps**2 - error**2, 0))
    signal = ratio(true, error, otherwise=np.inf)
    erf = np.vectorize(math.erf, otypes=[np.float64])(signal / math.sqrt(2))
    return np.asarray(error * math.sqrt(2 / math.pi) * np.exp(-(signal**2) / 2) + true * (erf - 1))


@metric("lower", pivotal=True)
def adaptive_ece(rows: Rows, bins: int = BINS) -> Statistic:
    """ECE over bins of equal mass, sum_b 1/bins |g_b|, in order of confidence.

    Every bin holds exactly n/bins rows: a row on a border is shared by both bins in proportion, and tied rows
    are shared as one, so that the value depends on no order of rows.
    """
    check_bins(bins)
    gap = rows.confidence - rows.correct
    borders = np.arange(bins + 1) / bins

    def statistic(counts: Floats) -> Floats:
        kept, gaps = rows.ranking.cumulate(counts), rows.ranking.cumulate(counts, gap)
        at = [np.interp(borders * k[-1], k, g) for k, g in zip(kept, gaps, strict=True)]
        return np.asarray(np.abs(np.diff(at, axis=1)).sum(axis=1) / kept[:, -1])

    return statistic


@metric("lower", pivotal=True)
def classwise_ece(rows: Rows, bins: int = BINS) -> Statistic:
    """The mean over classes c of the ECE of p_c as the probability of "the label is c"."""
    check_bins(bins)

    def statistic(counts: Floats) -> Floats:
        sums = [np.abs(binned.gaps(counts)).sum(axis=1) for binned in by_class(rows, bins)]
        return np.asarray(np.mean(sums, axis=0) / counts.sum(axis=1))

    return statistic
