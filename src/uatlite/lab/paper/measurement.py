"""A number of a table, for each seed and on resampled rows, and the contract of the measures that compute it."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from uatlite.lab.evaluate.compare import SeedValues
from uatlite.lab.paper.artifacts import Artifacts, PredictionJob
from uatlite.lab.paper.declaration import CellSpec
from uatlite.metrics.bootstrap import Estimate, Interval, draw_counts, interval_of
from uatlite.metrics.metric import Statistic, at_once, mean_of
from uatlite.values import Floats

CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Measurement(SeedValues):
    """One number. Two that were measured on the same rows are paired: their draws are of the same resamples."""

    rows: int = 0
    """number of rows it was measured on"""
    drawn: Floats | None = None
    """(resamples,): the mean over seeds on resampled rows; None where there are no rows to resample"""
    truth: float | None = None
    """of a statistic that noise biases upward: its value without that bias; see `metrics.Metric`"""
    lowest: float = -np.inf

    def interval(self) -> Interval | None:
        """The interval over rows; None where nothing was resampled."""
        if self.drawn is None:
            return None

        def constant(value: float) -> Statistic:
            return lambda counts: np.full(len(counts), value)

        truth = None if self.truth is None else constant(self.truth)
        return interval_of(Estimate(constant(self.mean), truth, self.lowest), self.drawn, 1, CONFIDENCE)


def draws(rows: int, over: str, resamples: int) -> Iterator[Floats]:
    """Counts (resamples, rows), in chunks. `over` names the rows and seeds the draws."""
    return draw_counts((rows,), resamples, zlib.crc32(over.encode()))


def resampled(
    statistics: Sequence[Statistic],
    rows: int,
    *,
    over: str,
    resamples: int,
    truths: Sequence[Statistic] = (),
    lowest: float = -np.inf,
) -> Measurement:
    """A statistic for each seed on the same rows, which `over` names; all seeds are resampled together."""
    drawn = [np.mean([one(counts) for one in statistics], axis=0) for counts in draws(rows, over, resamples)]
    return Measurement(
        values=tuple(at_once(statistic, rows) for statistic in statistics),
        rows=rows,
        drawn=np.concatenate(drawn),
        truth=float(np.mean([at_once(truth, rows) for truth in truths])) if truths else None,
        lowest=lowest,
    )


def mean_over_rows(values: Sequence[Floats], spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """The mean over rows of values (rows,), one array for each seed."""
    statistics = [mean_of(one) for one in values]
    return resampled(statistics, len(values[0]), over=spec.rows_name, resamples=artifacts.settings.resamples)


def combine(parts: Sequence[Measurement], function: Callable[..., Floats], *, linear: bool) -> Measurement:
    """A function of several numbers, seed by seed and draw by draw.

    A linear function is also applied to the truths. Parts with different numbers of seeds are combined by their means.
    """
    seeds = {len(part.values) for part in parts}
    values = [part.values if len(seeds) == 1 else (part.mean,) for part in parts]
    drawn = [part.drawn for part in parts if part.drawn is not None]
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
