"""Metrics of a contender on a set, and what a shift of the set does to its calibration.

What a perturbation does to the same rows: the mean change of confidence, margin, entropy and error.

Thresholds that calibration rows choose, as the paper's text has it; its tables have them fixed.

'selected-coverage@0.8' is the coverage, and 'selected-accuracy@0.8' the accuracy, at the confidence that 80 % of the
calibration rows exceed.
"""

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.outcomes import Outcome, outcome_of
from uatlite.lab.evaluate.plan import CALIBRATION
from uatlite.lab.paper.declaration import Ask
from uatlite.lab.paper.measurement import Measurement, own_jobs, resampled
from uatlite.lab.paper.models import PaperJob, Workshop
from uatlite.metrics.bootstrap import METRICS, draw_counts
from uatlite.metrics.calibration import SHIFT, combine
from uatlite.metrics.metric import Statistic, at_once, mean_of
from uatlite.metrics.ranking import Rows
from uatlite.metrics.selective import accuracy_at, coverage_at
from uatlite.predictive import entropy, margin


def score(ask: Ask, workshop: Workshop) -> Measurement:
    """A metric of the registry."""
    metric = METRICS[ask.measure]
    rows = [rows_of(outcome) for outcome in workshop.outcomes(ask)]
    return resampled(
        [metric.prepare(one) for one in rows],
        [metric.truth and metric.truth(one) for one in rows],
        len(rows[0]),
        over=which_rows(ask),
        resamples=workshop.settings.resamples,
        lowest=0.0,
    )


def shift_score(ask: Ask, workshop: Workshop) -> Measurement:
    """ΔECE or the robustness score, from the task's own test set to the cell's; each is resampled by itself."""
    home = in_domain(ask)
    pairs = list(zip(workshop.outcomes(home), workshop.outcomes(ask), strict=True))
    statistics = [combine(rows_of(one), rows_of(two), SHIFT[ask.measure]) for one, two in pairs]
    strata = tuple(len(outcome.labels) for outcome in pairs[0])
    # The draws of the in-domain rows and of the others are those of the cells that stand beside this one.
    domain, shifted = (
        draw_counts((size,), workshop.settings.resamples, zlib.crc32(which_rows(one).encode()))
        for size, one in zip(strata, (home, ask), strict=True)
    )
    counts = np.hstack([np.concatenate(list(domain)), np.concatenate(list(shifted))])
    return Measurement(
        values=tuple(at_once(one, sum(strata)) for one in statistics),
        rows=strata[1],
        drawn=np.mean([one(counts) for one in statistics], axis=0),
        truth=float(np.mean([at_once(one, sum(strata)) for one in statistics])),
    )


def shift_jobs(ask: Ask, workshop: Workshop) -> list[PaperJob]:
    """Both sets."""
    return [*own_jobs(in_domain(ask), workshop), *own_jobs(ask, workshop)]


def in_domain(ask: Ask) -> Ask:
    """The same contender on the test set of its own task."""
    return replace(ask, on=None, perturbation=None)


def rows_of(outcome: Outcome) -> Rows:
    return Rows.of(outcome.probabilities, outcome.labels)


def which_rows(ask: Ask) -> str:
    """A name for the rows of a cell: cells of one name are resampled together."""
    return f"{ask.on or ask.task}|{ask.subset}|{ask.rows}"


Floats = NDArray[np.float64]

# measure -> one value for each row, of which the change is taken
CHANGES: dict[str, Callable[[Rows], Floats]] = {
    "delta_confidence": lambda rows: rows.confidence,
    "delta_margin": lambda rows: margin(rows.probabilities),
    "delta_entropy": lambda rows: entropy(rows.probabilities),
    "delta_error": lambda rows: 1 - rows.correct,
}


def change(ask: Ask, workshop: Workshop) -> Measurement:
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


def change_jobs(ask: Ask, workshop: Workshop) -> list[PaperJob]:
    """Original and perturbed rows."""
    return [*own_jobs(original(ask), workshop), *own_jobs(ask, workshop)]


def original(ask: Ask) -> Ask:
    if ask.perturbation is None:
        raise ConfigurationError(f"{ask.measure} needs a perturbation to be the change of.")
    return replace(ask, perturbation=None)


KINDS = {"selected-coverage": coverage_at, "selected-accuracy": accuracy_at}
TARGETS = (0.9, 0.8, 0.7)


def at_selected(ask: Ask, workshop: Workshop) -> Measurement:
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


def selected_jobs(ask: Ask, workshop: Workshop) -> list[PaperJob]:
    """Calibration rows also for a contender that has no calibrator."""
    return [*validation(ask, workshop), *own_jobs(ask, workshop)]


def validation(ask: Ask, workshop: Workshop) -> list[PaperJob]:
    return [PaperJob(job.fit, job.method, f"{ask.task}/{CALIBRATION}") for job in workshop.jobs(ask)]
