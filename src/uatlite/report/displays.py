"""The numbers behind each figure. They are computed here, by the metrics; drawing only draws them.

Each display has `records`: its numbers as flat rows, which are written beside the figure as CSV.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from uatlite.decision import risk_upper_bound
from uatlite.experiments.evaluate import SetScores
from uatlite.experiments.probabilities import Outcome
from uatlite.metrics.bins import BINS, by_confidence
from uatlite.metrics.metric import Statistic, at_once
from uatlite.metrics.rows import Rows
from uatlite.metrics.selective import accuracy_at, coverage_at, risk_curve

Floats = NDArray[np.float64]
Record = dict[str, object]

CURVE_POINTS = 200
"""At most so many points of a curve are kept: more than a screen can show, and few enough for a small page."""
THRESHOLDS = 50


class Display(Protocol):
    """Numbers that a figure shows."""

    def records(self) -> Iterator[Record]:
        """One flat row for each thing that is drawn."""
        ...


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against accuracy in the fixed-width bins of the ECE; all (bins,). NaN where a bin is empty."""

    lower: Floats
    upper: Floats
    correct: NDArray[np.int64]
    wrong: NDArray[np.int64]
    confidence: Floats
    """the mean of the bin's rows"""
    accuracy: Floats
    low: Floats
    high: Floats
    """the exact binomial interval of the accuracy"""

    @classmethod
    def of(cls, outcome: Outcome, *, level: float = 0.95, bins: int = BINS) -> "Reliability":
        rows = Rows.of(outcome.probabilities, outcome.labels)
        member = by_confidence(rows, bins).member
        count, correct = member.sum(axis=0), rows.correct @ member
        empty = count == 0
        size = np.where(empty, 1, count)
        return cls(
            lower=np.arange(bins) / bins,
            upper=np.arange(1, bins + 1) / bins,
            correct=correct.astype(np.int64),
            wrong=(count - correct).astype(np.int64),
            confidence=np.where(empty, np.nan, rows.confidence @ member / size),
            accuracy=np.where(empty, np.nan, correct / size),
            low=1 - _upper(count - correct, count, level),
            high=_upper(correct, count, level),
        )

    def records(self) -> Iterator[Record]:
        names = tuple(self.__dataclass_fields__)
        for values in zip(*(getattr(self, name).tolist() for name in names), strict=True):
            yield dict(zip(names, values, strict=True))


def _upper(hits: Floats, counts: Floats, level: float) -> Floats:
    """The upper end of the two-sided Clopper–Pearson interval of hits / counts, (bins,); NaN where a count is 0."""
    side = (1 + level) / 2
    pairs = zip(hits.astype(int).tolist(), counts.astype(int).tolist(), strict=True)
    return np.array([risk_upper_bound(hit, count, side) if count else np.nan for hit, count in pairs])


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The error rate of the most confident share of rows, by contender: (coverage, risk), (points,) each."""

    curves: Mapping[str, tuple[Floats, Floats]]

    @classmethod
    def of(cls, outcomes: Mapping[str, Outcome]) -> "RiskCoverage":
        return cls({name: _risk_curve(outcome) for name, outcome in outcomes.items()})

    def records(self) -> Iterator[Record]:
        for name, (coverage, risk) in self.curves.items():
            for x, y in zip(coverage.tolist(), risk.tolist(), strict=True):
                yield {"method": name, "coverage": x, "risk": y}


def _risk_curve(outcome: Outcome) -> tuple[Floats, Floats]:
    rows = Rows.of(outcome.probabilities, outcome.labels)
    kept, errors = (values[0, 1:] for values in risk_curve(rows, np.ones((1, len(rows)))))
    chosen = np.unique(np.linspace(0, len(kept) - 1, CURVE_POINTS).round().astype(np.intp))
    return kept[chosen] / len(rows), errors[chosen] / kept[chosen]


@dataclass(frozen=True, eq=False)
class Thresholds:
    """What a threshold on the confidence admits, and how much of that is right, by contender; (thresholds,) each."""

    taus: Floats
    coverage: Mapping[str, Floats]
    accuracy: Mapping[str, Floats]
    """NaN where nothing is admitted"""

    @classmethod
    def of(cls, outcomes: Mapping[str, Outcome]) -> "Thresholds":
        classes = next(iter(outcomes.values())).probabilities.shape[1]
        taus = np.linspace(1 / classes, 0.99, THRESHOLDS)
        rows = {name: Rows.of(outcome.probabilities, outcome.labels) for name, outcome in outcomes.items()}
        return cls(
            taus=taus,
            coverage={name: _at(coverage_at.prepare, own, taus) for name, own in rows.items()},
            accuracy={name: _at(accuracy_at.prepare, own, taus) for name, own in rows.items()},
        )

    def records(self) -> Iterator[Record]:
        for name, coverage in self.coverage.items():
            for tau, share, right in zip(self.taus, coverage, self.accuracy[name], strict=True):
                yield {"method": name, "tau": float(tau), "coverage": float(share), "accuracy": float(right)}


def _at(prepare: Callable[[Rows, float], Statistic], rows: Rows, taus: Floats) -> Floats:
    return np.array([at_once(prepare(rows, float(tau)), len(rows)) for tau in taus])


@dataclass(frozen=True)
class Intervals:
    """One metric with its intervals, as the results have it: contender -> (mean, low, high)."""

    metric: str
    scores: Mapping[str, tuple[float, float, float]]

    @classmethod
    def of(cls, one: SetScores, metric: str) -> "Intervals":
        scores = {name: own[metric] for name, own in one.scores.items()}
        return cls(metric, {name: (score.mean, score.low, score.high) for name, score in scores.items()})

    def records(self) -> Iterator[Record]:
        for name, (mean, low, high) in self.scores.items():
            yield {"metric": self.metric, "method": name, "mean": mean, "low": low, "high": high}
