"""Are the new rows like the calibration rows? If not, the promises need not hold, and the answers say how bad it is.

Calibration keeps the sorted scores of its rows. New rows are compared by two tests: one of their scores, and one of
their p-values of being in scope, which without a shift are uniform. What a change means is told by the share of answers
that their calibrated probabilities expect to be wrong, beside the share that was promised.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, InputError
from uatlite.trust.binomial import clopper_pearson
from uatlite.values import Floats, Integers, check_scores, check_share

REFERENCE_ROWS = 50
"""The fewest calibration rows for a reference."""

CHECKED_ROWS = 20
"""The fewest new rows for a verdict."""


TOO_STRANGE = 0.2
"""With a larger share of changed rows out of scope, the probabilities of the others say little."""

Level = Literal["green", "amber", "red"]
"""No change; a change, and the answers look as right as promised; they do not, or it cannot be told."""

_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Share:
    """A share, or a mean, of so many rows or answers, with its interval of 95 %."""

    value: float
    low: float
    high: float
    rows: int

    @classmethod
    def of(cls, count: int, rows: int) -> Self:
        """A share that was counted, with its exact interval (Clopper and Pearson)."""
        if not rows:
            return cls(0.0, 0.0, 1.0, 0)
        low, high = clopper_pearson(count, rows, _CONFIDENCE)
        return cls(count / rows, float(low), float(high), rows)

    @classmethod
    def expected(cls, wrong: float, answers: int) -> Self:
        """The share of wrong answers by their probabilities of being wrong, which add up to `wrong`.

        The interval is Wilson's, as if so many had been seen: it holds the risk of such answers with 95 % or more, if
        the probabilities are right.
        """
        if not answers:
            return cls(0.0, 0.0, 1.0, 0)
        z, share = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2), wrong / answers
        middle, reach = wrong + z**2 / 2, z * math.sqrt(max(wrong * (1.0 - share), 0.0) + z**2 / 4)
        low, high = ((middle + side * reach) / (answers + z**2) for side in (-1, 1))
        return cls(share, min(max(low, 0.0), share), min(high, 1.0), answers)

    def __str__(self) -> str:
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class ShiftReport:
    """Whether new rows are like the calibration rows, by which evidence, and what that means for their answers.

    `shifted` is None where the rows are too few for a verdict. `p_value` is the smaller p-value of the tests times
    their number (Bonferroni): without a shift it is below `false_alarm` at that rate or less. `median_scope` is the
    median p-value of being in scope, 0.5 without a shift; `out_of_scope` is the share of rows with one of at most
    `false_alarm`. Evidence over time, which is valid at every moment, has no p-values.
    """

    rows: int
    shifted: bool | None
    p_value: float | None
    false_alarm: float
    score_p_value: float | None
    scope_p_value: float | None = None
    median_scope: float | None = None
    out_of_scope: float | None = None
    found: str = "The data have shifted"
    """what was found, in words"""
    evidence: str = ""
    """by what, in words"""
    over: str = "these rows"
    """what was looked at, in words"""
    expected: Share | None = None
    """of the reported answers those expected to be wrong, by their calibrated probabilities; None where not known"""
    promised: float | None = None
    """the share of wrong answers that the rule promises at most; None where it promises none"""
    referenced: bool = True
    """whether reference texts were given at calibration"""

    @property
    def level(self) -> Level | None:
        """How bad it is; None where the rows are too few for a verdict."""
        if not self.shifted:
            return None if self.shifted is None else "green"
        return "red" if self.doubt else "amber"

    @property
    def doubt(self) -> str:
        """Why the answers of changed rows are not known to be as right as promised; empty where they look so."""
        if (self.out_of_scope or 0.0) > TOO_STRANGE:
            return f"with {self.out_of_scope:.0%} of the rows out of scope nobody can tell how right the answers are"
        if self.expected is None or not self.expected.rows:
            return "nothing tells how right the answers are"
        if self.promised is None or self.expected.high <= self.promised:
            return ""
        if self.expected.value > self.promised:
            return "more answers are expected to be wrong than promised"
        return "the answers may be wrong more often than promised"

    def describe(self) -> str:
        """The verdict, what it means, and what it rests on: the one sentence of files, service, page and Python."""
        said = self.found
        if self.shifted:
            fine = "the answers look as right as promised" if self.promised else "nothing is promised about the answers"
            said += f", and {self.doubt or fine}"
        if self.expected is not None:
            answers = "1 answer is" if self.expected.rows == 1 else f"{self.expected.rows:,} answers are"
            told = f"{self.expected} of {answers} expected to be wrong"
            said += f": {told if self.expected.rows else 'none is answered'}"
            said += "" if self.promised is None else f", promised at most {100 * self.promised:.3g}%"
        said += f". Over {self.over}: {self.evidence}."
        if self.shifted and not self.referenced:
            said += " The classifier was calibrated without reference texts, so small differences of style count."
        return said

    def as_row(self) -> dict[str, Any]:
        """Plain JSON values, with the verdict in words and its level."""
        return {"verdict": self.describe(), "level": self.level, **asdict(self)}


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
            verdict, evidence = "Too few rows to tell a shift", f"it takes {CHECKED_ROWS} rows to tell"
            return ShiftReport(len(new), None, None, self.false_alarm, None, found=verdict, evidence=evidence)
        p_value = score_p = score_test(new, self.scores)
        scope_p = median = outside = None
        if inside is not None:
            # Where j of n calibration rows are as strange as a new row, it has p = (j + 1)/(n + 1). With the j-th
            # strangest of them just before it, at (j + 1/2)/(n + 1), the ranks are those of the nonconformities.
            n = len(self.scores)
            scope_p = mann_whitney(inside, (np.arange(1, n + 1) + 0.5) / (n + 1))
            median, outside = float(np.median(inside)), float((inside <= self.false_alarm).mean())
            p_value = min(1.0, 2.0 * min(score_p, scope_p))
        shifted, verdict = p_value < self.false_alarm, "No shift was found"
        if shifted:
            # Scope alone tells the rows apart, and by less strangeness than that of the calibration rows.
            usual = median is not None and median > 0.5 and 2.0 * score_p >= self.false_alarm
            source = "rows that calibrated the classifier or trained its model"
            verdict = f"The rows are too usual, as {source} are" if usual else ShiftReport.found
        evidence = f"p = {p_value:.2g}, false alarms {self.false_alarm:g}"
        if outside is not None:
            evidence += (
                f"; {outside:.1%} of rows are out of scope, where {self.false_alarm:.1%} are expected; "
                f"the median p-value of scope is {median:.2f}, expected 0.50"
            )
        tests = score_p, scope_p, median, outside
        return ShiftReport(len(new), shifted, p_value, self.false_alarm, *tests, found=verdict, evidence=evidence)


def these(number: int, things: str = "rows") -> str:
    """What was looked at: 'these 1,000 rows'."""
    return f"these {number:,} {things}" if number != 1 else f"this {things.removesuffix('s')}"


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
