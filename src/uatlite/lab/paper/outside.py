"""Measures of texts out of scope, for a task that labels such rows, such as CLINC150.

- oos-auroc, oos-aupr: finding them by the contender's doubt, which is 1 - confidence
- oos-auroc+scope, oos-aupr+scope: by 1 - confidence × the chance that the text is in scope
- scope-auroc, scope-aupr: by the scope alone
- mixture-aurc, mixture-aurc+scope: the AURC of all rows, where every answer to a text out of scope is an error

The scope is read off the plain model of the same seed, whatever the contender. Rows in scope and out of scope are
resampled separately.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import DataError
from uatlite.lab.evaluate.out_of_scope import (
    REFERENCE,
    Mixed,
    PlainReader,
    ScopeTexts,
    Strangeness,
    in_scope,
    mixed_of,
)
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.lab.paper.artifacts import Arrays, Artifacts, PredictionJob
from uatlite.lab.paper.datasets import draw
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.measurement import Measurement, resampled
from uatlite.lab.paper.models import FineTuning
from uatlite.metrics.bootstrap import detection_estimates
from uatlite.metrics.metric import Statistic
from uatlite.metrics.ranking import Ranking
from uatlite.metrics.selective import area_under_risk
from uatlite.values import Floats


def _found(metric: str, score: Callable[[Mixed, Strangeness], Floats]) -> Callable[..., Statistic]:
    def statistic(mixed: Mixed, strange: Strangeness, outside: NDArray[np.bool_]) -> Statistic:
        return detection_estimates(score(mixed, strange), outside)[metric].statistic

    return statistic


def _risk(confidence: Callable[[Mixed, Strangeness], Floats]) -> Callable[..., Statistic]:
    def statistic(mixed: Mixed, strange: Strangeness, outside: NDArray[np.bool_]) -> Statistic:
        return area_under_risk(Ranking.of(confidence(mixed, strange)), mixed.wrong)

    return statistic


SCORES: dict[str, Callable[[Mixed, Strangeness], Floats]] = {
    "oos-{}": lambda mixed, strange: mixed.doubt,
    "oos-{}+scope": lambda mixed, strange: 1 - mixed.confidence * strange.chance,
    "scope-{}": lambda mixed, strange: strange.nonconformity,
}
"""name -> how much each row looks out of scope"""

OUTSIDE: dict[str, Callable[..., Statistic]] = {
    **{name.format(metric): _found(metric, score) for name, score in SCORES.items() for metric in ("auroc", "aupr")},
    "mixture-aurc": _risk(lambda mixed, strange: mixed.confidence),
    "mixture-aurc+scope": _risk(lambda mixed, strange: mixed.confidence * strange.chance),
}
"""measure -> its statistic of a run, what the scope says of its rows, and which of them are out of scope (rows,)"""


def outside_score(spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """One of the measures above; rows in scope come first, then those out of scope."""
    statistics, sizes = [], (0, 0)
    for job, calibrator in zip(artifacts.jobs(spec), artifacts.calibrators(spec), strict=True):
        predictions = artifacts.predictions(job, spec.passes)
        inside, outside = np.flatnonzero(in_scope(predictions)), _outside(predictions)
        sizes = (len(inside), len(outside))
        mixed = mixed_of(predictions, predictions.take(outside), calibrator)
        rows = np.concatenate([inside, outside])
        unread = dict.fromkeys(("nonconformity", "chance"), np.ones(len(predictions.ids)))
        found = scope_of(job, artifacts) if "scope" in spec.measure else unread
        strange = Strangeness(found["nonconformity"][rows], found["chance"][rows])
        statistics.append(OUTSIDE[spec.measure](mixed, strange, np.repeat([False, True], sizes)))
    return resampled(
        statistics, sizes, over=f"{spec.rows_name}|out of scope", resamples=artifacts.settings.resamples, lowest=0.0
    )


def _outside(predictions: StoredPredictions) -> NDArray[np.intp]:
    """The places of the rows out of scope."""
    about = predictions.provenance
    places = np.flatnonzero(predictions.labels == (-2 if about.out_of_scope is None else about.out_of_scope))
    if len(places) == 0:
        raise DataError(f"{about.set_name} has no row that is labelled out of scope; give more rows, or another set.")
    return places


def scope_of(job: PredictionJob, artifacts: Artifacts) -> Arrays:
    """nonconformity and chance (rows,) of a job's rows, by the plain model; fitted on texts of the model's own task."""
    fit: FineTuning = job.fit.plain
    task, dataset = artifacts.datasets.task(fit.task), artifacts.dataset(job)
    texts = ScopeTexts(draw(task.train.in_scope(), REFERENCE), task.calibration.in_scope())

    def compute() -> Arrays:
        reader = PlainReader(artifacts.models.load(fit), artifacts.settings.recipe.max_length, lambda rows: None)
        found = reader.strangeness(reader.scope(texts), dataset)
        return {"nonconformity": found.nonconformity, "chance": found.chance}

    assert texts.reference is not None
    identity = [fit, *(one.fingerprint for one in (dataset, texts.reference, texts.calibration))]
    return artifacts.cached("scope", fit, identity, compute)
