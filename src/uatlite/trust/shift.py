"""Are the new rows like the calibration rows? If not, the promises do not hold.

Calibration keeps the sorted scores of its rows. New rows are compared by two tests: one of their scores, and one of
their p-values of being in scope, which without a shift are uniform.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, InputError
from uatlite.values import Floats, Integers, check_scores, check_share

REFERENCE_ROWS = 50
"""The fewest calibration rows for a reference."""

CHECKED_ROWS = 20
"""The fewest new rows for a verdict."""


@dataclass(frozen=True)
class ShiftReport:
    """The result of comparing new rows with the calibration rows.

    `shifted` is None where the rows are too few for a verdict. `p_value` is the smaller p-value of the tests times
    their number (Bonferroni): without a shift it is below `false_alarm` at that rate or less. `median_scope` is the
    median p-value of being in scope, 0.5 without a shift; `out_of_scope` is the share of rows with one of at most
    `false_alarm`.
    """

    rows: int
    shifted: bool | None
    p_value: float | None
    false_alarm: float
    score_p_value: float | None
    scope_p_value: float | None = None
    median_scope: float | None = None
    out_of_scope: float | None = None

    def describe(self) -> str:
        """The verdict in one sentence."""
        if self.shifted is None:
            return f"Rows: {self.rows}. A shift can be told from {CHECKED_ROWS} on: the promises are unchecked."
        verdict = "The data have shifted: the promises are off" if self.shifted else "No shift was found"
        if self.shifted and self.too_usual:
            source = "rows that calibrated the classifier or trained its model"
            verdict = f"The rows are too usual, as {source} are: the promises are off"
        evidence = f"p = {self.p_value:.2g}, false alarms {self.false_alarm:g}"
        if self.median_scope is not None:
            evidence += (
                f"; {self.out_of_scope:.1%} of rows are out of scope, where {self.false_alarm:.1%} are expected; "
                f"the median p-value of scope is {self.median_scope:.2f}, expected 0.50"
            )
        return f"{verdict} ({evidence})."

    @property
    def too_usual(self) -> bool:
        """Whether scope alone tells the rows apart, and by being less strange than the calibration rows."""
        return (self.median_scope or 0.0) > 0.5 and 2.0 * (self.score_p_value or 0.0) >= self.false_alarm


@dataclass(frozen=True)
class Usual:
    """What is usual among calibration rows: the shares that new rows are shown beside."""

    confidence: float
    """the mean"""
    labels: dict[str, float]
    """the share of each predicted class"""
    answered: float | None = None
    """the share that the rule answers; None without a rule"""

    @classmethod
    def of(
        cls, confidence: Floats, predicted: Integers, answers: NDArray[np.bool_] | None, classes: Sequence[str]
    ) -> Self:
        """The shares among calibration rows, (rows,) each; `predicted` are columns of `classes`."""
        shares = np.bincount(predicted, minlength=len(classes)) / len(predicted)
        labels = dict(zip(classes, shares.tolist(), strict=True))
        return cls(float(confidence.mean()), labels, None if answers is None else float(answers.mean()))


@dataclass(frozen=True, eq=False)
class ShiftReference:
    """What calibration keeps of its rows: their sorted scores (rows,), what these are called, and what is usual."""

    score: str
    false_alarm: float
    scores: Floats
    usual: Usual | None = None

    def check(self, scores: ArrayLike, scope: ArrayLike | None = None) -> ShiftReport:
        """Compare new rows: their scores (rows,), and their p-values of being in scope (rows,), where they have some.

        Two tests: Kolmogorov–Smirnov on the scores; Mann–Whitney, two-sided, on the p-values against those of the
        calibration rows, which are evenly spaced: rows too strange count, and so do rows too usual (one text, say).
        """
        new, inside = check_pair(scores, scope)
        if len(new) < CHECKED_ROWS:
            return self.unchecked(len(new))
        p_value = score_p = score_test(new, self.scores)
        scope_p = median = outside = None
        if inside is not None:
            # Where j of n calibration rows are as strange as a new row, it has p = (j + 1)/(n + 1). With the j-th
            # strangest of them just before it, at (j + 1/2)/(n + 1), the ranks are those of the nonconformities.
            n = len(self.scores)
            scope_p = mann_whitney(inside, (np.arange(1, n + 1) + 0.5) / (n + 1))
            median, outside = float(np.median(inside)), float((inside <= self.false_alarm).mean())
            p_value = min(1.0, 2.0 * min(score_p, scope_p))
        shifted = p_value < self.false_alarm
        return ShiftReport(len(new), shifted, p_value, self.false_alarm, score_p, scope_p, median, outside)

    def unchecked(self, rows: int) -> ShiftReport:
        """The report on rows that are too few to tell."""
        return ShiftReport(rows, None, None, self.false_alarm, None)


def check_pair(scores: ArrayLike, scope: ArrayLike | None) -> tuple[Floats, Floats | None]:
    """The scores and the p-values of scope of the same rows, (rows,) each."""
    s, p = check_scores(scores), None if scope is None else check_scores(scope)
    if p is not None and len(p) != len(s):
        raise InputError(f"{len(s)} scores came with {len(p)} p-values of scope; give both for all rows.")
    return s, p


def summarise(
    scores: ArrayLike, *, score: str = "confidence", false_alarm: float = 0.01, usual: Usual | None = None
) -> ShiftReference:
    """The reference from the scores of calibration rows, (rows,)."""
    check_share("false_alarm", false_alarm)
    s = check_scores(scores)
    if len(s) < REFERENCE_ROWS:
        raise CalibrationError(
            f"{len(s)} rows are too few to know a shift from chance; calibrate on {REFERENCE_ROWS} rows or more."
        )
    return ShiftReference(score, false_alarm, np.sort(s), usual)


def score_test(new: Floats, reference: Floats) -> float:
    """The p-value of Kolmogorov–Smirnov, two-sided and exact: any change of the scores' distribution counts.

    Without a shift the two samples are mixed at random. Their merged order is a path of steps (1, 0) and (0, 1) from
    (0, 0) to (n, m); the p-value is the chance that |i/n - j/m| reaches the statistic somewhere on it. Chances move
    from one diagonal i + j to the next, and what reaches the statistic is taken out and added up.
    """
    new, reference = sorted((new, reference), key=len)
    n, m = len(new), len(reference)
    grid = np.sort(np.concatenate([new, reference]))
    gaps = np.searchsorted(np.sort(new), grid, "right") * m - np.searchsorted(np.sort(reference), grid, "right") * n
    statistic = int(np.abs(gaps).max())  # times n·m, a whole number
    if statistic == 0:
        return 1.0
    i = np.arange(n + 1)
    chances, outside = np.zeros(n + 1), 0.0
    chances[0] = 1.0
    for step in range(1, n + m + 1):
        right = chances * np.minimum((n - i) / (n + m - step + 1), 1.0)
        chances -= right
        chances[1:] += right[:-1]
        out = np.abs(i * m - (step - i) * n) >= statistic
        outside += float(chances[out].sum())
        chances[out] = 0.0
    return min(outside, 1.0)


def mann_whitney(new: Floats, reference: Floats) -> float:
    """The two-sided p-value by the normal law, with the corrections for ties and continuity."""
    n, m = len(new), len(reference)
    _, places, counts = np.unique(np.concatenate([new, reference]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum()) / ((n + m) * (n + m - 1))
    spread = math.sqrt(n * m / 12 * (n + m + 1 - ties))
    if spread == 0:
        return 1.0
    return min(1.0, math.erfc(max(0.0, abs(u - n * m / 2) - 0.5) / spread / math.sqrt(2)))
