"""A monitor over the whole life of a classifier: are the rows still like the calibration rows?

Two streams are watched: the p-values of scope, and the score that the rule abstains by. Each has evidence that is valid
at every moment: a bet against the rank of each new row among all rows before it, which it joins. Their mean is evidence
too. Without a change the monitor ever raises an alarm with probability `bound` or less.

    u    the smoothed rank of a row, low where it is strange: uniform and independent without a change
    bet  a Beta density f: its factor f(u) is 1 on average without a change
    M    the mixture, over bets and over the row at which they begin, of the products of these factors

M is a nonnegative martingale that begins at 1, so that P(M is ever 1/α or more) ≤ α (proof: docs/reference/watch.md).
"""

import hashlib
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, DataError, InputError, StoreError
from uatlite.trust.scope import Scope
from uatlite.trust.shift import ShiftReference, check_pair
from uatlite.values import Floats, Integers, check_share


class Bet(NamedTuple):
    """A Beta density of the rank, and what it says where it wins: about the texts, and how sure the classifier is."""

    a: float
    b: float
    scope: str
    score: str


_BETS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
BETS = {name: Bet(**table) for name, table in _BETS.items()}
"""What is bet on; 'low' is a bet that ranks are low."""

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

    def after(self, cells: RankCells, indices: Integers, uniforms: Floats) -> tuple["Wealth", Floats]:
        """The capital after some rows, by their cells and uniform numbers, (rows,) each, and log M after each."""
        factors = log_factors(self._ranks(cells, indices, uniforms))
        run = self.run + np.cumsum(factors, axis=0)
        before = np.vstack([np.zeros(len(BETS)), np.cumsum(factors, axis=0)[:-1]])
        # What begins to bet before a row multiplies with the factors from that row on: divide by those before it.
        times = self.rows + np.arange(len(indices))
        begins = np.where(times > 0, log_waiting(times) - np.log(2.0 * (times + SLOWNESS)), -np.inf)
        joining = (begins - np.log(len(BETS)))[:, None] - before
        capital = np.logaddexp(self.capital, np.logaddexp.accumulate(joining, axis=0)) + (run - self.run)
        sums = np.vstack([self.lowest, run])
        last = len(run) - sums[::-1].argmin(axis=0)  # the last of equals
        after = replace(
            self,
            rows=self.rows + len(indices),
            counts=self.counts + np.bincount(indices, minlength=len(self.counts)),
            capital=capital[-1],
            run=run[-1],
            lowest=sums.min(axis=0),
            since=np.where(last == 0, self.since, self.rows + last),
        )
        return after, np.asarray(np.logaddexp(log_waiting(times + 1), np.logaddexp.reduce(capital, axis=1)))

    def _ranks(self, cells: RankCells, indices: Integers, uniforms: Floats) -> Floats:
        """The smoothed ranks among calibration rows and earlier rows, (rows,); of `fresh`, among those and itself."""
        base = self.counts + (0.0 if self.fresh else cells.weights)
        itself = 1.0 if self.fresh else 0.0
        joined = np.zeros((len(indices), len(base)))
        joined[np.arange(1, len(indices)), indices[:-1]] = 1.0
        weights = base + np.cumsum(joined, axis=0)
        rows = np.arange(len(indices))
        here = weights[rows, indices]
        below = np.cumsum(weights, axis=1)[rows, indices] - here
        return np.asarray((below + uniforms * (here + itself)) / (weights.sum(axis=1) + itself))


log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def log_factors(ranks: Floats) -> Floats:
    """The logarithm of each bet's Beta density at each rank: (rows,) → (rows, bets)."""
    u = np.clip(ranks, 1e-12, 1.0 - 1e-12)[:, None]
    a, b = np.array([(bet.a, bet.b) for bet in BETS.values()]).T
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


def uniforms(key: Sequence[int], first: int, rows: int) -> Floats:
    """A uniform number for each row, by the number of the row and a key of two: the same however rows are grouped."""
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=first)
    return np.asarray((generator.random_raw(4 * rows)[::4] >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


BOUND = 0.01
SCOPE, SCORE = "scope", "score"
STREAMS = (SCOPE, SCORE)
ROUNDED = 1e-3
"""How far from a whole number of rows a p-value of scope may be, when it was written with few digits."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The calibration rows as the monitor sees them: the cells of each stream."""

    score: str
    """the name of the score"""
    scores: Floats
    """of the calibration rows, sorted: (rows,)"""
    cells: Mapping[str, RankCells]
    digest: str
    """of the calibration rows; a state of other rows is not continued"""

    @classmethod
    def of(cls, shift: ShiftReference | None, scope: Scope | None) -> Self:
        """The reference from what calibration keeps."""
        if shift is None:
            raise CalibrationError(
                "calibration kept no rows to compare with, because there were fewer than 50; calibrate on more rows."
            )
        cells = {} if scope is None else {SCOPE: RankCells.of(scope.nonconformities[::-1])}
        cells[SCORE] = RankCells.of(shift.scores)
        digest = hashlib.sha256(shift.score.encode() + shift.scores.tobytes())
        if scope is not None:
            digest.update(scope.nonconformities.tobytes())
        return cls(shift.score, shift.scores, cells, digest.hexdigest())

    def found(self, scores: ArrayLike, scope: ArrayLike | None) -> dict[str, Integers]:
        """The cell of each new row in each stream, by scores and p-values of scope: (rows,) each."""
        given, p = check_pair(scores, scope)
        cells = {SCORE: self.cells[SCORE].cell(np.searchsorted(self.scores, given, side="left"))}
        if SCOPE not in self.cells:
            return cells
        if p is None:
            raise InputError("the classifier knows its scope; give the p-values of scope of the new rows too.")
        rows = self.cells[SCOPE].rows
        places = p * (rows + 1) - 1
        ranks = np.round(places)
        wrong = (np.abs(places - ranks) > ROUNDED) | (ranks < 0) | (ranks > rows)
        if wrong.any():
            raise DataError(
                f"the p-value of scope {p[wrong][0]:.6g} is no rank among {rows:,} calibration rows: these rows were "
                "scored with another calibration. Give the directory that scored them."
            )
        return {SCOPE: self.cells[SCOPE].cell(ranks), **cells}


@dataclass(frozen=True)
class Alarm:
    """When an alarm was raised, and what it rests on. Rows are counted from the last reset."""

    row: int
    """rows until the alarm"""
    change: int
    """rows before the change, by estimate"""
    stream: str
    bet: str
    log_martingale: float

    def describe(self) -> str:
        """What has changed, without a full stop."""
        meaning: str = getattr(BETS[self.bet], self.stream)
        return f"the classifier is {meaning}" if self.stream == SCORE else meaning


@dataclass(frozen=True, eq=False)
class Monitor:
    """What the monitor knows after some rows; `after` gives the monitor after some more.

    `epoch` counts the resets. After a reset to a new normal (`fresh`) rows are compared with later rows only.
    """

    bound: float
    evidence: Mapping[str, Wealth]
    alarm: Alarm | None = None
    epoch: int = 0
    seed: int = 0

    @classmethod
    def begin(cls, reference: Reference, *, bound: float = BOUND, seed: int = 0) -> Self:
        """Before the first row; `bound` is the probability that it ever raises a false alarm, at most."""
        check_share("bound", bound)
        return cls(bound, {name: Wealth.none(cells) for name, cells in reference.cells.items()}, seed=seed)

    @cached_property
    def rows(self) -> int:
        """Rows since the last reset."""
        return next(iter(self.evidence.values())).rows

    @property
    def fresh(self) -> bool:
        """Whether rows are compared with earlier new rows and not with the calibration rows."""
        return next(iter(self.evidence.values())).fresh

    @property
    def log_martingale(self) -> float:
        """log M; an alarm is raised once M is 1 / bound or more."""
        each = [evidence.log_martingale for evidence in self.evidence.values()]
        return float(np.logaddexp.reduce(each) - np.log(len(each)))

    def after(self, reference: Reference, scores: ArrayLike, scope: ArrayLike | None) -> tuple["Monitor", Floats]:
        """The monitor after some more rows, and log M after each of them: (rows,) each → (rows,)."""
        cells = reference.found(scores, scope)
        new = len(cells[SCORE])
        if not new:
            return self, np.zeros(0)
        evidence, paths = {}, []
        for name, before in self.evidence.items():
            numbers = uniforms((self.seed, 2 * self.epoch + STREAMS.index(name)), before.rows, new)
            evidence[name], path = before.after(reference.cells[name], cells[name], numbers)
            paths.append(path)
        logs = np.logaddexp.reduce(paths, axis=0) - np.log(len(paths))
        alarm, over = self.alarm, np.flatnonzero(logs >= -np.log(self.bound))
        if alarm is None and len(over):
            rows = int(over[0]) + 1
            first = np.asarray(scores)[:rows], None if scope is None else np.asarray(scope)[:rows]
            at = evidence if rows == new else self.after(reference, *first)[0].evidence
            alarm = _alarm(at, self.rows + rows, float(logs[rows - 1]))
        return replace(self, evidence=evidence, alarm=alarm), logs

    def acknowledged(self, reference: Reference, *, fresh: bool = False) -> "Monitor":
        """After an alarm: begin again against the calibration rows, or with `fresh` against the rows from now on."""
        if self.alarm is None:
            raise StoreError("there is no alarm to acknowledge: a reset without one would void the bound.")
        evidence = {name: Wealth.none(cells, fresh=fresh) for name, cells in reference.cells.items()}
        return replace(self, evidence=evidence, alarm=None, epoch=self.epoch + 1)


def _alarm(at: Mapping[str, Wealth], row: int, log_martingale: float) -> Alarm:
    """The alarm, by the bet that has won the most; where that bet's run began, the change is."""
    stream = max(at, key=lambda name: at[name].capital.max())
    best = int(at[stream].capital.argmax())
    return Alarm(row, int(at[stream].since[best]), stream, list(BETS)[best], log_martingale)
