"""Thresholds without a promise of risk: one that is given, and one by a target coverage."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.calibration.inputs import FloatArray
from uatlite.decision.abstention import AbstentionRule
from uatlite.decision.bounds import coverage_interval, risk_upper_bound
from uatlite.decision.inputs import check_rows, check_share, check_tells_apart
from uatlite.errors import ConfigurationError


def fixed_threshold(
    scores: ArrayLike,
    errors: ArrayLike,
    target: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
) -> AbstentionRule:
    """The threshold `target`, given beforehand, with its coverage and an exact bound of its risk.

    `scores` (rows,) and `errors` (rows,), True where the prediction is wrong, are of calibration rows.
    """
    s, e = check_rows(scores, errors)
    check_share("confidence", confidence)
    if math.isnan(target):
        raise ConfigurationError("threshold=nan answers nothing and says nothing; give a number.")
    return rule_at(float(target), s, e, kind="threshold", score=score, target=None, confidence=confidence)


def target_coverage(
    scores: ArrayLike,
    errors: ArrayLike,
    target: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
) -> AbstentionRule:
    """The highest threshold at which a new row is answered with probability `target` or more.

    A new row's score is at least the j-th largest of n with probability j/(n+1) by exchangeability, and more
    with ties; so j = ceil(target·(n+1)), and where that is n+1 all rows are answered.
    """
    s, e = check_rows(scores, errors)
    check_share("confidence", confidence)
    check_share("target", target)
    check_tells_apart(s, score)
    rank = math.ceil(target * (len(s) + 1) - 1e-9)  # 0.29·100 is 29 and not 28.999999999999996
    # "> the number next below it" is "≥ it": rows that tie with the j-th are answered too.
    threshold = -math.inf if rank > len(s) else float(np.nextafter(np.sort(s)[-rank], -math.inf))
    return rule_at(threshold, s, e, kind="coverage", score=score, target=target, confidence=confidence)


def rule_at(
    threshold: float,
    scores: FloatArray,
    errors: NDArray[np.bool_],
    *,
    kind: str,
    score: str,
    target: float | None,
    confidence: float,
    promised: bool = True,
    reason: str = "",
) -> AbstentionRule:
    """The rule at a threshold, with what calibration rows (rows,) say of its coverage and risk."""
    answered = scores > threshold
    count, wrong = int(answered.sum()), int((answered & errors).sum())
    share = count / len(scores)
    return AbstentionRule(
        kind=kind,
        score=score,
        threshold=threshold,
        target=target,
        confidence=confidence,
        rows=len(scores),
        answered=count,
        errors=wrong,
        risk_bound=risk_upper_bound(wrong, count, confidence) if count else None,
        coverage=share,
        coverage_interval=(
            (share, share) if math.isinf(threshold) else coverage_interval(count, len(scores), confidence)
        ),
        promised=promised,
        reason=reason,
    )
