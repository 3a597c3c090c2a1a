"""Evidence that a stream of rows has changed, valid at every moment: a bet against the rank of each new row.

Without a change the calibration rows and all new rows are exchangeable, so the rank of a new row among all rows before
it is uniform and independent of the earlier ranks. Each new row joins the rows that later ones are compared with. That
makes the test exact for a finite number of calibration rows; a comparison with the calibration rows alone is not.

    u    the smoothed rank of a row, low where it is strange: uniform and independent without a change
    bet  a Beta density f: its factor f(u) is 1 on average without a change
    M    the mixture, over bets and over the row at which they begin, of the products of these factors

M is a nonnegative martingale that begins at 1. By Ville's inequality P(M is ever 1/α or more) ≤ α. The proof is in
docs/reference/watch.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.values import Floats, Integers

BETS: dict[str, tuple[float, float]] = {
    "a little low": (0.85, 1.0),
    "low": (0.6, 1.0),
    "very low": (0.25, 1.0),
    "a little high": (1.0, 0.85),
    "high": (1.0, 0.6),
    "very high": (1.0, 0.25),
    "at both ends": (0.7, 0.7),
    "in the middle": (1.5, 1.5),
}
"""What is bet on, as the Beta density of the rank; 'low' is a bet that ranks are low.

A change of all rows is found first by a bold bet, a change of some rows only by a small one."""

START, SLOWNESS = 0.5, 500.0
"""Half of the capital bets from the first row. Of the rest, 1/(2(t + SLOWNESS)) begins to bet before row t + 1."""

TIE = 1e-4
"""Values closer than this share of the interquartile range count as tied: one text differs so much between batches."""

_STEPS = 32
"""Cells in the middle; towards both ends each is half as wide as the one before it."""


@dataclass(frozen=True, eq=False)
class RankCells:
    """Ranges of places among calibration rows, from strange to usual. A new row has one of rows + 1 places.

    `edges` (cells - 1,) are the first places of all cells but the first. No edge lies at a value that several
    calibration rows share: a text that comes again and again would fall on one side of it.
    """

    rows: int
    edges: Integers

    @classmethod
    def of(cls, ordered: ArrayLike) -> Self:
        """The cells of calibration rows, by their values from strange to usual, (rows,)."""
        values = np.asarray(ordered, dtype=np.float64)
        rows = len(values)
        tails = 2.0 ** -np.arange(1, np.log2(rows + 1))
        shares = np.concatenate([tails, 1.0 - tails, np.arange(1, _STEPS) / _STEPS])
        wanted = np.unique(np.clip(np.round((rows + 1) * shares), 1, rows)).astype(np.int64)
        near = TIE * (np.quantile(values, 0.75) - np.quantile(values, 0.25))
        apart = np.abs(np.diff(values)) > abs(near)
        alone = np.flatnonzero(np.append(True, apart) & np.append(apart, True)) + 1
        if not len(alone):
            return cls(rows, np.zeros(0, dtype=np.int64))
        nearest = alone[np.abs(alone[None, :] - wanted[:, None]).argmin(axis=1)]
        return cls(rows, np.unique(nearest))

    @cached_property
    def weights(self) -> Floats:
        """(cells,): the places in each cell, rows + 1 in all."""
        return np.diff(np.concatenate([[0], self.edges, [self.rows + 1]])).astype(np.float64)

    def cell(self, places: ArrayLike) -> Integers:
        """The cell of each row, by the number of calibration rows that are stranger: (rows,) → (rows,)."""
        return np.searchsorted(self.edges, np.asarray(places, dtype=np.int64), side="right")


@dataclass(frozen=True, eq=False)
class Wealth:
    """The capital of the bets on one stream after `rows` rows, and what it takes to go on.

    `fresh` is whether the calibration rows are left out, so that new rows are compared with earlier new rows only.
    """

    rows: int
    counts: Integers
    """(cells,): how many new rows each cell holds"""
    capital: Floats
    """(bets,): the logarithm of what each bet has"""
    run: Floats
    """(bets,): the sum of the logarithms of each bet's factors"""
    lowest: Floats
    """(bets,): the lowest that this sum has been"""
    since: Integers
    """(bets,): after how many rows it was lowest; a change begins there, if the bet is right"""
    fresh: bool = False

    @classmethod
    def none(cls, cells: RankCells, *, fresh: bool = False) -> Self:
        """Before the first row."""
        zeros = np.zeros(len(BETS))
        capital = np.full(len(BETS), np.log(START / len(BETS)))
        since = np.zeros(len(BETS), dtype=np.int64)
        return cls(0, np.zeros(len(cells.weights), dtype=np.int64), capital, zeros, zeros, since, fresh)

    @property
    def log_martingale(self) -> float:
        """log M, 0 at the start."""
        return float(np.logaddexp(log_waiting(self.rows), np.logaddexp.reduce(self.capital)))

    def after(self, cells: RankCells, found: Integers, uniforms: Floats) -> "EvidencePath":
        """The evidence after each of some more rows, by their cells and their uniform numbers: (rows,) each."""
        factors = log_factors(self._ranks(cells, found, uniforms))
        run = self.run + np.cumsum(factors, axis=0)
        before = np.vstack([np.zeros(len(BETS)), np.cumsum(factors, axis=0)[:-1]])
        # What begins to bet before a row multiplies with the factors from that row on: divide by those before it.
        times = self.rows + np.arange(len(found))
        joining = (log_joining(times) - np.log(len(BETS)))[:, None] - before
        capital = np.logaddexp(self.capital, np.logaddexp.accumulate(joining, axis=0)) + (run - self.run)
        lows = np.minimum.accumulate(np.vstack([self.lowest, run]), axis=0)
        steps = np.where(np.vstack([self.lowest, run]) <= lows, np.append(-1, np.arange(len(found)))[:, None], -1)
        last = np.maximum.accumulate(steps, axis=0)[1:]
        since = np.where(last < 0, self.since, self.rows + last + 1)
        return EvidencePath(self, found, capital, run, lows[1:], since)

    def _ranks(self, cells: RankCells, found: Integers, uniforms: Floats) -> Floats:
        """The smoothed ranks among calibration rows and earlier rows, (rows,); of `fresh`, among those and itself."""
        base = self.counts + (0.0 if self.fresh else cells.weights)
        own = 1.0 if self.fresh else 0.0
        joined = np.zeros((len(found), len(base)))
        joined[np.arange(1, len(found)), found[:-1]] = 1.0
        weights = base + np.cumsum(joined, axis=0)
        rows = np.arange(len(found))
        here = weights[rows, found]
        below = np.cumsum(weights, axis=1)[rows, found] - here
        return np.asarray((below + uniforms * (here + own)) / (weights.sum(axis=1) + own))


@dataclass(frozen=True, eq=False)
class EvidencePath:
    """The evidence after each of some rows, one after the other: (rows, bets) each, from `begin` on."""

    begin: Wealth
    found: Integers
    """(rows,): the cell of each row"""
    capital: Floats
    run: Floats
    lowest: Floats
    since: Integers

    @property
    def log_martingale(self) -> Floats:
        """(rows,): log M after each row."""
        times = self.begin.rows + 1 + np.arange(len(self.found))
        return (
            np.logaddexp(log_waiting(times), np.logaddexp.reduce(self.capital, axis=1)) if len(times) else np.zeros(0)
        )

    def at(self, row: int) -> Wealth:
        """The evidence after the row of this number."""
        counts = self.begin.counts + np.bincount(self.found[: row + 1], minlength=len(self.begin.counts))
        path = {name: getattr(self, name)[row] for name in ("capital", "run", "lowest", "since")}
        return replace(self.begin, rows=self.begin.rows + row + 1, counts=counts, **path)

    @property
    def end(self) -> Wealth:
        """The evidence after the last row."""
        return self.at(len(self.found) - 1) if len(self.found) else self.begin


log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def log_factors(ranks: Floats) -> Floats:
    """The logarithm of each bet's Beta density at each rank: (rows,) → (rows, bets)."""
    u = np.clip(ranks, 1e-12, 1.0 - 1e-12)[:, None]
    a, b = np.array(list(BETS.values())).T
    return np.asarray(
        (a - 1.0) * np.log(u) + (b - 1.0) * np.log1p(-u) - (log_gamma(a) + log_gamma(b) - log_gamma(a + b))
    )


def log_waiting(rows: ArrayLike) -> Floats:
    """The logarithm of the capital that has not bet yet after this many rows.

    (1 - START)·Π (1 - ½/(i + SLOWNESS)) over i = 1..rows - 1, by gamma functions.
    """
    t, c = np.maximum(np.asarray(rows, dtype=np.float64) - 1.0, 0.0), SLOWNESS
    gone = log_gamma(t + c + 0.5) - log_gamma(t + c + 1.0) + log_gamma(c + 1.0) - log_gamma(c + 0.5)
    return np.asarray(np.log(1.0 - START) + gone)


def log_joining(rows: Integers) -> Floats:
    """The logarithm of the capital that begins to bet after this many rows; -inf before the first, where START has."""
    t = np.asarray(rows, dtype=np.float64)
    return np.where(t > 0, log_waiting(t) - np.log(2.0 * (t + SLOWNESS)), -np.inf)


def uniforms(key: Sequence[int], first: int, rows: int) -> Floats:
    """A uniform number for each row, by the number of the row and a key of two: the same however rows are grouped."""
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=first)
    return np.asarray((generator.random_raw(4 * rows)[::4] >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
