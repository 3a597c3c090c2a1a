"""Confidence intervals by the bootstrap: how often each row is drawn, never the drawn rows themselves.

A resample is a vector of counts, so many of them are one matrix (resamples, rows), and a metric over all of
them is a matrix product or a running sum. Statistics without a `truth` get the interval of percentiles. The
others are biased upward by noise, and again in every resample; they get the pivotal interval: the error of a
resample's estimate about the sample's own truth stands for the error of the sample's estimate about the
population's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from uatlite.errors import ConfigurationError
from uatlite.metrics.metric import Statistic, at_once
from uatlite.metrics.ranking import Floats

CHUNK = 2_000_000  # counts held at once, 16 MB; a few arrays of that size are alive at a time


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; `undefined` is the share of resamples without a value."""

    point: float
    low: float
    high: float
    undefined: float = 0.0

    def excludes(self, value: float) -> bool:
        """Whether the value lies outside; never where the interval is NaN."""
        return value < self.low or value > self.high


@dataclass(frozen=True)
class Estimate:
    """A statistic to resample, the truth that it estimates (see Metric), and its lowest possible value."""

    statistic: Statistic
    truth: Statistic | None = None
    lowest: float = -np.inf


def intervals(
    estimates: Mapping[str, Estimate],
    strata: tuple[int, ...],
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Interval]:
    """Resample every estimate over rows that lie in strata of the given sizes, each drawn by itself."""
    if resamples < 1:
        raise ConfigurationError(f"resamples={resamples} is not allowed: at least 1; 1000 is usual.")
    if not 0 < confidence < 1:
        raise ConfigurationError(f"confidence={confidence} is not allowed: between 0 and 1, as in 0.95.")
    drawn: dict[str, list[Floats]] = {name: [] for name in estimates}
    for counts in draw_counts(strata, resamples, seed):
        for name, estimate in estimates.items():
            drawn[name].append(estimate.statistic(counts))
    return {
        name: interval_of(estimate, np.concatenate(drawn[name]), sum(strata), confidence)
        for name, estimate in estimates.items()
    }


def draw_counts(strata: tuple[int, ...], resamples: int, seed: int) -> Iterator[Floats]:
    """How often each row is drawn, in chunks (resamples, rows): n draws from the n rows of each stratum."""
    generator = np.random.default_rng(seed)
    # One at a time from the generator: the draws are then the same whatever the size of a chunk.
    chunk = max(1, CHUNK // sum(strata))
    for start in range(0, resamples, chunk):
        counts = [
            np.concatenate([np.bincount(generator.integers(size, size=size), minlength=size) for size in strata])
            for _ in range(min(chunk, resamples - start))
        ]
        yield np.asarray(counts, dtype=np.float64)


def interval_of(estimate: Estimate, values: Floats, rows: int, confidence: float) -> Interval:
    """The interval from the estimate's values over the resamples (resamples,)."""
    point = at_once(estimate.statistic, rows)
    defined = values[np.isfinite(values)]
    undefined = 1 - len(defined) / len(values)
    if not np.isfinite(point) or len(defined) == 0:
        return Interval(point, np.nan, np.nan, undefined)
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    if estimate.truth is not None:
        centre = point + at_once(estimate.truth, rows)
        low, high = max(centre - high, estimate.lowest), max(centre - low, estimate.lowest)
    return Interval(point, float(low), float(high), undefined)
