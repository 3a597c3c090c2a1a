"""The test behind promises with texts as the unit: does E[W] < r·E[N] hold, with N answers and W errors in a text?

Nothing is assumed but independent texts and a bound of N. Errors of one text may hang together in any way. The test is
a bet against E[W] ≥ r·E[N] that starts with the money α and wins if it ever has 1, which a fair game allows with a
probability of at most α. Its stakes are those that would copy the exact binomial test if errors came one by one, so it
loses little against it. Proof and comparison with other tests: docs/reference/several.md.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, gdtrib, ndtr, ndtri

from uatlite.values import Floats

MEANS = np.linspace(math.log(1e-3), math.log(5e3), 300)
PROBITS = np.linspace(-4.75, 3.5, 250)
"""The grid of the table of stakes: the logarithm of the expected errors to come, and the probit of the money."""

OWN_TEXTS, OWN_ERRORS = 20.0, 4.0
"""The texts and the errors that the expected `mean` and `clump` count as, beside those seen so far."""


def won(
    counts: Floats,
    errors: Floats,
    target: float,
    levels: Floats,
    *,
    loss: Floats,
    gain: Floats,
    mean: Floats,
    clump: Floats,
) -> NDArray[np.bool_]:
    """Whether "E[errors] ≥ target·E[counts]" is rejected at each level, (hypotheses, levels).

    `counts` and `errors` (texts, hypotheses) are N and W of each text under each hypothesis, and `levels` (hypotheses,
    levels) ascend. W - target·N is at most `loss` and at least -`gain`, (hypotheses,) each. `mean` and `clump`
    (hypotheses,) are the E[N | N > 0] and E[W²]/E[W] that are expected; they steer the stakes, no more.

    With X = W - target·N the money V, at first the level, becomes V - π·X from text to text, where the stake π ≥ 0
    depends on the texts before. If E[X] ≥ 0 then E[V] does not rise, and V is never below 0, so P(V ≥ 1) ≤ level.
    Of two levels the higher always has more money, so that what is rejected at a level is rejected at all above it.
    """
    open_texts = np.cumsum((counts > 0)[::-1], axis=0)[::-1]  # texts with answers to come, this one included
    seen, answers = np.full(len(levels), OWN_TEXTS), OWN_TEXTS * mean
    wrong, square = np.full(len(levels), OWN_ERRORS), OWN_ERRORS * clump
    money = levels.astype(np.float64).copy()
    for here, bad, left in zip(counts, errors, open_texts, strict=True):
        playing = here > 0
        if not playing.any():
            continue
        jump = (1.0 - target) * square / wrong  # an answer's variance is r·(1 - r), that of a Poisson number is r
        means = target * (answers / seen) * left / jump
        stakes = stakes_of(money, means[:, None]) / jump[:, None]
        outcome = np.where(playing, bad - target * here, 0.0)
        money -= ordered(stakes, money, loss, gain) * outcome[:, None]
        seen, answers = seen + playing, answers + here
        wrong, square = wrong + bad, square + bad * bad
    return np.asarray(money >= 1.0)


def ordered(stakes: Floats, money: Floats, loss: Floats, gain: Floats) -> Floats:
    """Stakes (hypotheses, levels) after which no money is below 0 nor below that of the level before it.

    With V ≤ V' the new values differ by (V' - V) - (π' - π)·X, and X is between -gain and loss. Who has 1 stops.
    """
    found = np.empty_like(stakes)
    below, stake_below = np.zeros(len(stakes)), np.zeros(len(stakes))
    for level in range(stakes.shape[1]):
        more = money[:, level] - below
        stake = np.clip(stakes[:, level], stake_below - more / gain, stake_below + more / loss)
        stake = np.where(money[:, level] >= 1.0, 0.0, np.maximum(stake, 0.0))
        found[:, level] = stake
        below, stake_below = money[:, level], stake
    return found


def stakes_of(money: Floats, means: Floats) -> Floats:
    """The stake on the next error that copies a Poisson test: P(Poisson(mean) = x) where P(Poisson(mean) ≤ x) = money.

    x is the number of errors that may still come, made continuous by the gamma function. Read from a table by linear
    interpolation: any stakes are valid, so that its error costs nothing but power.
    """
    table = _table()
    row = np.clip((np.log(np.maximum(means, 1e-9)) - MEANS[0]) / (MEANS[1] - MEANS[0]), 0.0, len(MEANS) - 1.001)
    column = np.clip((ndtri(np.clip(money, 1e-9, 1 - 1e-9)) - PROBITS[0]) / (PROBITS[1] - PROBITS[0]), 0.0, None)
    column = np.minimum(column, len(PROBITS) - 1.001)
    row, column = np.broadcast_arrays(row, column)
    i, j = row.astype(np.int64), column.astype(np.int64)
    down, right = row - i, column - j
    upper = table[i, j] * (1 - right) + table[i, j + 1] * right
    lower = table[i + 1, j] * (1 - right) + table[i + 1, j + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


@lru_cache(maxsize=1)
def _table() -> Floats:
    """(means, probits): the stakes on the grid; Q(x + 1, mean) = money gives x, and the stake is mean^x e^-mean / x!"""
    means, money = np.broadcast_arrays(np.exp(MEANS)[:, None], ndtr(PROBITS)[None, :])
    shape = gdtrib(1.0, 1.0 - money, means)  # x + 1
    return np.asarray(np.exp((shape - 1.0) * np.log(means) - means - gammaln(shape)))
