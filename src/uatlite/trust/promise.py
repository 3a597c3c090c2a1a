"""The rule for a target risk and its guarantee; the split into rows that fit and rows that decide; all rules by name.

The guarantee comes from exact binomial tests of thresholds in an order that is fixed beforehand. It is about new rows,
so the rows that decide must not have fitted anything that the rule is about: `fitting_rows` divides them. A score that
was fitted on no label, such as the model's own margin, lets all rows decide.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

STARTS = ((1 / 8, 0.4), (1 / 3, 0.4), (1 / 2, 0.2))
"""Where searches begin: the share of rows answered there, and the part of the level. A start at half of the rows has
answers enough to bear a few errors; the ones above it are for targets that half of the rows cannot meet."""

START_ERRORS, NEAR = 1, 0.8
"""The first start moves down until it allows this many errors: one unlucky row must not end the search. Where that is
near the next start, at this part of its share, the first is left out and its level given to the others."""

PILOT_SHARE, PILOT_ROWS = 0.1, 50
"""The share of rows set aside to give the starts if there are no reference scores, and the most of them."""

RISKS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.10, 0.15, 0.20)
"""The risks on a menu; the nearest that can be promised is looked for among these and `HIGHER_RISKS`."""

HIGHER_RISKS = (0.25, 0.30, 0.40, 0.50)

POWER, MOST_ROWS = 0.8, 1_000_000
"""An estimate of the rows needed is for a promise with this probability, and is given up to this many rows."""


@dataclass(frozen=True)
class Start:
    """A threshold from which the search goes downward, and its part of the level, 1 - confidence."""

    threshold: float
    level: float


def target_risk(
    scores: ArrayLike,
    wrong: ArrayLike,
    target: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
    reference: ArrayLike | None = None,
    seed: int = 0,
) -> AbstentionRule:
    """The threshold at which P(wrong | answered) is at most `target` with the stated confidence, or none.

    `scores` (rows,) and `wrong` (rows,), True where the prediction is wrong, are of labelled rows that fitted neither
    the model nor the score. Thresholds are tested from a start downward. At t the hypothesis "P(wrong | score > t) >
    target" is rejected if P(Binomial(N, target) ≤ K) is at most the level, with N answers and K errors there. The
    search ends at the first hypothesis that is not rejected; the rule has the lowest threshold that was. All
    thresholds share one level (proof: docs/reference/decision.md): a false promise requires rejecting the first true
    hypothesis, and no data decide which one that is. So the starts must not come from these rows. They are read off
    `reference` (others,): scores of other texts, no labels needed. Without it, a tenth of the rows, at most 50, drawn
    by `seed`, is set aside for this alone.
    """
    s, w = check_rows(scores, wrong, confidence)
    check_target(target, s, score)
    s, w, others = starting_scores(s, w, reference, seed)
    rule = promise_at(s, w, target, others, score=score, confidence=confidence)
    return rule if rule.promised else replace(rule, reason=why_not(s, w, target, others, confidence))


def starting_scores(
    scores: Floats, wrong: NDArray[np.bool_], reference: ArrayLike | None, seed: int
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Scores and errors of the rows that decide, and the scores that give the starts."""
    if reference is not None:
        others = check_scores(reference)
    else:
        aside = pilot_rows(len(scores), seed)
        scores, wrong, others = scores[~aside], wrong[~aside], scores[aside]
    if len(others) == 0 or len(scores) == 0:
        raise InputError(
            f"{len(scores)} rows and {len(others)} reference scores; the search needs at least one of each."
        )
    return scores, wrong, others


def pilot_rows(rows: int, seed: int, most: int = PILOT_ROWS) -> NDArray[np.bool_]:
    """Which rows are set aside to give the starts, (rows,): a tenth, at least one and at most `most`."""
    size = min(max(1, round(PILOT_SHARE * rows)), most)
    return np.asarray(np.random.default_rng(seed).permutation(rows) < size)


def promise_at(
    scores: Floats, wrong: NDArray[np.bool_], target: float, others: Floats, *, score: str, confidence: float
) -> AbstentionRule:
    """The rule of the search, with the starts read off `others`; without a reason where nothing is promised."""
    threshold = lowest_in_sequence(scores, wrong, target, plan_starts(others, len(scores), target, 1.0 - confidence))
    return rule_at(
        threshold,
        scores,
        wrong,
        kind="risk",
        score=score,
        target=target,
        confidence=confidence,
        promised=threshold < math.inf,
    )


def plan_starts(others: Floats, rows: int, target: float, level: float) -> list[Start]:
    """The starts, highest threshold first; none if the rows are too few to promise. Their levels sum to `level`."""
    shares = planned_shares(rows, len(others), target, level)
    return [Start(upper_quantile(others, share), part) for share, part in shares]


def planned_shares(rows: int, others: float, target: float, level: float) -> list[tuple[float, float]]:
    """The share of rows answered at each start, and its level: `STARTS`, of which the first moves down with few rows.

    Where only the last is left, it moves down until it allows no error at least.
    """
    for first in range(len(STARTS) - 1):
        used = STARTS[first:]
        total = sum(part for _, part in used)
        shares = [(share, level * part / total) for share, part in used]
        needed = needed_share(rows, others, target, shares[0][1], START_ERRORS)
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


@lru_cache(maxsize=1024)
def least_answers(errors: int, target: float, level: float) -> int:
    """The fewest answers N with P(Binomial(N, target) ≤ errors) ≤ level."""
    from scipy.stats import binom

    low, high = errors, errors + 1
    while binom.cdf(errors, high, target) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binom.cdf(errors, middle, target) <= level else (middle, high)
    return high


def upper_quantile(others: Floats, share: float) -> float:
    """The threshold that about `share` of rows exceed; -inf, which all exceed, where there is no score so low."""
    rank = math.ceil(share * (len(others) + 1))
    return -math.inf if rank > len(others) else float(np.sort(others)[-rank])


def lowest_in_sequence(scores: Floats, wrong: NDArray[np.bool_], target: float, starts: Sequence[Start]) -> float:
    """The lowest threshold at which "the risk is above the target" was rejected; +inf if it was nowhere.

    Each search goes from its start to the next start: if it gets there, it passes its level on, else the level is lost
    (the fallback procedure of Wiens, 2003). Answers change only at scores that occur, so only these are tested.
    """
    from scipy.stats import binom

    order = np.argsort(-scores, kind="stable")
    # With the k highest answered: below[k] is the lowest threshold that does it, p_values[k] its test.
    below = np.append(scores[order], -math.inf)
    errors = np.concatenate([[0], np.cumsum(wrong[order])])
    p_values = binom.cdf(errors, np.arange(len(scores) + 1), target)
    possible = np.flatnonzero(np.append(True, below[1:] != below[:-1]))  # no threshold separates equal scores
    counts = [int((scores > start.threshold).sum()) for start in starts] + [len(scores)]
    found, level = math.inf, 0.0
    for start, first, last in zip(starts, counts, counts[1:], strict=False):
        level += start.level
        tested = possible[(possible >= first) & (possible <= last)]
        kept = p_values[tested] > level
        rejected = tested[: int(kept.argmax())] if kept.any() else tested
        if len(rejected):
            found = float(below[rejected[-1]])
        if kept.any():
            level = 0.0
    return found


def why_not(
    scores: Floats, wrong: NDArray[np.bool_], target: float, others: Floats, confidence: float, rows: str = "rows"
) -> str:
    """Why no threshold can promise the target, which risk can be promised, and how many rows the target would take."""
    starts = plan_starts(others, len(scores), target, 1.0 - confidence)
    asked = f"a risk of {target:.2%} with confidence {confidence:g}"
    if not starts:
        least = least_answers(0, target, 1.0 - confidence)
        why = f"{len(scores)} {rows} cannot promise {asked}: even without an error it takes {least} answered rows"
    else:
        answered = scores > starts[-1].threshold
        why = (
            f"of the {int(answered.sum())} most trusted of {len(scores)} {rows} {int((answered & wrong).sum())} are "
            f"wrong, which cannot promise {asked}"
        )
    needed = rows_needed(scores, wrong, target, confidence)
    more = (
        "and more rows will hardly help, the most trusted ones are wrong too often; use another score"
        if needed is None
        else f"and {target:.2%} would take about {two_digits(needed - len(scores)):,} more labelled {rows}"
    )
    nearest = nearest_risk(scores, wrong, target, others, confidence)
    can = "they promise no risk up to 50%" if nearest is None else f"allow a higher risk: they do promise {nearest:.2%}"
    return f"{why}; {can}, {more}."


def nearest_risk(
    scores: Floats, wrong: NDArray[np.bool_], target: float, others: Floats, confidence: float
) -> float | None:
    """The lowest of the usual risks above the target that these rows promise."""
    for risk in RISKS + HIGHER_RISKS:
        if risk > target:
            starts = plan_starts(others, len(scores), risk, 1.0 - confidence)
            if lowest_in_sequence(scores, wrong, risk, starts) < math.inf:
                return risk
    return None


def rows_needed(scores: Floats, wrong: NDArray[np.bool_], target: float, confidence: float) -> int | None:
    """How many labelled rows a promise would take, in all: an estimate to two digits; None if more will not do.

    The fewest rows with which a search passes its start with probability 0.8, if the risk there is the observed one.
    """
    from scipy.stats import binom

    observed = np.cumsum(wrong[np.argsort(-scores, kind="stable")]) / np.arange(1, len(scores) + 1)
    steps = np.ceil(len(scores) * 1.05 ** np.arange(1, math.log(max(MOST_ROWS / len(scores), 1.06), 1.05)))
    runs = [
        (n, *run) for n in steps.astype(int).tolist() for run in planned_shares(n, math.inf, target, 1 - confidence)
    ]
    if not runs:
        return None
    rows, shares, levels = np.array(runs).T
    answered = (shares * rows).astype(np.int64)
    risks = observed[np.maximum(np.round(shares * len(scores)).astype(np.int64), 1) - 1]
    chances = binom.cdf(allowed_errors(answered, target, 1.0 - levels), answered, risks)
    enough = rows[(risks < target) & (chances >= POWER)]
    if not len(enough):
        return None
    return two_digits(int(enough[0]))


def two_digits(count: int) -> int:
    """A count rounded up to two digits, which are enough for an estimate."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


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
