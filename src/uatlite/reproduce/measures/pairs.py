"""What a perturbation does to the same rows: the mean change of confidence, margin, entropy and error."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError
from uatlite.metrics.metric import mean_of
from uatlite.metrics.rows import Rows
from uatlite.predictive import entropy, margin
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured, resampled
from uatlite.reproduce.measures.measure import own_jobs
from uatlite.reproduce.measures.scores import rows_of, which_rows
from uatlite.reproduce.workshop import Job, Workshop

Floats = NDArray[np.float64]

# measure -> one value for each row, of which the change is taken
CHANGES: dict[str, Callable[[Rows], Floats]] = {
    "delta_confidence": lambda rows: rows.confidence,
    "delta_margin": lambda rows: margin(rows.probabilities),
    "delta_entropy": lambda rows: entropy(rows.probabilities),
    "delta_error": lambda rows: 1 - rows.correct,
}


def change(ask: Ask, workshop: Workshop) -> Measured:
    """The mean over rows of perturbed less original, paired row by row; labels are the original ones."""
    value = CHANGES[ask.measure]
    pairs = list(zip(workshop.outcomes(original(ask)), workshop.outcomes(ask), strict=True))
    changes = [value(rows_of(after)) - value(rows_of(before)) for before, after in pairs]
    return resampled(
        [mean_of(one) for one in changes],
        [None] * len(changes),
        len(changes[0]),
        over=which_rows(ask),
        resamples=workshop.settings.resamples,
    )


def change_jobs(ask: Ask, workshop: Workshop) -> list[Job]:
    """Original and perturbed rows."""
    return [*own_jobs(original(ask), workshop), *own_jobs(ask, workshop)]


def original(ask: Ask) -> Ask:
    if ask.perturbation is None:
        raise ConfigurationError(f"{ask.measure} needs a perturbation to be the change of.")
    return replace(ask, perturbation=None)
