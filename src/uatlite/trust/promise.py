"""The rule for a target risk and its guarantee; the split into rows that fit and rows that decide; all rules by name.

The guarantee comes from exact binomial tests of thresholds in an order that is fixed beforehand. It is about new rows,
so the rows that decide must not have fitted anything that the rule is about: `fitting_rows` divides them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from uatlite.errors import InputError
from uatlite.trust.rule import (
    AbstentionRule,
    allowed_errors,
    check_rows,
    check_target,
    fixed_threshold,
    rule_at,
    target_coverage,
)
from uatlite.values import Floats, check_scores

PILOT_SHARE = 0.1
"""The share of rows set aside to choose where the search begins, if no pilot scores are given."""

START_ERRORS = 2
"""The search begins where this many errors are allowed, or fewer if that takes over `SECOND_START` of the rows. With
none allowed the first unlucky row ends the search; with many it begins where the risk is already too high."""

SECOND_START = 1 / 3
"""A second search begins where a third of the rows is answered: the few most trusted rows may be mislabelled or
confidently wrong, and must not prevent a promise that holds for many."""

FIRST_LEVEL = 2 / 3
"""The share of the level for the first start. The second has the rest, and all of it if the first search gets there."""


@dataclass(frozen=True)
class Start:
    """A threshold from which the search goes downward, and its part of the level, 1 - confidence."""

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

    Thresholds are tested from a start downward. At t the hypothesis "P(wrong | score > t) > target" is rejected if
    P(Binomial(N, target) ≤ K) is at most the level, with N answers and K errors there. The search ends at the first
    hypothesis that is not rejected; the rule has the lowest threshold that was. All thresholds share one level (proof:
    docs/reference/decision.md): a false promise requires rejecting the first true hypothesis, and no data decide which
    one that is. So the starts must not come from these rows. They are read off `pilot`: scores, without labels, of
    other rows, such as those that the calibrator was fitted on. Without a pilot, a tenth of the rows, drawn by `seed`,
    is set aside as one.
    """
    s, e = check_rows(scores, errors, confidence)
    check_target(target, s, score)
    s, e, aside = split_pilot(s, e, seed) if pilot is None else (s, e, check_scores(pilot))
    if len(aside) == 0 or len(s) == 0:
        raise InputError(f"{len(s)} rows and {len(aside)} pilot scores; the search needs at least one of each.")
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


def split_pilot(scores: Floats, errors: NDArray[np.bool_], seed: int) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Scores and errors of the rows that are kept, and the scores of those set aside as the pilot."""
    order = np.random.default_rng(seed).permutation(len(scores))
    size = max(1, round(PILOT_SHARE * len(scores)))
    return scores[order[size:]], errors[order[size:]], scores[order[:size]]


def plan_starts(pilot: Floats, rows: int, target: float, confidence: float) -> list[Start]:
    """The starts, highest threshold first; none if the rows are too few to promise. Levels sum to 1 - confidence."""
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

    1.3 standard deviations of the difference between the two samples are added: one answer too few would end the
    search at once. None if even all rows without an error are not enough.
    """
    allowed = allowed_errors(np.arange(rows + 1), target, 1.0 - level)
    least = [int(np.argmax(allowed >= errors)) for errors in range(START_ERRORS + 1) if allowed[-1] >= errors]
    if not least:
        return None
    share = max([count for count in least if count <= SECOND_START * rows], default=least[0]) / rows
    return share + 1.3 * math.sqrt(share * (1.0 - share) * (1.0 / pilots + 1.0 / rows))


def upper_quantile(pilot: Floats, share: float) -> float:
    """The threshold that about `share` of rows exceed; -inf, which all exceed, where the pilot has no score so low."""
    rank = math.ceil(share * (len(pilot) + 1))
    return -math.inf if rank > len(pilot) else float(np.sort(pilot)[-rank])


def lowest_in_sequence(scores: Floats, errors: NDArray[np.bool_], target: float, starts: list[Start]) -> float:
    """The lowest threshold at which "the risk is above the target" was rejected; +inf if it was nowhere.

    Each search goes from its start to the next start: if it gets there, it passes its level on, else the level is lost
    (the fallback procedure of Wiens, 2003). Answers change only at scores that occur, so only these are tested.
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
                continue  # no threshold separates equal scores
            if p_values[answered] > level:
                level = 0.0
                break
            found = float(below[answered])
    return found


def why_not(scores: Floats, errors: NDArray[np.bool_], starts: list[Start], target: float, confidence: float) -> str:
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
"""One row in three fits the calibrator: a temperature needs few rows, a promise many."""


def fitting_rows(rows: int, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows fit, (rows,): a third, drawn by the seed. The others decide.

    The draw does not look at the labels and does not balance the classes. The proof of the promise needs the rows that
    decide to be a plain random sample of the data; a split by class would make them something else.
    """
    return np.asarray(np.random.default_rng(seed).permutation(rows) % FITTING_SHARE == 0)


RULES: dict[str, Callable[..., AbstentionRule]] = {
    "threshold": fixed_threshold,
    "coverage": target_coverage,
    "risk": target_risk,
}
