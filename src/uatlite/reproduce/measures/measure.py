"""The contract of a measure."""

from collections.abc import Callable
from dataclasses import dataclass

from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured
from uatlite.reproduce.workshop import Job, Workshop


def no_jobs(ask: Ask, workshop: Workshop) -> list[Job]:
    """Nothing is predicted beforehand: the measure takes the model itself."""
    return []


def own_jobs(ask: Ask, workshop: Workshop) -> list[Job]:
    """The contender on the cell's rows, and on the calibration rows where it is calibrated."""
    return [*workshop.calibration_jobs(ask), *workshop.jobs(ask)]


@dataclass(frozen=True)
class Measure:
    """How a cell is computed, and from which predictions."""

    compute: Callable[[Ask, Workshop], Measured]
    jobs: Callable[[Ask, Workshop], list[Job]] = own_jobs
    decimals: int = 3
