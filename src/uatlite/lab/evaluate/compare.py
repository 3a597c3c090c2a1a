"""Compare contenders on the same rows: means over seeds, intervals over rows, and which one is best beyond chance.

A score is the mean over seeds. All contenders and seeds share the resamples of the rows, so differences are paired. A
contender is best only if the interval of its difference from every other contender excludes 0. Because all of these
tests must succeed, the error rate of the claim is that of a single test, however many contenders there are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from uatlite.metrics.bootstrap import Estimate, Interval, difference, draw_counts, interval_of
from uatlite.metrics.metric import Better, Statistic, at_once
from uatlite.values import Floats

Estimates = Mapping[str, Sequence[Mapping[str, Estimate]]]
"""contender -> for each seed: metric -> estimate"""
Tick = Callable[[float], None]
"""Called during a comparison with the share of it that was done since the last call."""


@dataclass(frozen=True)
class Resampling:
    """How intervals are computed."""

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True, eq=False)
class SeedValues:
    """A number for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds (ddof 1); None for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Score(SeedValues):
    """One metric of one contender on one set."""

    low: float
    high: float
    """the interval of the mean over seeds, from resampled rows"""
    differences: Mapping[str, Interval] = field(default_factory=dict)
    """other contender -> the mean minus that contender's, paired"""
    best: bool = False


Scores = Mapping[str, Mapping[str, Score]]
"""contender -> metric -> score"""


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A contender's mean over seeds of one metric, and its value on each resample (resamples,)."""

    estimate: Estimate
    resampled: Floats


def compare(
    estimates: Estimates,
    better: Mapping[str, Better | None],
    strata: tuple[int, ...],
    how: Resampling,
    tick: Tick = lambda share: None,
) -> Scores:
    """Scores by contender and metric. `better` is the better direction of each metric, or None where it has none."""
    rows = sum(strata)
    means = {
        contender: {metric: _mean_over_seeds([seed[metric] for seed in seeds]) for metric in seeds[0]}
        for contender, seeds in estimates.items()
    }
    parts: dict[tuple[str, str], list[Floats]] = {(c, metric): [] for c in means for metric in means[c]}
    for counts in draw_counts(strata, how.resamples, how.seed):
        for contender, of in means.items():
            for metric, estimate in of.items():
                parts[contender, metric].append(estimate.statistic(counts))
            tick(len(counts) / how.resamples / len(means))
    drawn = {key: _Drawn(means[key[0]][key[1]], np.concatenate(values)) for key, values in parts.items()}
    scores: dict[str, dict[str, Score]] = {contender: {} for contender in estimates}
    for metric in next(iter(means.values())):
        of_metric = {contender: drawn[contender, metric] for contender in estimates}
        compared = _Comparison(of_metric, better[metric], rows, how.confidence)
        for contender, seeds in estimates.items():
            values = tuple(at_once(seed[metric].statistic, rows) for seed in seeds)
            scores[contender][metric] = compared.score(contender, values)
    return scores


def _mean_over_seeds(seeds: Sequence[Estimate]) -> Estimate:
    truths = [estimate.truth for estimate in seeds if estimate.truth is not None]
    truth = _mean(truths) if len(truths) == len(seeds) else None
    return Estimate(_mean([estimate.statistic for estimate in seeds]), truth, seeds[0].lowest)


def _mean(statistics: Sequence[Statistic]) -> Statistic:
    def mean(counts: Floats) -> Floats:
        return np.asarray(np.mean([statistic(counts) for statistic in statistics], axis=0))

    return mean


@dataclass(frozen=True, eq=False)
class _Comparison:
    """One metric of all contenders on the same resamples."""

    drawn: Mapping[str, _Drawn]
    better: Better | None
    rows: int
    confidence: float

    def score(self, contender: str, values: tuple[float, ...]) -> Score:
        own = self.drawn[contender]
        interval = interval_of(own.estimate, own.resampled, self.rows, self.confidence)
        differences = {other: self.pairs[contender, other] for other in self.drawn if other != contender}
        return Score(values, interval.low, interval.high, differences, contender in self.winners)

    @cached_property
    def pairs(self) -> Mapping[tuple[str, str], Interval]:
        """(one, other) -> the paired interval of one's mean over seeds minus the other's, for every two contenders."""
        found: dict[tuple[str, str], Interval] = {}
        for one, other in combinations(self.drawn, 2):
            found[other, one] = apart = self._difference(other, one)
            found[one, other] = Interval(-apart.point, -apart.high, -apart.low, apart.undefined)
        return found

    def _difference(self, one: str, other: str) -> Interval:
        a, b = self.drawn[one], self.drawn[other]
        truth = None
        if a.estimate.truth is not None and b.estimate.truth is not None:
            truth = difference(a.estimate.truth, b.estimate.truth)
        estimate = Estimate(difference(a.estimate.statistic, b.estimate.statistic), truth)
        return interval_of(estimate, a.resampled - b.resampled, self.rows, self.confidence)

    @cached_property
    def winners(self) -> frozenset[str]:
        """The best contender and those equal to it on every resample, if all others are worse beyond chance."""
        points = {name: at_once(own.estimate.statistic, self.rows) for name, own in self.drawn.items()}
        defined = [name for name in points if np.isfinite(points[name])]
        if self.better is None or not defined:
            return frozenset()
        best = (max if self.better == "higher" else min)(defined, key=points.__getitem__)
        resampled = self.drawn[best].resampled
        equal = frozenset(name for name in defined if np.array_equal(self.drawn[name].resampled, resampled))
        others = [name for name in self.drawn if name not in equal]
        beaten = all(self.pairs[best, other].excludes(0.0) for other in others)
        return equal if others and beaten else frozenset()
