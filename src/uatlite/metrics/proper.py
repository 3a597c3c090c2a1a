"""Proper scores: the negative log likelihood, and the Brier score with its two parts."""

import numpy as np

from uatlite.metrics.bins import BINS, by_class, check_bins
from uatlite.metrics.metric import Statistic, mean_of, metric, ratio
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows

# A probability of 0 for the true class would make one row's loss infinite. Like scikit-learn we count it as
# the machine epsilon of float64, a loss of 36.04; published probabilities with five decimals do have such
# zeros.
SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)


@metric("lower")
def nll(rows: Rows) -> Statistic:
    """The mean of -log p(label), with probabilities below 2.2e-16 counted as 2.2e-16."""
    of_label = np.take_along_axis(rows.probabilities, rows.labels[:, None], axis=1)[:, 0]
    return mean_of(-np.log(np.maximum(of_label, SMALLEST_PROBABILITY)))


@metric("lower")
def brier(rows: Rows) -> Statistic:
    """The mean of sum_c (p_c - [label is c])², from 0 to 2."""
    return mean_of(np.square(rows.probabilities - rows.one_hot).sum(axis=1))


@metric("lower", pivotal=True)
def brier_calibration(rows: Rows, bins: int = BINS) -> Statistic:
    """The part of the Brier score that recalibration could remove: sum_c sum_b n_cb/n g_cb².

    g_cb is the mean gap (p_c - [label is c]) of the rows in bin b of p_c.
    """
    check_bins(bins)

    def statistic(counts: Floats) -> Floats:
        parts = [
            ratio(binned.gaps(counts) ** 2, binned.sizes(counts), otherwise=0.0).sum(axis=1)
            for binned in by_class(rows, bins)
        ]
        return np.asarray(np.sum(parts, axis=0) / counts.sum(axis=1))

    return statistic


@metric("lower", pivotal=True)
def brier_refinement(rows: Rows, bins: int = BINS) -> Statistic:
    """The rest, brier - brier_calibration = sum_c sum_b n_cb/n Var_cb(gap), the variance within bins.

    It is what remains when the mean of every bin is right; it falls when classes are told apart better.
    """
    whole, part = brier.prepare(rows), brier_calibration.prepare(rows, bins)

    def statistic(counts: Floats) -> Floats:
        return whole(counts) - part(counts)

    return statistic
