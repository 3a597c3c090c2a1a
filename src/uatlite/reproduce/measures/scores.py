"""Metrics of a contender on a set, and what a shift of the set does to its calibration."""

import zlib
from dataclasses import replace

import numpy as np

from uatlite.experiments.probabilities import Outcome
from uatlite.metrics import METRICS
from uatlite.metrics.intervals import draw_counts
from uatlite.metrics.metric import at_once
from uatlite.metrics.rows import Rows
from uatlite.metrics.shift import SHIFT, combine
from uatlite.reproduce.declaration import Ask
from uatlite.reproduce.measured import Measured, resampled
from uatlite.reproduce.measures.measure import own_jobs
from uatlite.reproduce.workshop import Job, Workshop


def score(ask: Ask, workshop: Workshop) -> Measured:
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


def shift_score(ask: Ask, workshop: Workshop) -> Measured:
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
    return Measured(
        values=tuple(at_once(one, sum(strata)) for one in statistics),
        rows=strata[1],
        drawn=np.mean([one(counts) for one in statistics], axis=0),
        truth=float(np.mean([at_once(one, sum(strata)) for one in statistics])),
    )


def shift_jobs(ask: Ask, workshop: Workshop) -> list[Job]:
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
