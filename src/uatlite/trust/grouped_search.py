"""The thresholds of a promise with texts as the unit: the order in which they are tested, and the search.

The order is planned on answers of other texts, which need no labels. A plan may be as wrong as it likes: that costs
coverage, never the promise (docs/reference/several.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.trust.answers import TextScores
from uatlite.trust.shrinkage import Rows, Shrunk
from uatlite.values import Floats, Integers

GRID = 100
"""The most thresholds that are tested."""

STARTS = ((1.0, 0.75), (2.0, 0.25))
"""A search begins where it is most likely to succeed if the errors are as many as the scores say, and another if they
are twice as many; beside each its part of the level."""

CLUMPING = 0.2
"""The clumping that is planned, as a part of that of texts whose answers are all wrong or all right."""

SURPLUS = 1.15
"""Plans reckon with so many times the errors that the scores say: a start that is too high costs less than one that is
too low."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The hypotheses in the order of their tests, all from texts that do not decide.

    thresholds, most (hypotheses,): what is reported. planned (hypotheses, 2): mean and mean square of the answers of a
    text that has any. starts: the place where a search begins, ascending, and its part of the level.
    """

    thresholds: Floats
    most: Integers
    planned: Floats
    starts: Sequence[tuple[int, float]]


def plan_search(others: TextScores, texts: int, target: float, level: float, most: int, kind: str) -> Plan:
    """Thresholds from the highest score of `others` down to -inf, for `texts` labelled texts, and where to begin."""
    thresholds = threshold_grid(others.scores)
    chances = error_chances(others.scores, target) if others.chances is None else others.chances
    caps: list[int] = []
    planned, answers, errors = [], [], []
    for threshold in thresholds.tolist():
        counts = others.tally(threshold, most)
        cap = max([1, *caps[-1:]])
        while cap < most and bearable(counts, cap + 1, texts, target, level, kind):
            cap += 1
        caps.append(cap)
        shown = (others.scores > threshold) & (others.ranks < cap)
        planned.append(moments(np.minimum(counts, cap)))
        answers.append(texts * (1.0 if kind == "per-text" else shown.sum() / others.texts))
        errors.append(texts * chances[shown].sum() / others.texts)
    moment = np.array(planned)
    loss = np.array([largest_loss(cap, target, kind) for cap in caps])
    starts = plan_starts(np.array(answers), np.array(errors), clumping(moment), loss, target, level)
    return Plan(thresholds, np.array(caps), moment, starts)


def threshold_grid(scores: Floats) -> Floats:
    """At most `GRID` of the scores, at even ranks, in falling order, and -inf, which all exceed."""
    ranked = np.sort(scores)[::-1]
    places = np.unique(np.linspace(0, len(ranked) - 1, GRID).astype(np.int64))
    return np.append(np.unique(ranked[places])[::-1], -math.inf)


def error_chances(scores: Floats, target: float) -> Floats:
    """The probability (answers,) to plan with that each answer is wrong: 1 - score, where scores are probabilities.

    Other scores give a rank only; then it is planned as if the target were just met by the better half.
    """
    if is_probability(scores):
        return 1.0 - scores
    share = np.argsort(np.argsort(-scores, kind="stable")) / len(scores)
    return np.minimum(4.0 * target * share, 1.0)


def learned_chances(scores: Floats, wrong: NDArray[np.bool_]) -> Floats:
    """The probability (answers,) that each answer is wrong, by logistic regression on its score as log-odds."""
    odds = scores
    if is_probability(scores):
        odds = np.log(np.maximum(scores, 1e-6)) - np.log(np.maximum(1.0 - scores, 1e-6))
    spread = float(odds.std()) or 1.0
    rows = Rows(odds / spread, np.empty((len(odds), 0)), np.zeros(len(odds), dtype=np.int64), ~wrong)
    fit = Shrunk.fit(rows, kinds=1, strength=0.0, prior=1.0, identity=spread)
    return np.asarray(np.exp(-np.logaddexp(0.0, fit.slope * rows.x + fit.bias)))


def is_probability(scores: Floats) -> bool:
    """Whether all scores are from 0 to 1."""
    return bool(scores.min(initial=0.0) >= 0.0 and scores.max(initial=1.0) <= 1.0)


def moments(counts: Floats) -> tuple[float, float]:
    """The mean and the mean square of the answers of texts that have any; 1 and 1 where none has."""
    some = counts[counts > 0]
    return (float(some.mean()), float(np.square(some).mean())) if len(some) else (1.0, 1.0)


def clumping(moment: Floats) -> Floats:
    """The planned E[W²]/E[W] from the moments of the answers, (..., 2): 1 if errors come one by one."""
    return np.asarray(1.0 + CLUMPING * np.maximum(moment[..., 1] / moment[..., 0] - 1.0, 0.0))


def bearable(counts: Floats, most: int, texts: int, target: float, level: float, kind: str) -> bool:
    """Whether a bet that may lose no more than it has on `most` errors of one text can still risk what it wants on one.

    A bet must survive a text whose answers are all wrong, so that with a high `most` it can risk little on one error.
    """
    shown = np.minimum(counts, most)
    clump = clumping(np.array([moments(shown)]))
    answers = np.array([texts * (1.0 if kind == "per-text" else float(shown.mean()))])
    return bool((wanted_stake(answers, clump, target, level) <= 1.0 / largest_loss(most, target, kind)).all())


def wanted_stake(answers: Floats, clump: Floats, target: float, level: float) -> Floats:
    """The share of its money that a bet wants to risk on one error at first, (hypotheses,)."""
    from uatlite.trust.text_bets import stakes_of

    jump = (1.0 - target) * clump
    return stakes_of(np.full(len(answers), level), target * answers / jump) / (level * jump)


def largest_loss(most: float, target: float, kind: str) -> float:
    """The largest W - target·N of a text: all of `most` answers wrong, with N = 1 for wrong answers a text."""
    return most - target if kind == "per-text" else most * (1.0 - target)


def plan_starts(
    answers: Floats, errors: Floats, clump: Floats, loss: Floats, target: float, level: float
) -> list[tuple[int, float]]:
    """Where searches begin, and their parts of the level; all are expected numbers, (hypotheses,) each.

    With a Poisson number of errors x are allowed if P(Poisson(target·answers) ≤ x) = level, and a start is where
    P(Poisson(errors) ≤ x) is the highest, in units of the clump in which errors come. A bet that may risk less than it
    wants, because a text may cost `loss`, is as weak as one on larger clumps. Two starts at one place are one.
    """
    from scipy.special import gammaincc, gdtrib

    starts: dict[int, float] = {}
    for factor, part in STARTS:
        units = clump.copy()
        for _ in range(20):
            units = np.where(wanted_stake(answers, units, target, part * level) > 1.0 / loss, 1.15 * units, units)
        jump = (1.0 - target) * units
        allowed = gdtrib(1.0, 1.0 - part * level, np.maximum(target * answers / jump, 1e-9))
        chance = np.where(allowed >= 1.0, gammaincc(np.maximum(allowed, 1.0), SURPLUS * factor * errors / jump), 0.0)
        likely = np.flatnonzero(chance >= chance.max() - 0.01)  # the middle of them bears a wrong plan best
        place = int(likely[len(likely) // 2]) if chance.any() else len(answers) - 1
        starts[place] = starts.get(place, 0.0) + part * level
    return sorted(starts.items())


def lowest_in_plan(plan: Plan, counts: Floats, errors: Floats, target: float, *, kind: str, seed: int) -> int | None:
    """The last place of the plan at which "the risk is above the target" was rejected; None if it was nowhere.

    counts and errors are (texts, hypotheses). As in `lowest_in_sequence`, each search goes from its start to the next
    start, and passes its level on if it gets there. So a search has one of several levels, which are all tested.
    """
    order = np.random.default_rng((seed, 1)).permutation(len(counts))
    found, handed_on = None, 0.0
    ends = [place for place, _ in plan.starts[1:]] + [len(plan.thresholds) - 1]
    for stretch, ((begin, part), end) in enumerate(zip(plan.starts, ends, strict=True)):
        parts = [one for _, one in plan.starts[: stretch + 1]]
        levels = np.cumsum(parts[::-1])  # its own, and with those of one search before it or more
        column = int(np.argmin(np.abs(levels - part - handed_on)))
        here = slice(begin, end + 1)
        rejected = rejections(plan, here, counts[order, here], errors[order, here], target, levels, kind)[:, column]
        passed = len(rejected) if rejected.all() else int(np.argmin(rejected))
        if passed:
            found = begin + passed - 1
        handed_on = handed_on + part if rejected.all() else 0.0
    return found


def rejections(
    plan: Plan, here: slice, counts: Floats, errors: Floats, target: float, levels: Floats, kind: str
) -> NDArray[np.bool_]:
    """Whether each hypothesis of a stretch is rejected at each level, (hypotheses, levels).

    Where a text has one answer at most this is the exact binomial test, else the bet.
    """
    from scipy.stats import binom

    from uatlite.trust.text_bets import won

    caps = plan.most[here].astype(np.float64)
    single = (caps == 1) & (kind != "recall")  # gold answers may be scaled and are then no whole numbers
    found = np.empty((len(caps), len(levels)), dtype=bool)
    p_values = binom.cdf(errors[:, single].sum(axis=0), counts[:, single].sum(axis=0), target)
    found[single] = p_values[:, None] <= levels
    several = ~single
    if several.any():
        planned = plan.planned[here]
        gain, mean = (target * caps, planned[:, 0]) if kind != "per-text" else (np.full(len(caps), target), caps**0)
        found[several] = won(
            counts[:, several],
            errors[:, several],
            target,
            np.tile(levels, (int(several.sum()), 1)),
            loss=np.array([largest_loss(cap, target, kind) for cap in caps[several]]),
            gain=gain[several],
            mean=mean[several],
            clump=clumping(planned[several]),
        )
    return found
