"""A target risk with a guarantee: exact binomial tests of every threshold, in a sequence fixed beforehand.

Calibration rows divided in two: those that fit a calibrator, and those that decide about what it gives.

A promise about new rows must not rest on rows that fitted what it is about.

The rules by name: each takes calibration scores, errors and a target, and returns an AbstentionRule.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from uatlite.errors import InputError
from uatlite.trust.rule import AbstentionRule, allowed_errors, fixed_threshold, rule_at, target_coverage
from uatlite.values import FloatArray, check_rows, check_scores, check_share, check_tells_apart

PILOT_SHARE = 0.1
"""The share of rows that only says where the search begins, if no pilot scores are given."""

START_ERRORS = 2
"""The search begins where this many errors would be allowed, or fewer if that takes over `SECOND_START` of the rows:
with none allowed the first unlucky row ends it, with many it begins where the risk is already too high."""

SECOND_START = 1 / 3
"""A second search begins where a third of the rows is answered: the few most trusted rows may be the odd ones
(mislabelled, or confidently wrong), and must not veto a promise that holds for many."""

FIRST_LEVEL = 2 / 3
"""The share of the level for the first start; the second has the rest, and all if the first arrives there."""


@dataclass(frozen=True)
class Start:
    """A threshold from which the search goes downward, and the share of the level, 1 - confidence, it brings."""

    threshold: float
    level: float


def target_risk(
    scores: ArrayLike,
    errors: ArrayLike,
    target: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
    pilot: ArrayLike | None = None,
    seed: int = 0,
) -> AbstentionRule:
    """The threshold at which P(wrong | answered) is at most `target` with the stated confidence, or none.

    Thresholds are tested from a start downward. At t the hypothesis "P(wrong | score > t) > target" falls if
    P(Binomial(N, target) ≤ K) is at most the level, with N answers and K errors there; the search ends at the first
    that stands, and the lowest that fell is the rule's. All thresholds share one level (the proof is in
    docs/reference/decision.md): a false promise takes the fall of the first true hypothesis, and which one that is no
    data decide. For this the starts must not come from these rows. They are read off `pilot`: scores, without labels,
    of other rows, such as those that the calibrator was fitted on. Without them a tenth of the rows, drawn by `seed`,
    is the pilot.
    """
    s, e = check_rows(scores, errors)
    check_share("confidence", confidence)
    check_share("target", target)
    check_tells_apart(s, score)
    s, e, aside = split_pilot(s, e, seed) if pilot is None else (s, e, check_scores(pilot))
    if len(aside) == 0 or len(s) == 0:
        raise InputError(f"{len(s)} rows and {len(aside)} pilot scores; the search needs some of both.")
    starts = plan_starts(aside, len(s), target, confidence)
    threshold = lowest_in_sequence(s, e, target, starts)
    promised = threshold < math.inf
    return rule_at(
        threshold,
        s,
        e,
        kind="risk",
        score=score,
        target=target,
        confidence=confidence,
        promised=promised,
        reason="" if promised else why_not(s, e, starts, target, confidence),
    )


def split_pilot(
    scores: FloatArray, errors: NDArray[np.bool_], seed: int
) -> tuple[FloatArray, NDArray[np.bool_], FloatArray]:
    """Scores and errors of the rows that are kept, and the scores of those set aside as the pilot."""
    order = np.random.default_rng(seed).permutation(len(scores))
    size = max(1, round(PILOT_SHARE * len(scores)))
    return scores[order[size:]], errors[order[size:]], scores[order[:size]]


def plan_starts(pilot: FloatArray, rows: int, target: float, confidence: float) -> list[Start]:
    """The starts, highest threshold first; none if so few rows can promise nothing. Levels add to 1 - confidence."""
    level = 1.0 - confidence
    early = first_share(rows, len(pilot), target, FIRST_LEVEL * level)
    if early is not None and early < SECOND_START:
        return [
            Start(upper_quantile(pilot, early), FIRST_LEVEL * level),
            Start(upper_quantile(pilot, SECOND_START), (1 - FIRST_LEVEL) * level),
        ]
    only = first_share(rows, len(pilot), target, level)
    return [] if only is None else [Start(upper_quantile(pilot, only), level)]


def first_share(rows: int, pilots: int, target: float, level: float) -> float | None:
    """The share of rows to answer at the first start: enough to allow `START_ERRORS` at the level, or fewer.

    1.3 standard deviations of the two samples' difference are added: one answer short of the least number would
    end the search at once. None if all rows without an error are not enough.
    """
    allowed = allowed_errors(np.arange(rows + 1), target, 1.0 - level)
    least = [int(np.argmax(allowed >= errors)) for errors in range(START_ERRORS + 1) if allowed[-1] >= errors]
    if not least:
        return None
    share = max([count for count in least if count <= SECOND_START * rows], default=least[0]) / rows
    return share + 1.3 * math.sqrt(share * (1.0 - share) * (1.0 / pilots + 1.0 / rows))


def upper_quantile(pilot: FloatArray, share: float) -> float:
    """The threshold that about `share` of rows exceed; -inf, which all exceed, where the pilot has none so low."""
    rank = math.ceil(share * (len(pilot) + 1))
    return -math.inf if rank > len(pilot) else float(np.sort(pilot)[-rank])


def lowest_in_sequence(scores: FloatArray, errors: NDArray[np.bool_], target: float, starts: list[Start]) -> float:
    """The lowest threshold at which "the risk is above the target" fell; +inf if it fell nowhere.

    From each start down to the next: a run that arrives there hands its level on, and one that stops loses it (the
    fallback procedure of Wiens, 2003). Answers change only at scores that occur, so these stand for all thresholds.
    """
    order = np.argsort(-scores, kind="stable")
    # With the k highest answered: below[k] is the lowest threshold that does it, p_values[k] its test.
    below = np.append(scores[order], -math.inf)
    wrong = np.concatenate([[0], np.cumsum(errors[order])])
    p_values = binom.cdf(wrong, np.arange(len(scores) + 1), target)
    counts = [int((scores > start.threshold).sum()) for start in starts] + [len(scores)]
    found, level = math.inf, 0.0
    for start, first, last in zip(starts, counts, counts[1:], strict=False):
        level += start.level
        for answered in range(first, last + 1):
            if answered > 0 and below[answered] == below[answered - 1]:
                continue  # no threshold parts rows that tie
            if p_values[answered] > level:
                level = 0.0
                break
            found = float(below[answered])
    return found


def why_not(
    scores: FloatArray, errors: NDArray[np.bool_], starts: list[Start], target: float, confidence: float
) -> str:
    """The sentence that says why no threshold can promise the target."""
    asked = f"a risk of {target:.2%} with confidence {confidence:g}"
    if not starts:
        needed = math.ceil(math.log(1 - confidence) / math.log1p(-target))
        return (
            f"{len(scores)} rows cannot promise {asked}: even without an error it takes {needed} answered rows; "
            "label more rows or ask for less."
        )
    answered = scores > starts[-1].threshold
    return (
        f"of the {int(answered.sum())} most trusted of {len(scores)} rows {int((answered & errors).sum())} are wrong, "
        f"which cannot promise {asked}; label more rows, ask for less, or use another score."
    )


FITTING_SHARE = 3
"""One row in so many fits: a temperature needs few rows, a promise many."""


def fitting_rows(rows: int, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows fit, (rows,), a third drawn by the seed; the others decide.

    Not by label: the rows that decide must be a plain random sample, or the promise's proof does not cover them.
    """
    return np.asarray(np.random.default_rng(seed).permutation(rows) % FITTING_SHARE == 0)


RULES: dict[str, Callable[..., AbstentionRule]] = {
    "threshold": fixed_threshold,
    "coverage": target_coverage,
    "risk": target_risk,
}
