"""Exact binomial tests: limits of a share, and the plan of a promise about rows of one answer each.

The guarantee of a rule comes from exact tests of thresholds in an order that is fixed beforehand. It is about new rows,
so the rows that decide must not have fitted anything that the rule is about (docs/reference/decision.md).
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from uatlite.trust.rule import Rule, Wanted
from uatlite.values import Floats, Integers, Marks

Test = Callable[[slice, Floats], Marks]
"""Some hypotheses of a plan and levels, ascending -> whether each is rejected at each level, (hypotheses, levels)."""

STARTS = ((1 / 8, 0.4), (1 / 3, 0.4), (1 / 2, 0.2))
"""Where searches begin: the share of rows answered there, and the part of the level. A start at half of the rows has
answers enough to bear a few errors; the ones above it are for targets that half of the rows cannot meet."""

_START_ERRORS, NEAR = 1, 0.8
"""The first start moves down until it allows this many errors: one unlucky row must not end the search. Where that is
near the next start, at this part of its share, the first is left out and its level given to the others."""

MOST_ROWS = 1_000_000
"""An estimate of the rows needed is given up to this many rows."""


def risk_upper_bound(errors: ArrayLike, answered: ArrayLike, confidence: float) -> Floats:
    """Clopper–Pearson, elementwise: the risk r with P(Binomial(answered, r) ≤ errors) = 1 - confidence; 1 if all erred.

    For a threshold that was fixed beforehand the true selective risk is at most this with the confidence.
    """
    from scipy.stats import beta

    k, n = np.asarray(errors), np.asarray(answered)
    return np.where(k >= n, 1.0, beta.ppf(confidence, k + 1, np.maximum(n - k, 1)))


def clopper_pearson(errors: ArrayLike, rows: ArrayLike, confidence: float) -> tuple[Floats, Floats]:
    """The exact interval of a share of which `errors` of `rows` rows were seen, elementwise."""
    from scipy.stats import beta

    k, n, tail = np.asarray(errors), np.asarray(rows), (1.0 - confidence) / 2.0
    low = np.where(k == 0, 0.0, beta.ppf(tail, np.maximum(k, 1), n - k + 1))
    return low, risk_upper_bound(k, n, 1.0 - tail)


def exact_test(errors: ArrayLike, answered: ArrayLike, target: float) -> Test:
    """The test of hypotheses with this many errors and answers, (hypotheses,): P(Binomial(N, target) ≤ K) ≤ level."""
    from scipy.stats import binom

    p_values = binom.cdf(errors, answered, target)
    return lambda places, levels: np.asarray(p_values[places, None] <= levels)


def allowed_errors(answered: ArrayLike, target: float, confidence: ArrayLike) -> Integers:
    """The most errors among `answered` rows with which the Clopper–Pearson bound is at most `target`; else -1.

    The largest k with P(Binomial(answered, target) ≤ k) ≤ 1 - confidence, for each entry of `answered`.
    """
    from scipy.stats import binom

    trials = np.asarray(answered, dtype=np.int64)
    level = 1.0 - np.asarray(confidence)
    most = np.asarray(binom.ppf(level, trials, target), dtype=np.int64)  # the first k with P(≤ k) ≥ level
    return np.where(binom.cdf(most, trials, target) <= level, most, most - 1)


@lru_cache(maxsize=1024)
def least_answers(errors: int, target: float, level: float) -> int:
    """The fewest answers N with P(Binomial(N, target) ≤ errors) ≤ level: one error more is among N with 1 - level."""
    from scipy.stats import nbinom

    return errors + 1 + int(nbinom.ppf(1.0 - level, errors + 1, target))


def fewest(sizes: Integers, chances: Floats, power: float) -> int | None:
    """The first of some sizes, ascending, that has what is wanted with this probability."""
    enough = sizes[chances >= power]
    return int(enough[0]) if len(enough) else None


def coverage_interval(
    answered: int, rows: int, confidence: float, *, bands: int = 1, bounded: int = 1
) -> tuple[float, float]:
    """Answered share ± sqrt(log(2/(1-confidence)) / (2·rows)), cut to [0, 1].

    Dvoretzky–Kiefer–Wolfowitz with Massart's constant: it holds for all thresholds at once, and so for one that was
    chosen on the same rows. 1 - coverage may be a sum over `bands` classes with a band for each; the thresholds of
    `bounded` of them answer not all.
    """
    share = answered / rows
    width = bounded * math.sqrt(math.log(2.0 * bands / (1.0 - confidence)) / (2.0 * rows))
    return max(share - width, 0.0), min(share + width, 1.0)


def rule_at(threshold: float | Floats, scores: Floats, wrong: Marks, wanted: Wanted, target: float | None) -> Rule:
    """The rule at a threshold, of all rows or of each, for rows of one answer each, with its coverage and risk."""
    answered, threshold = scores > threshold, float(np.min(threshold))
    count, errors, rows = int(answered.sum()), int((answered & wrong).sum()), len(scores)
    bounded = int(math.isfinite(threshold))
    return Rule(
        kind=wanted.kind or "risk",
        score=wanted.score,
        threshold=threshold,
        target=target,
        confidence=wanted.confidence,
        texts=rows,
        answers=rows,
        reported=count,
        errors=errors,
        coverage=count / rows,
        coverage_interval=coverage_interval(count, rows, wanted.confidence, bounded=bounded),
        promised=wanted.kind in ("threshold", "coverage") or threshold < math.inf,
        risk_bound=float(risk_upper_bound(errors, count, wanted.confidence)) if count else None,
    )


def plan_starts(others: Floats, rows: int, target: float, level: float) -> list[tuple[float, float]]:
    """Where to begin: thresholds in falling order and the level of each; none if the rows are too few to promise.

    The levels sum to `level`.
    """
    shares = planned_shares(rows, len(others), target, level)
    return [(upper_quantile(others, share), alpha) for share, alpha in shares]


def planned_shares(rows: int, others: float, target: float, level: float) -> list[tuple[float, float]]:
    """The share of rows answered at each start, and its level: `STARTS`, of which the first moves down with few rows.

    Where only the last is left, it moves down until it allows no error at least.
    """
    for first in range(len(STARTS) - 1):
        used = STARTS[first:]
        total = sum(weight for _, weight in used)
        shares = [(share, level * weight / total) for share, weight in used]
        needed = needed_share(rows, others, target, shares[0][1], _START_ERRORS)
        if needed <= NEAR * shares[1][0]:
            return [(max(needed, shares[0][0]), shares[0][1]), *shares[1:]]
    least = needed_share(rows, others, target, level, 0)
    return [] if least == math.inf else [(max(STARTS[-1][0], least), level)]


def needed_share(rows: int, others: float, target: float, level: float, errors: int) -> float:
    """The share of rows to answer at a start so that `errors` are allowed there; inf if all rows are too few.

    1.3 standard deviations of the difference between the two samples are added: one answer too few would end the
    search at once.
    """
    share = least_answers(errors, target, level) / rows
    if share > 1.0:
        return math.inf
    if others == 0:
        return 1.0
    return min(share + 1.3 * math.sqrt(share * (1.0 - share) * (1.0 / others + 1.0 / rows)), 1.0)


def upper_quantile(others: Floats, share: float) -> float:
    """The threshold that about `share` of rows exceed; -inf, which all exceed, where there is no score so low."""
    rank = math.ceil(share * (len(others) + 1))
    return -math.inf if rank > len(others) else float(np.sort(others)[-rank])
