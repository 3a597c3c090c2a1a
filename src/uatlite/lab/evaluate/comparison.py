"""Numbers with a value for each seed and on resampled rows, and what can be said of two of them.

All numbers over the same rows share the resamples of these rows, so differences are paired. Two kinds of intervals:

- Over rows, as `uatlite evaluate` has them: the interval of the mean over seeds on resampled rows.
- Over rows and seeds, as the paper's tables have them, where a seed is a fine-tuning: a resample draws rows, the same
  for every seed, and then seeds. Let x_s be the number of seed s on the drawn rows, x̄ their mean over all S seeds and
  x* that over S seeds drawn with replacement. The resample's value is x̄ + √(S/(S-1))·(x* - x̄). The factor gives the
  spread over seeds its unbiased variance, which S draws from S seeds alone understate, by half where there are two.

A contender is best only if the interval of its difference from every other contender excludes 0. Because all of these
tests must succeed, the error rate of the claim is that of a single test, however many contenders there are.
"""

import math
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, TypeVar

import numpy as np

from uatlite.metrics.intervals import Better, Estimate, Interval, Resampling, draw_counts, interval_of
from uatlite.metrics.rows import at_once
from uatlite.values import Floats

_Key = TypeVar("_Key", bound=Hashable)
Tick = Callable[[float], None]
"""Called during a computation with the share of it that was done since the last call."""

SEED_DRAWS = 1000
"""Resamples of the seeds of a number without rows."""


@dataclass(frozen=True)
class ResampledRows:
    """Rows that are drawn together, each stratum by itself."""

    strata: tuple[int, ...]
    """rows of each stratum"""
    name: str = ""
    """rows of one name have the same draws"""


def counts_of(rows: Sequence[ResampledRows], how: Resampling) -> Iterator[Floats]:
    """How often each row is drawn, (resamples, rows) in chunks; each group of rows is drawn by itself.

    Where seeds are drawn too, the name of the rows and not `how.seed` decides their draws.
    """
    if not how.over_seeds:
        return draw_counts(tuple(size for group in rows for size in group.strata), how.resamples, how.seed)
    every = [draw_counts(group.strata, how.resamples, zlib.crc32(group.name.encode())) for group in rows]
    return every[0] if len(rows) == 1 else iter([np.hstack([np.concatenate(list(chunks)) for chunks in every])])


@dataclass(frozen=True, eq=False)
class Sampled:
    """A number that is ready to be resampled: the same statistic of every seed, over the same rows."""

    estimates: Sequence[Estimate]
    """one for each seed"""
    rows: tuple[ResampledRows, ...]

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(sum(group.strata) for group in self.rows)


@dataclass(frozen=True, eq=False)
class Measurement:
    """One number. Two that were measured on the same rows are paired: their draws are of the same resamples."""

    values: tuple[float, ...]
    """one for each seed"""
    rows: int = 0
    """number of rows it was measured on"""
    drawn: Floats | None = None
    """(seeds, resamples): each seed's number on resampled rows; None where there are no rows to resample"""
    truth: float | None = None
    """of a statistic that noise biases upward: its value without that bias; see `metrics.Metric`"""
    lowest: float = -np.inf
    how: Resampling = field(default_factory=lambda: Resampling(over_seeds=True))

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds (ddof 1); None for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def resampled(self) -> Floats | None:
        """(resamples,): the number on resampled rows, and seeds; None where there is one seed and nothing else."""
        if self.drawn is not None:
            return over_seeds(self.drawn) if self.how.over_seeds else np.asarray(self.drawn.mean(axis=0))
        if len(self.values) < 2:
            return None
        return over_seeds(np.repeat(np.array(self.values)[:, None], SEED_DRAWS, axis=1))

    def interval(self) -> Interval | None:
        """The interval of the mean over seeds; None where nothing was resampled."""
        resampled = self.resampled()
        if resampled is None:
            return None
        interval = interval_of(self.mean, resampled, self.how.confidence, truth=self.truth, lowest=self.lowest)
        return replace(interval, low=max(interval.low, self.lowest))  # the factor for few seeds may overshoot

    def interval_or_point(self) -> Interval:
        """The interval; where nothing was resampled its ends are NaN."""
        return self.interval() or Interval(self.mean, math.nan, math.nan)

    def minus(self, other: "Measurement | float") -> "Measurement":
        """This number less another one on the same rows, on the same resamples; a plain number shifts it."""
        if isinstance(other, float | int):
            moved = None if self.drawn is None else np.full_like(self.drawn, other)
            truth = None if self.truth is None else float(other)
            other = replace(self, values=(float(other),) * len(self.values), drawn=moved, truth=truth)
        return combine([self, other], np.subtract, linear=True)


def over_seeds(drawn: Floats) -> Floats:
    """Draw seeds for each resample of (seeds, resamples); (resamples,). The same draws for every number of seeds."""
    seeds, resamples = drawn.shape
    mean = np.asarray(drawn.mean(axis=0))
    if seeds == 1:
        return mean
    chosen = np.random.default_rng(seeds).integers(seeds, size=(resamples, seeds))
    of_chosen = np.take_along_axis(drawn.T, chosen, axis=1).mean(axis=1)
    return np.asarray(mean + math.sqrt(seeds / (seeds - 1)) * (of_chosen - mean))


def measured(
    sampled: Mapping[_Key, Sampled], how: Resampling, tick: Tick = lambda share: None
) -> dict[_Key, Measurement]:
    """Numbers with their resamples, which are drawn once for all that are over the same rows."""
    groups: dict[tuple[ResampledRows, ...], list[_Key]] = {}
    for key, number in sampled.items():
        groups.setdefault(number.rows, []).append(key)
    drawn: dict[_Key, list[Floats]] = {key: [] for key in sampled}
    for rows, keys in groups.items():
        for counts in counts_of(rows, how):
            for key in keys:
                drawn[key].append(np.stack([estimate.statistic(counts) for estimate in sampled[key].estimates]))
                tick(len(counts) / how.resamples / len(sampled))
    numbers = {}
    for key, number in sampled.items():
        truths = [at_once(each.truth, number.size) for each in number.estimates if each.truth is not None]
        numbers[key] = Measurement(
            values=tuple(at_once(each.statistic, number.size) for each in number.estimates),
            rows=sum(number.rows[-1].strata),
            drawn=np.concatenate(drawn[key], axis=1),
            truth=float(np.mean(truths)) if len(truths) == len(number.estimates) else None,
            lowest=number.estimates[0].lowest,
            how=how,
        )
    return numbers


# ── numbers made of numbers ────────────────────────────────────────────────────────────────────────────────────────


def combine(parts: Sequence[Measurement], function: Callable[..., Floats], *, linear: bool) -> Measurement:
    """A function of several numbers, seed by seed and draw by draw.

    A linear function is also applied to the truths. Parts with different numbers of seeds are combined by their means,
    whose draws are over rows and seeds already; so are parts whose intervals cover rows alone.
    """
    how = parts[0].how
    alike = how.over_seeds and len({len(number.values) for number in parts}) == 1
    values = [number.values if alike else (number.mean,) for number in parts]
    drawn = [number.drawn if alike else number.resampled() for number in parts if number.drawn is not None]
    truths = [number.truth for number in parts if number.truth is not None]
    return Measurement(
        values=tuple(float(function(*map(np.array, of_seed))) for of_seed in zip(*values, strict=True)),
        rows=max(number.rows for number in parts),
        drawn=np.atleast_2d(function(*drawn)) if len(drawn) == len(parts) else None,
        truth=float(function(*truths)) if linear and len(truths) == len(parts) else None,
        lowest=min(number.lowest for number in parts) if function is mean else -np.inf,
        how=how,
    )


def mean(*parts: Floats) -> Floats:
    return np.asarray(np.mean(parts, axis=0))


DERIVATIONS: dict[str, tuple[Callable[..., Floats], bool]] = {
    "mean": (mean, True),
    "difference": (np.subtract, True),
    "reduction": (lambda before, after: 1 - after / before, False),
    "deviation": (lambda *parts: np.asarray(np.std(parts, axis=0, ddof=1)), False),
    "spread": (lambda *parts: np.max(parts, axis=0) - np.min(parts, axis=0), False),
}
"""name -> the function, and whether it is linear"""


# ── contenders against each other ──────────────────────────────────────────────────────────────────────────────────

Relation = Literal["better", "level", "worse"]


def relation(apart: Interval, better: Better) -> Relation:
    """How one contender stands to another, by the interval of the one's number minus the other's."""
    if not apart.excludes(0.0):
        return "level"
    return "better" if (apart.low > 0) == (better == "higher") else "worse"


@dataclass(frozen=True)
class Score:
    """One metric of one contender on one set, beside the other contenders."""

    mean: float
    deviation: float | None
    low: float
    high: float
    """the interval of the mean over seeds"""
    best: bool
    values: tuple[float, ...]
    """one for each seed"""
    differences: Mapping[str, Interval]
    """other contender -> the mean minus that contender's, paired"""


Scores = Mapping[str, Mapping[str, Score]]
"""contender -> metric -> score"""


def scores_of(measurements: Mapping[str, Measurement], better: Better | None) -> dict[str, Score]:
    """Contender -> its score, from one metric of all contenders on the same rows.

    Each is compared with every other, in pairs; `better` is the better direction, or None where there is none.
    """
    pairs: dict[tuple[str, str], Interval] = {}
    for first, second in combinations(measurements, 2):
        pairs[second, first] = apart = measurements[second].minus(measurements[first]).interval_or_point()
        pairs[first, second] = Interval(-apart.point, -apart.high, -apart.low, apart.undefined)
    winners = _winners(measurements, pairs, better)
    scores = {}
    for name, number in measurements.items():
        interval = number.interval_or_point()
        differences = {other: pairs[name, other] for other in measurements if other != name}
        ends, best = (interval.low, interval.high), name in winners
        scores[name] = Score(number.mean, number.deviation, *ends, best, number.values, differences)
    return scores


def _winners(
    measurements: Mapping[str, Measurement], pairs: Mapping[tuple[str, str], Interval], better: Better | None
) -> frozenset[str]:
    """The best contender and those equal to it on every resample, if all others are worse beyond chance."""
    defined = [name for name, measurement in measurements.items() if np.isfinite(measurement.mean)]
    if better is None or not defined:
        return frozenset()
    best = (max if better == "higher" else min)(defined, key=lambda name: measurements[name].mean)
    resampled = {name: measurements[name].resampled() for name in defined}
    equal = frozenset(name for name in defined if np.array_equal(resampled[name], resampled[best]))  # type: ignore[arg-type]
    others = [name for name in measurements if name not in equal]
    beaten = all(pairs[best, other].excludes(0.0) for other in others)
    return equal if others and beaten else frozenset()
