"""Thresholds that calibration rows choose, as the paper's text has it; its tables have them fixed.

'selected-coverage@0.8' is the coverage, and 'selected-accuracy@0.8' the accuracy, at the confidence that 80 % of the
calibration rows exceed.
"""

import numpy as np

from uatlite.experiments.plan import CALIBRATION
from uatlite.experiments.probabilities import outcome_of
from uatlite.metrics.metric import Statistic
from uatlite.metrics.selective import accuracy_at, coverage_at
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured, resampled
from uatlite.reproduce.measures.measure import own_jobs
from uatlite.reproduce.measures.scores import rows_of, which_rows
from uatlite.reproduce.workshop import Job, Workshop

KINDS = {"selected-coverage": coverage_at, "selected-accuracy": accuracy_at}
TARGETS = (0.9, 0.8, 0.7)


def at_selected(ask: Ask, workshop: Workshop) -> Measured:
    """Coverage or accuracy of the test rows above a threshold that was set on the calibration rows."""
    kind, _, target = ask.measure.partition("@")
    statistics: list[Statistic] = []
    calibrators = workshop.calibrators(ask)
    for job, outcome, calibrator in zip(validation(ask, workshop), workshop.outcomes(ask), calibrators, strict=True):
        fitted = rows_of(outcome_of(workshop.predictions(job), calibrator))
        tau = float(np.quantile(fitted.confidence, 1 - float(target), method="lower"))
        statistics.append(KINDS[kind].prepare(rows_of(outcome), tau))
    return resampled(
        statistics,
        [None] * len(statistics),
        len(workshop.outcomes(ask)[0].labels),
        over=which_rows(ask),
        resamples=workshop.settings.resamples,
    )


def selected_jobs(ask: Ask, workshop: Workshop) -> list[Job]:
    """Calibration rows also for a contender that has no calibrator."""
    return [*validation(ask, workshop), *own_jobs(ask, workshop)]


def validation(ask: Ask, workshop: Workshop) -> list[Job]:
    return [Job(job.fit, job.method, f"{ask.task}/{CALIBRATION}") for job in workshop.jobs(ask)]
