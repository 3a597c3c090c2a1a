"""Whether a promise about several answers a text is kept on labelled texts, and how much it reports."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.metrics.intervals import Estimate, Estimates, Interval, Resampling, intervals
from uatlite.metrics.rows import Statistic, ratio
from uatlite.trust.rule import Rule
from uatlite.values import Floats, Integers


@dataclass(frozen=True)
class PromiseCheck:
    """A rule that calibration rows made, on one set. Shares are None where nothing is reported."""

    contender: str
    set: str
    rule: str
    """what is promised, in a sentence"""
    promised: bool
    target: float
    covered: str
    """what the coverage is a share of"""
    reported: int
    wrong: int
    risk: float | None
    """wrong / reported"""
    risk_interval: tuple[float, float] | None
    coverage: float
    coverage_interval: tuple[float, float]
    best: float
    """the coverage at the target of the best threshold on the same score, chosen with these very labels"""

    @property
    def kept(self) -> bool:
        """Whether at most the promised share is wrong here; a sample may miss it by chance."""
        return self.risk is None or self.risk <= self.target


@dataclass(frozen=True, eq=False)
class ReportedAnswers:
    """The answers of a set under a rule, (answers,) each; `gold` says that coverage is of the right answers."""

    reported: NDArray[np.bool_]
    right: NDArray[np.bool_]
    scores: Floats
    """what the rule ranks by"""
    text: Integers
    texts: int
    gold: bool

    @property
    def counted(self) -> NDArray[np.bool_]:
        """(answers,): which answers the coverage is a share of"""
        return self.right if self.gold else np.ones(len(self.right), dtype=np.bool_)

    def sums(self, chosen: NDArray[np.bool_]) -> Floats:
        """(texts,): how many of the chosen answers each text has"""
        return np.bincount(self.text[chosen], minlength=self.texts).astype(np.float64)

    def best_coverage(self, target: float) -> float:
        """The largest coverage of a threshold on the scores at which at most `target` of what is above is wrong."""
        order = np.argsort(-self.scores, kind="stable")
        wrong = np.cumsum(~self.right[order]) / np.arange(1, len(order) + 1)
        # A threshold cannot part equal scores.
        last = np.append(np.diff(self.scores[order]) != 0, True) if len(order) else np.zeros(0, dtype=np.bool_)
        fitting = np.flatnonzero((wrong <= target) & last)
        if not len(fitting) or not self.counted.any():
            return 0.0
        return float(self.counted[order][: fitting[-1] + 1].sum() / self.counted.sum())


def check_promise(contender: str, name: str, rule: Rule, answers: ReportedAnswers, how: Resampling) -> PromiseCheck:
    """The rule on the answers of the set `name`; intervals resample texts."""
    reported, counted = answers.reported, answers.counted
    shares = {
        "risk": Estimate(_share(answers.sums(reported & ~answers.right), answers.sums(reported))),
        "coverage": Estimate(_share(answers.sums(reported & counted), answers.sums(counted))),
    }
    risk, coverage = intervals(Estimates(shares, (answers.texts,)), how).values()
    none = not reported.any()
    return PromiseCheck(
        contender=contender,
        set=name,
        rule=rule.describe(),
        promised=rule.promised,
        target=float(rule.target or 0.0),
        covered="gold labels" if answers.gold else "entities found",
        reported=int(reported.sum()),
        wrong=int((reported & ~answers.right).sum()),
        risk=None if none else risk.point,
        risk_interval=None if none else _ends(risk),
        coverage=float(np.nan_to_num(coverage.point)),
        coverage_interval=_ends(coverage),
        best=answers.best_coverage(float(rule.target or 0.0)),
    )


def _ends(interval: Interval) -> tuple[float, float]:
    return float(np.nan_to_num(interval.low)), float(np.nan_to_num(interval.high))


def _share(part: Floats, whole: Floats) -> Statistic:
    """A ratio of sums over texts, (texts,) each."""

    def statistic(counts: Floats) -> Floats:
        return ratio(counts @ part, counts @ whole)

    return statistic
