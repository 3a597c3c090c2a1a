"""A number of a table, for each seed and on resampled rows, and the contract of the measures that compute it.

Intervals are hierarchical: a resample draws rows, the same for every seed, and then seeds. Let x_s be the number of
seed s on the drawn rows, x̄ their mean over all S seeds and x* that over S seeds drawn with replacement. The resample's
value is x̄ + √(S/(S−1))·(x* − x̄). The factor gives the spread over seeds its unbiased variance, which S draws from S
seeds alone understate, by half where there are two. With one seed the interval covers the rows only.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from uatlite.lab.evaluate.compare import SeedValues
from uatlite.lab.paper.artifacts import Artifacts, PredictionJob
from uatlite.lab.paper.declaration import CellSpec
from uatlite.metrics.bootstrap import Estimate, Interval, draw_counts, interval_of
from uatlite.metrics.metric import Statistic, at_once, mean_of
from uatlite.values import Floats

CONFIDENCE = 0.95
POWER = 0.8
"""The chance with which the number of rows that `rows_to_tell` names would tell two numbers apart."""
SEED_DRAWS = 1000
"""Resamples of the seeds of a number without rows."""


@dataclass(frozen=True, eq=False)
class Measurement(SeedValues):
    """One number. Two that were measured on the same rows are paired: their draws are of the same resamples."""

    rows: int = 0
    """number of rows it was measured on"""
    drawn: Floats | None = None
    """(seeds, resamples): each seed's number on resampled rows; None where there are no rows to resample"""
    truth: float | None = None
    """of a statistic that noise biases upward: its value without that bias; see `metrics.Metric`"""
    lowest: float = -np.inf

    def resampled(self) -> Floats | None:
        """(resamples,): the number on resampled rows and seeds; None where there is one seed and nothing else."""
        if self.drawn is not None:
            return over_seeds(self.drawn)
        if len(self.values) < 2:
            return None
        return over_seeds(np.repeat(np.array(self.values)[:, None], SEED_DRAWS, axis=1))

    def interval(self) -> Interval | None:
        """The interval over rows and seeds; None where nothing was resampled."""
        resampled = self.resampled()
        if resampled is None:
            return None

        def constant(value: float) -> Statistic:
            return lambda counts: np.full(len(counts), value)

        truth = None if self.truth is None else constant(self.truth)
        found = interval_of(Estimate(constant(self.mean), truth, self.lowest), resampled, 1, CONFIDENCE)
        return replace(found, low=max(found.low, self.lowest))  # the factor for few seeds may overshoot

    def rows_to_tell(self, apart: float) -> float | None:
        """How many rows could tell this number from one that is `apart` away, with a chance of POWER.

        The variance over rows falls as 1/rows, that over seeds stays: infinite where the seeds alone are too few.
        None where no rows were resampled.
        """
        if self.drawn is None or not math.isfinite(apart) or apart == 0:
            return None
        over_rows = float(np.nanvar(self.drawn.mean(axis=0), ddof=1))
        over_fits = 0.0 if self.deviation is None else self.deviation**2 / len(self.values)
        allowed = (apart / (norm.ppf((1 + CONFIDENCE) / 2) + norm.ppf(POWER))) ** 2 - over_fits
        return math.inf if allowed <= 0 else self.rows * over_rows / allowed


def over_seeds(drawn: Floats) -> Floats:
    """Draw seeds for each resample of (seeds, resamples); (resamples,). The same draws for every number of seeds."""
    seeds, resamples = drawn.shape
    mean = np.asarray(drawn.mean(axis=0))
    if seeds == 1:
        return mean
    chosen = np.random.default_rng(seeds).integers(seeds, size=(resamples, seeds))
    of_chosen = np.take_along_axis(drawn.T, chosen, axis=1).mean(axis=1)
    return np.asarray(mean + math.sqrt(seeds / (seeds - 1)) * (of_chosen - mean))


def draws(strata: tuple[int, ...], over: str, resamples: int) -> Iterator[Floats]:
    """Counts (resamples, rows), in chunks, each stratum drawn by itself. `over` names the rows and seeds the draws."""
    return draw_counts(strata, resamples, zlib.crc32(over.encode()))


def resampled(
    statistics: Sequence[Statistic],
    strata: int | tuple[int, ...],
    *,
    over: str,
    resamples: int,
    truths: Sequence[Statistic] = (),
    lowest: float = -np.inf,
) -> Measurement:
    """A statistic for each seed on the same rows, which `over` names; all seeds have the same draws of the rows."""
    strata = (strata,) if isinstance(strata, int) else strata
    rows = sum(strata)
    drawn = [np.stack([one(counts) for one in statistics]) for counts in draws(strata, over, resamples)]
    return Measurement(
        values=tuple(at_once(statistic, rows) for statistic in statistics),
        rows=rows,
        drawn=np.concatenate(drawn, axis=1),
        truth=float(np.mean([at_once(truth, rows) for truth in truths])) if truths else None,
        lowest=lowest,
    )


def mean_over_rows(values: Sequence[Floats], spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """The mean over rows of values (rows,), one array for each seed."""
    statistics = [mean_of(one) for one in values]
    return resampled(statistics, len(values[0]), over=spec.rows_name, resamples=artifacts.settings.resamples)


def combine(parts: Sequence[Measurement], function: Callable[..., Floats], *, linear: bool) -> Measurement:
    """A function of several numbers, seed by seed and draw by draw.

    A linear function is also applied to the truths. Parts with different numbers of seeds are combined by their means,
    whose draws are over rows and seeds already.
    """
    alike = len({len(part.values) for part in parts}) == 1
    values = [part.values if alike else (part.mean,) for part in parts]
    drawn = [part.drawn if alike else over_seeds(part.drawn)[None] for part in parts if part.drawn is not None]
    truths = [part.truth for part in parts if part.truth is not None]
    return Measurement(
        values=tuple(float(function(*map(np.array, one))) for one in zip(*values, strict=True)),
        rows=max(part.rows for part in parts),
        drawn=np.asarray(function(*drawn)) if len(drawn) == len(parts) else None,
        truth=float(function(*truths)) if linear and len(truths) == len(parts) else None,
        lowest=min(part.lowest for part in parts) if function is mean else -np.inf,
    )


def mean(*parts: Floats) -> Floats:
    return np.asarray(np.mean(parts, axis=0))


def difference(first: Floats, second: Floats) -> Floats:
    return np.asarray(first - second)


def reduction(before: Floats, after: Floats) -> Floats:
    """The relative decrease from the first to the second."""
    return np.asarray(1 - after / before)


def ratio(first: Floats, second: Floats) -> Floats:
    return np.asarray(first / second)


def spread(*parts: Floats) -> Floats:
    """The largest minus the smallest."""
    return np.asarray(np.max(parts, axis=0) - np.min(parts, axis=0))


DERIVATIONS: dict[str, tuple[Callable[..., Floats], bool]] = {
    "mean": (mean, True),
    "difference": (difference, True),
    "reduction": (reduction, False),
    "ratio": (ratio, False),
    "spread": (spread, False),
}
"""name -> the function, and whether it is linear"""


def no_jobs(spec: CellSpec, artifacts: Artifacts) -> list[PredictionJob]:
    """For a measure that runs the model itself."""
    return []


def cell_jobs(spec: CellSpec, artifacts: Artifacts) -> list[PredictionJob]:
    """The contender on the cell's rows, and on the calibration rows where it is calibrated."""
    return [*artifacts.calibrator_jobs(spec), *artifacts.jobs(spec)]


@dataclass(frozen=True)
class Measure:
    """How a cell is computed, and from which predictions."""

    compute: Callable[[CellSpec, Artifacts], Measurement]
    jobs: Callable[[CellSpec, Artifacts], list[PredictionJob]] = cell_jobs
    decimals: int = 3
    of_learning: bool = True
    """whether it says nothing of a model that has not learned its task; time and size say something of any model"""
