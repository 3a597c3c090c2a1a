"""A number of a table: its value for each seed, and on resampled rows, so that differences have intervals.

The contract of a measure.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from uatlite.lab.paper.declaration import Ask
from uatlite.lab.paper.models import PaperJob, Workshop
from uatlite.metrics.bootstrap import Estimate, Interval, draw_counts, interval_of
from uatlite.metrics.metric import Statistic, at_once
from uatlite.metrics.ranking import Floats

CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Measurement:
    """One number. Two that were drawn over the same rows are paired: their draws are of the same resamples."""

    values: tuple[float, ...]
    """one for each seed"""
    rows: int = 0
    """how many rows it was measured on"""
    drawn: Floats | None = None
    """(resamples,): the mean over seeds on resampled rows; None where there are no rows to resample"""
    truth: float | None = None
    """of a statistic that noise biases upward, what the sample says without that bias; see `metrics.Metric`"""
    lowest: float = -np.inf

    @property
    def point(self) -> float:
        """The mean over seeds."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """The standard deviation over seeds (ddof 1); None for a single one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def interval(self, confidence: float = CONFIDENCE) -> Interval | None:
        """The interval over rows; None where nothing was resampled."""
        if self.drawn is None:
            return None
        truth = None if self.truth is None else _always(self.truth)
        return interval_of(Estimate(_always(self.point), truth, self.lowest), self.drawn, 1, confidence)


def resampled(
    statistics: Sequence[Statistic],
    truths: Sequence[Statistic | None],
    rows: int,
    *,
    over: str,
    resamples: int,
    lowest: float = -np.inf,
) -> Measurement:
    """A statistic for each seed, over rows that are resampled together; `over` names them and seeds their draws."""
    draws = [
        np.mean([statistic(counts) for statistic in statistics], axis=0)
        for counts in draw_counts((rows,), resamples, zlib.crc32(over.encode()))
    ]
    known = [at_once(truth, rows) for truth in truths if truth is not None]
    return Measurement(
        values=tuple(at_once(statistic, rows) for statistic in statistics),
        rows=rows,
        drawn=np.concatenate(draws),
        truth=float(np.mean(known)) if len(known) == len(statistics) else None,
        lowest=lowest,
    )


def combine(parts: Sequence[Measurement], function: Callable[..., Floats], *, linear: bool) -> Measurement:
    """A function of several numbers, seed by seed and draw by draw.

    A linear one carries the parts' truths on. Parts with unlike numbers of seeds are combined by their means.
    """
    seeds = {len(part.values) for part in parts}
    values = [part.values if len(seeds) == 1 else (part.point,) for part in parts]
    draws = [part.drawn for part in parts if part.drawn is not None]
    truths = [part.truth for part in parts if part.truth is not None]
    together = [np.array(one) for one in zip(*values, strict=True)]
    return Measurement(
        values=tuple(float(function(*one)) for one in together),
        rows=max(part.rows for part in parts),
        drawn=np.asarray(function(*draws)) if len(draws) == len(parts) else None,
        truth=float(function(*truths)) if linear and len(truths) == len(parts) else None,
        lowest=min(part.lowest for part in parts) if function is mean else -np.inf,
    )


def mean(*parts: Floats) -> Floats:
    return np.asarray(np.mean(parts, axis=0))


def difference(first: Floats, second: Floats) -> Floats:
    return np.asarray(first - second)


def reduction(before: Floats, after: Floats) -> Floats:
    """By what share the second is less than the first."""
    return np.asarray(1 - after / before)


def ratio(first: Floats, second: Floats) -> Floats:
    return np.asarray(first / second)


def spread(*parts: Floats) -> Floats:
    """The largest less the smallest."""
    return np.asarray(np.max(parts, axis=0) - np.min(parts, axis=0))


# name -> the function, and whether it is linear
DERIVATIONS: dict[str, tuple[Callable[..., Floats], bool]] = {
    "mean": (mean, True),
    "difference": (difference, True),
    "reduction": (reduction, False),
    "ratio": (ratio, False),
    "spread": (spread, False),
}


def _always(value: float) -> Statistic:
    return lambda counts: np.full(len(counts), value)


def no_jobs(ask: Ask, workshop: Workshop) -> list[PaperJob]:
    """Nothing is predicted beforehand: the measure takes the model itself."""
    return []


def own_jobs(ask: Ask, workshop: Workshop) -> list[PaperJob]:
    """The contender on the cell's rows, and on the calibration rows where it is calibrated."""
    return [*workshop.calibration_jobs(ask), *workshop.jobs(ask)]


@dataclass(frozen=True)
class Measure:
    """How a cell is computed, and from which predictions."""

    compute: Callable[[Ask, Workshop], Measurement]
    jobs: Callable[[Ask, Workshop], list[PaperJob]] = own_jobs
    decimals: int = 3
