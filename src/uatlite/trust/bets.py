"""Promises with texts as the unit: the plan of the thresholds, and the test of each by a bet.

Does E[W] < r·E[N] hold, with N answers and W errors in a text? Nothing is assumed but independent texts and a bound of
N. The test is a bet against E[W] ≥ r·E[N] that starts with the money α and wins if it ever has 1, which a fair game
allows with a probability of at most α. A wrong plan costs coverage, never the promise (docs/reference/several.md).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uatlite.trust.answers import RegressionRows, Shrunk
from uatlite.trust.binomial import Test, exact_test
from uatlite.values import Floats, Integers, Marks

BetKind = Literal["precision", "per-text", "recall"]
"""At most `target` of the reported answers are wrong; wrong answers a text; gold answers of answered texts missed."""

GRID = 100
"""The most thresholds that bets are made on."""

TEXT_STARTS = ((1.0, 0.75), (2.0, 0.25))
"""A search begins where it is most likely to succeed if the errors are as many as the scores say, and another if they
are twice as many; beside each its part of the level."""

CLUMPING = 0.2
"""The clumping that is planned, as a part of that of texts whose answers are all wrong or all right."""

SURPLUS = 1.15
"""Plans reckon with so many times the errors that the scores say: a start that is too high costs less than one that is
too low."""

MEANS = np.linspace(math.log(1e-3), math.log(5e3), 300)
PROBITS = np.linspace(-4.75, 3.5, 250)
"""The grid of the table of stakes: the logarithm of the expected errors to come, and the probit of the money."""

OWN_TEXTS, OWN_ERRORS = 20.0, 4.0
"""The texts and the errors that the expected `mean` and `clump` count as, beside those seen so far."""


def threshold_grid(scores: Floats) -> Floats:
    """At most `GRID` of the scores, at even ranks, in falling order, and -inf, which all exceed."""
    ranked = np.sort(scores)[::-1]
    places = np.unique(np.linspace(0, len(ranked) - 1, GRID).astype(np.int64))
    return np.append(np.unique(ranked[places])[::-1], -math.inf)


def error_chances(scores: Floats, target: float) -> Floats:
    """The probability (answers,) to plan with that each answer is wrong: 1 - score, where scores are probabilities.

    Other scores give a rank only; then it is planned as if the target were just met by the better half.
    """
    if _is_probability(scores):
        return 1.0 - scores
    share = np.argsort(np.argsort(-scores, kind="stable")) / len(scores)
    return np.minimum(4.0 * target * share, 1.0)


def learned_chances(scores: Floats, wrong: Marks) -> Floats:
    """The probability (answers,) that each answer is wrong, by logistic regression on its score as log-odds."""
    odds = scores
    if _is_probability(scores):
        odds = np.log(np.maximum(scores, 1e-6)) - np.log(np.maximum(1.0 - scores, 1e-6))
    spread = float(odds.std()) or 1.0
    rows = RegressionRows(odds / spread, np.empty((len(odds), 0)), np.zeros(len(odds), dtype=np.int64), ~wrong)
    fit = Shrunk.fit(rows, kinds=1, strength=0.0, prior=1.0, identity=spread)
    return np.asarray(np.exp(-np.logaddexp(0.0, fit.slopes[0] * rows.x + fit.biases[0])))


def _is_probability(scores: Floats) -> bool:
    return bool(scores.min(initial=0.0) >= 0.0 and scores.max(initial=1.0) <= 1.0)


def expected(counts: Floats) -> tuple[float, float]:
    """The mean of the answers of texts that have any, and the planned E[W²]/E[W], 1 if errors come one by one."""
    some = counts[counts > 0] if counts.any() else np.ones(1)
    mean = float(some.mean())
    return mean, 1.0 + CLUMPING * max(float(np.square(some).mean()) / mean - 1.0, 0.0)


def bearable(counts: Floats, most: int, texts: int, target: float, level: float, kind: BetKind) -> bool:
    """Whether a bet that may lose no more than it has on `most` errors of one text can still risk what it wants on one.

    A bet must survive a text whose answers are all wrong, so that with a high `most` it can risk little on one error.
    """
    shown = np.minimum(counts, most)
    clump = np.array([expected(shown)[1]])
    answers = np.array([texts * (1.0 if kind == "per-text" else float(shown.mean()))])
    return bool((wanted_stake(answers, clump, target, level) <= 1.0 / largest_loss(most, target, kind)).all())


def wanted_stake(answers: Floats, clump: Floats, target: float, level: float) -> Floats:
    """The share of its money that a bet wants to risk on one error at first, (hypotheses,)."""
    jump = (1.0 - target) * clump
    return stakes_of(np.full(len(answers), level), target * answers / jump) / (level * jump)


def largest_loss(most: ArrayLike, target: float, kind: BetKind) -> Floats:
    """The largest W - target·N of a text: all of `most` answers wrong, with N = 1 for wrong answers a text."""
    caps = np.asarray(most, dtype=np.float64)
    return caps - target if kind == "per-text" else caps * (1.0 - target)


def plan_text_starts(
    answers: Floats, errors: Floats, clump: Floats, loss: Floats, target: float, level: float
) -> list[tuple[int, float]]:
    """Where searches begin, and their parts of the level; all are expected numbers, (hypotheses,) each.

    With a Poisson number of errors x are allowed if P(Poisson(target·answers) ≤ x) = level, and a start is where
    P(Poisson(errors) ≤ x) is the highest, in units of the clump in which errors come. A bet that may risk less than it
    wants, because a text may cost `loss`, is as weak as one on larger clumps. Two starts at one place are one.
    """
    from scipy.special import gammaincc, gdtrib

    starts: dict[int, float] = {}
    for factor, share in TEXT_STARTS:
        units = clump.copy()
        for _ in range(20):
            units = np.where(wanted_stake(answers, units, target, share * level) > 1.0 / loss, 1.15 * units, units)
        jump = (1.0 - target) * units
        allowed = gdtrib(1.0, 1.0 - share * level, np.maximum(target * answers / jump, 1e-9))
        chance = np.where(allowed >= 1.0, gammaincc(np.maximum(allowed, 1.0), SURPLUS * factor * errors / jump), 0.0)
        likely = np.flatnonzero(chance >= chance.max() - 0.01)  # the middle of them bears a wrong plan best
        start = int(likely[len(likely) // 2]) if chance.any() else len(answers) - 1
        starts[start] = starts.get(start, 0.0) + share * level
    return sorted(starts.items())


def bet(
    most: Integers, usual: Floats, counts: Floats, errors: Floats, target: float, *, kind: BetKind, seed: int
) -> Test:
    """The test of the hypotheses of a plan with counts and errors (texts, hypotheses), in an order drawn by the seed.

    The plan says for each the most answers of a text, (hypotheses,), and what is `expected`, (hypotheses, 2). Where a
    text has one answer at most this is the exact binomial test, else the bet.
    """
    order = np.random.default_rng((seed, 1)).permutation(len(counts))
    counts, errors, caps = counts[order], errors[order], most.astype(np.float64)
    gain, mean = (np.ones(len(caps)),) * 2 if kind == "per-text" else (caps, usual[:, 0])
    planned = (largest_loss(caps, target, kind), target * gain, mean, usual[:, 1])
    single = (caps == 1) & (kind != "recall")  # gold answers may be scaled and are then no whole numbers
    exact = exact_test(errors.sum(axis=0), counts.sum(axis=0), target)

    def rejected(places: slice, levels: Floats) -> Marks:
        marks = exact(places, levels)
        several = np.flatnonzero(~single[places]) + places.start
        if len(several):
            every, game = np.tile(levels, (len(several), 1)), Game(*(values[several] for values in planned))
            marks[several - places.start] = won(counts[:, several], errors[:, several], target, every, game)
        return marks

    return rejected


def ratio_interval(parts: Floats, wholes: Floats, confidence: float) -> tuple[float, float]:
    """sum(parts)/sum(wholes), both (texts,), ± its standard error over texts times the normal quantile, in [0, 1]."""
    from scipy.stats import norm

    share = parts.sum() / wholes.sum()
    error = math.sqrt(float(np.square(parts - share * wholes).sum())) / wholes.sum()
    width = norm.ppf(0.5 + confidence / 2) * error
    return max(float(share - width), 0.0), min(float(share + width), 1.0)


@dataclass(frozen=True, eq=False)
class Game:
    """What is known of a text beforehand, (hypotheses,) each or one number for all.

    W - target·N is at most `loss` and at least -`gain`. `mean` and `clump` are the E[N | N > 0] and E[W²]/E[W] that are
    expected; they steer the stakes, no more.
    """

    loss: Floats | float
    gain: Floats | float
    mean: Floats | float = 1.0
    clump: Floats | float = 1.0


def won(counts: Floats, errors: Floats, target: float | Floats, levels: Floats, game: Game) -> Marks:
    """Whether "E[errors] ≥ target·E[counts]" is rejected at each level, (hypotheses, levels).

    `counts` and `errors` (texts, hypotheses) are N and W of each text under each hypothesis; the target is one for all
    or (hypotheses,), and `levels` (hypotheses, levels) ascend.

    With X = W - target·N the money V, at first the level, becomes V - π·X from text to text, where the stake π ≥ 0
    depends on the texts before. If E[X] ≥ 0 then E[V] does not rise, and V is never below 0, so P(V ≥ 1) ≤ level.
    Of two levels the higher always has more money, so that what is rejected at a level is rejected at all above it.
    """
    open_texts = np.cumsum((counts > 0)[::-1], axis=0)[::-1]  # texts with answers to come, this one included
    seen, answers = np.full(len(levels), OWN_TEXTS), OWN_TEXTS * game.mean
    wrong, square = np.full(len(levels), OWN_ERRORS), OWN_ERRORS * game.clump
    money = levels.astype(np.float64).copy()
    for here, bad, left in zip(counts, errors, open_texts, strict=True):
        playing = here > 0
        if not playing.any():
            continue
        jump = (1.0 - target) * square / wrong  # an answer's variance is r·(1 - r), that of a Poisson number is r
        means = target * (answers / seen) * left / jump
        stakes = stakes_of(money, means[:, None]) / jump[:, None]
        outcome = np.where(playing, bad - target * here, 0.0)
        money -= ordered(stakes, money, game) * outcome[:, None]
        seen, answers = seen + playing, answers + here
        wrong, square = wrong + bad, square + bad * bad
    return np.asarray(money >= 1.0)


def ordered(stakes: Floats, money: Floats, game: Game) -> Floats:
    """Stakes (hypotheses, levels) after which no money is below 0 nor below that of the level before it.

    With V ≤ V' the new values differ by (V' - V) - (π' - π)·X, and X is between -gain and loss. Who has 1 stops.
    """
    allowed = np.empty_like(stakes)
    below, stake_below = np.zeros(len(stakes)), np.zeros(len(stakes))
    for level in range(stakes.shape[1]):
        more = money[:, level] - below
        stake = np.clip(stakes[:, level], stake_below - more / game.gain, stake_below + more / game.loss)
        stake = np.where(money[:, level] >= 1.0, 0.0, np.maximum(stake, 0.0))
        allowed[:, level] = stake
        below, stake_below = money[:, level], stake
    return allowed


def stakes_of(money: Floats, means: Floats) -> Floats:
    """The stake on the next error that copies a Poisson test: P(Poisson(mean) = x) where P(Poisson(mean) ≤ x) = money.

    x is the number of errors that may still come, made continuous by the gamma function. Read from a table by linear
    interpolation: any stakes are valid, so that its error costs nothing but power.
    """
    from scipy.ndimage import map_coordinates
    from scipy.special import ndtri

    row = (np.log(np.maximum(means, 1e-9)) - MEANS[0]) / (MEANS[1] - MEANS[0])
    column = (ndtri(np.clip(money, 1e-9, 1 - 1e-9)) - PROBITS[0]) / (PROBITS[1] - PROBITS[0])
    return np.asarray(map_coordinates(_table(), np.broadcast_arrays(row, column), order=1, mode="nearest"))


@lru_cache(maxsize=1)
def _table() -> Floats:
    """(means, probits): the stakes on the grid; Q(x + 1, mean) = money gives x, and the stake is mean^x e^-mean / x!"""
    from scipy.special import gammaln, gdtrib, ndtr

    means, money = np.broadcast_arrays(np.exp(MEANS)[:, None], ndtr(PROBITS)[None, :])
    shape = gdtrib(1.0, 1.0 - money, means)  # x + 1
    return np.asarray(np.exp((shape - 1.0) * np.log(means) - means - gammaln(shape)))
