"""The contract of the measures that compute the numbers of a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from uatlite.lab.evaluate.comparison import Measurement, ResampledRows, Sampled, measured
from uatlite.lab.paper.artifacts import Artifacts, PredictionJob
from uatlite.lab.paper.declaration import CellSpec
from uatlite.metrics.intervals import Estimate, Resampling
from uatlite.metrics.rows import Statistic, mean_of
from uatlite.values import Floats


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
    rows = ResampledRows((strata,) if isinstance(strata, int) else strata, over)
    known = truths or (None,) * len(statistics)
    every = [Estimate(statistic, truth, lowest) for statistic, truth in zip(statistics, known, strict=True)]
    return measured({0: Sampled(every, (rows,))}, Resampling(resamples, over_seeds=True))[0]


def mean_over_rows(values: Sequence[Floats], spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """The mean over rows of values (rows,), one array for each seed."""
    statistics = [mean_of(one) for one in values]
    return resampled(statistics, len(values[0]), over=spec.rows_name, resamples=artifacts.settings.resamples)


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
