"""A monitor over the whole life of a classifier: are the rows still like the calibration rows?

Two streams are watched: the p-values of scope, and the score that the rule abstains by. Each has the evidence of
`martingale.py`; their mean is a martingale too, so looking after every row, or every hour, costs nothing. Without a
change the monitor ever raises an alarm with probability `bound` or less.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import CalibrationError, DataError, InputError, StoreError
from uatlite.trust.martingale import BETS, RankCells, Wealth, uniforms
from uatlite.trust.scope import Scope
from uatlite.trust.shift import ShiftReference
from uatlite.values import Floats, Integers, check_scores, check_share

BOUND = 0.01
SCOPE, SCORE = "scope", "score"
STREAMS = (SCOPE, SCORE)
ROUNDED = 1e-3
"""How far from a whole number of rows a p-value of scope may be, when it was written with few digits."""

MEANING: dict[tuple[str, str], str] = {
    (SCOPE, "a little low"): "some texts are strange",
    (SCOPE, "low"): "many texts are strange",
    (SCOPE, "very low"): "many texts are not of this task",
    (SCOPE, "a little high"): "texts are a little more alike than the calibration rows",
    (SCOPE, "high"): "texts are more alike than the calibration rows",
    (SCOPE, "very high"): "texts are much more alike than the calibration rows",
    (SCOPE, "at both ends"): "more texts are strange, and more are very usual",
    (SCOPE, "in the middle"): "fewer texts are strange, and fewer are very usual",
    (SCORE, "a little low"): "the classifier is a little less sure",
    (SCORE, "low"): "the classifier is less sure",
    (SCORE, "very low"): "the classifier is much less sure",
    (SCORE, "a little high"): "the classifier is a little surer",
    (SCORE, "high"): "the classifier is surer",
    (SCORE, "very high"): "the classifier is much surer",
    (SCORE, "at both ends"): "the classifier is more often very sure, and more often unsure",
    (SCORE, "in the middle"): "the classifier is less often very sure, and less often unsure",
}
"""What a bet that won says about the rows."""


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
        given = check_scores(scores)
        found = {SCORE: self.cells[SCORE].cell(np.searchsorted(self.scores, given, side="left"))}
        if SCOPE not in self.cells:
            return found
        if scope is None:
            raise InputError("the classifier knows its scope; give the p-values of scope of the new rows too.")
        p = check_scores(scope)
        if len(p) != len(given):
            raise InputError(f"{len(given)} scores came with {len(p)} p-values of scope; give both for all rows.")
        rows = self.cells[SCOPE].rows
        places = p * (rows + 1) - 1
        whole = np.round(places)
        wrong = (np.abs(places - whole) > ROUNDED) | (whole < 0) | (whole > rows)
        if wrong.any():
            raise DataError(
                f"the p-value of scope {p[wrong][0]:.6g} is no rank among {rows:,} calibration rows: these rows were "
                "scored with another calibration. Give the directory that scored them."
            )
        return {SCOPE: self.cells[SCOPE].cell(whole), **found}


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
        return MEANING[self.stream, self.bet]


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

    @property
    def latest(self) -> Alarm | None:
        """The change by all rows so far, after an alarm: it may be clearer now, and better dated."""
        return None if self.alarm is None else _alarm(self.evidence, self.rows, self.log_martingale)

    def after(self, reference: Reference, scores: ArrayLike, scope: ArrayLike | None) -> tuple["Monitor", Floats]:
        """The monitor after some more rows, and log M after each of them: (rows,) each → (rows,)."""
        found = reference.found(scores, scope)
        new = len(found[SCORE])
        if not new:
            return self, np.zeros(0)
        paths = {
            name: evidence.after(
                reference.cells[name],
                found[name],
                uniforms((self.seed, 2 * self.epoch + STREAMS.index(name)), evidence.rows, new),
            )
            for name, evidence in self.evidence.items()
        }
        logs = np.logaddexp.reduce([path.log_martingale for path in paths.values()], axis=0) - np.log(len(paths))
        alarm = self.alarm
        over = np.flatnonzero(logs >= -np.log(self.bound))
        if alarm is None and len(over):
            row = int(over[0])
            at = {name: path.at(row) for name, path in paths.items()}
            alarm = _alarm(at, self.rows + row + 1, float(logs[row]))
        return replace(self, evidence={name: path.end for name, path in paths.items()}, alarm=alarm), logs

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
