"""Answering only where confident: risk-coverage curves and fixed thresholds.

Rows are admitted from the most confident down. E_k is the number of errors among the first k, where tied rows
share their errors evenly: inside a tie E_k is a straight line, the mean over all orders of the tied rows.
"""

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError
from uatlite.metrics.rows import Metric, Ranking, Rows, mean_of, ratio
from uatlite.values import Floats


@Metric
def aurc(rows: Rows, counts: Floats) -> Floats:
    """Area under the risk-coverage curve: the mean over k = 1..n of the selective risk E_k / k.

    An error at rank j is in every risk from j on and adds 1/j + ... + 1/n = H_n - H_{j-1}, H the harmonic numbers.
    A tie over the ranks m+1..k with the error rate r therefore adds r (k - m) H_n - r (B_k - B_m), where
    B_k = H_0 + ... + H_{k-1} = k (H_k - 1).
    """
    return area_under_risk(rows.ranking, 1 - rows.correct, counts)


def area_under_risk(ranking: Ranking, wrong: Floats, counts: Floats) -> Floats:
    """The AURC of rows in any ranking; `wrong` (rows,) is 1 for errors."""
    kept, errors = ranking.cumulate(counts), ranking.sums(counts, wrong)
    total = kept[:, -1].astype(np.intp)
    harmonic = harmonic_numbers(int(total.max()))
    before = (np.arange(len(harmonic)) * (harmonic - 1))[kept.astype(np.intp)]
    rate = ratio(errors, np.diff(kept, axis=1), otherwise=0.0)
    area = errors.sum(axis=1) * harmonic[total] - (rate * np.diff(before, axis=1)).sum(axis=1)
    return np.asarray(area / total)


@Metric
def e_aurc(rows: Rows, counts: Floats) -> Floats:
    """Excess AURC: AURC less that of the same rows with every error ranked below every correct row.

    With c correct rows of n the best possible AURC is 1/n sum_{k>c} (k - c) / k = (n - c - c (H_n - H_c)) / n.
    """
    total, correct = counts.sum(axis=1), counts @ rows.correct
    harmonic = harmonic_numbers(int(total.max()))
    tail = harmonic[total.astype(np.intp)] - harmonic[correct.astype(np.intp)]
    # No ranking beats the best one; where it is reached, rounding leaves 1e-16 of either sign.
    return np.asarray(np.maximum(aurc.values(rows, counts) - (total - correct - correct * tail) / total, 0))


@Metric
def augrc(rows: Rows, counts: Floats) -> Floats:
    """Area under the generalized risk-coverage curve E_k / n over k / n, by the trapezoid rule from (0, 0).

    It equals (1 - AUROC) a (1 - a) + (1 - a)²/2 with accuracy a and the AUROC of confidence for "is correct".
    """
    kept, errors = _risk_curve(rows, counts)
    area = np.diff(kept, axis=1) * (errors[:, 1:] + errors[:, :-1]) / 2
    return np.asarray(area.sum(axis=1) / kept[:, -1] ** 2)


@Metric
def risk_at_coverage(rows: Rows, counts: Floats, coverage: float) -> Floats:
    """The error rate E_k / k of the k = ceil(coverage n) most confident rows."""
    if not 0 < coverage <= 1:
        raise ConfigurationError(f"coverage={coverage} is not allowed: above 0, at most 1, as in 0.8.")
    kept, errors = _risk_curve(rows, counts)
    # Binary fractions round up by an ulp: 0.55 * 100 rows are 55 and not 56.
    admitted = np.ceil(coverage * kept[:, -1] - 1e-9)
    at = [np.interp(k, x, y) for k, x, y in zip(admitted, kept, errors, strict=True)]
    return np.asarray(at / admitted)


@Metric
def coverage_at(rows: Rows, counts: Floats, tau: float) -> Floats:
    """Cov@τ: the share of rows with confidence > τ."""
    return mean_of(admitted_at(rows, tau))(counts)


@Metric
def accuracy_at(rows: Rows, counts: Floats, tau: float) -> Floats:
    """Acc@τ: the accuracy of the rows with confidence > τ; NaN where there is none."""
    admitted = admitted_at(rows, tau)
    return ratio(counts @ (admitted * rows.correct), counts @ admitted)


@Metric
def count_at(rows: Rows, counts: Floats, tau: float) -> Floats:
    """N@τ: the number of rows with confidence > τ."""
    return np.asarray(counts @ admitted_at(rows, tau))


def admitted_at(rows: Rows, tau: float) -> Floats:
    """1 where the confidence exceeds tau, else 0 (rows,)."""
    if not 0 <= tau <= 1:
        raise ConfigurationError(f"tau={tau} is not allowed: a probability from 0 to 1, as in 0.9.")
    return (rows.confidence > rows.threshold(tau)).astype(np.float64)


def risk_coverage(ranking: Ranking, wrong: Floats) -> Floats:
    """The selective risk E_k / k for k = 1..n, (rows,): the risk–coverage curve, whose mean is the AURC.

    Coverage k / n goes with it; `wrong` (rows,) is 1 for errors, and tied rows share their errors evenly.
    """
    once, ranks = np.ones((1, len(wrong))), np.arange(1, len(wrong) + 1)
    return np.asarray(np.interp(ranks, ranking.cumulate(once)[0], ranking.cumulate(once, wrong)[0]) / ranks)


def evenly_spaced(points: int, most: int) -> NDArray[np.intp]:
    """At most `most` indices of a curve's points, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, points - 1, most).round().astype(np.intp))


def _risk_curve(rows: Rows, counts: Floats) -> tuple[Floats, Floats]:
    """Rows kept and errors among them, at the end of each tie from (0, 0): two of (resamples, 1 + ties)."""
    return rows.ranking.cumulate(counts), rows.ranking.cumulate(counts, 1 - rows.correct)


def harmonic_numbers(largest: int) -> Floats:
    """H_0 .. H_largest, H_n = 1 + 1/2 + ... + 1/n."""
    return np.append(0.0, np.cumsum(1 / np.arange(1, largest + 1)))
