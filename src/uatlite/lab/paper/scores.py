"""Measures computed from stored predictions.

- metrics of a contender on a set, and what a shift of the set does to calibration
- whether a model has learned its task: a claim about one that has not would compare noise
- changes that a perturbation makes to the same rows
- coverage and accuracy at thresholds that the calibration rows choose, as the paper's text has it; its tables have
  fixed thresholds. 'selected-coverage@0.8' uses the confidence that 80 % of the calibration rows exceed.
- coverage and risk where the calibration rows promise a risk: 'promised-coverage@0.1' answers where the margin is above
  the threshold at which at most 10 % of answers are wrong, with 95 % confidence, as `uatlite calibrate` does
- for a task that labels rows out of scope, such as CLINC150: finding these by the contender's doubt, which is
  1 - confidence (oos-auroc, oos-aupr), by 1 - confidence × the chance that the text is in scope (oos-auroc+scope, …) or
  by the scope alone (scope-auroc, …), and the AURC of all rows, where every answer to a text out of scope is an error
  (mixture-aurc, mixture-aurc+scope). The scope is read off the plain model of the same seed, whatever the contender.
  Rows in scope and out of scope are resampled separately.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError, DataError
from uatlite.lab.evaluate.comparison import Measurement, ResampledRows, Sampled, measured
from uatlite.lab.evaluate.out_of_scope import (
    REFERENCE,
    Mixed,
    PlainReader,
    ScopeTexts,
    Strangeness,
    in_scope,
    mixed_of,
)
from uatlite.lab.evaluate.outcomes import outcome_of
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.lab.paper.artifacts import Arrays, Artifacts, PredictionJob
from uatlite.lab.paper.datasets import draw
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.measurement import cell_jobs, mean_over_rows, resampled
from uatlite.lab.paper.models import FineTuning
from uatlite.metrics.intervals import METRICS, Resampling, detection_estimates, shift_estimates
from uatlite.metrics.rows import Ranking, Rows, Statistic, mean_of, ratio
from uatlite.metrics.selective import accuracy_at, area_under_risk, coverage_at
from uatlite.predictive import entropy, margin
from uatlite.trust.promise import Labelled, Wanted, decide
from uatlite.trust.rule import RAW_SCORE
from uatlite.values import Floats


def score(spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """A metric of the registry."""
    metric = METRICS[spec.measure]
    rows = [outcome.rows for outcome in artifacts.outcomes(spec)]
    return resampled(
        [metric.prepare(one) for one in rows],
        len(rows[0]),
        over=spec.rows_name,
        resamples=artifacts.settings.resamples,
        truths=[] if metric.truth is None else [metric.truth(one) for one in rows],
        lowest=0.0,
    )


def shift_score(spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """ΔECE or the robustness score, from the task's own test set to the cell's; each set is resampled by itself."""
    home = in_domain(spec)
    pairs = list(zip(artifacts.outcomes(home), artifacts.outcomes(spec), strict=True))
    estimates = [shift_estimates(one.rows, two.rows)[spec.measure] for one, two in pairs]
    # The same draws as those of the cells that have either set alone.
    rows = tuple(
        ResampledRows((len(outcome.labels),), cell.rows_name)
        for outcome, cell in zip(pairs[0], (home, spec), strict=True)
    )
    return measured({0: Sampled(estimates, rows)}, Resampling(artifacts.settings.resamples, over_seeds=True))[0]


def shift_jobs(spec: CellSpec, artifacts: Artifacts) -> list[PredictionJob]:
    """The jobs of both sets."""
    return [*cell_jobs(in_domain(spec), artifacts), *cell_jobs(spec, artifacts)]


def in_domain(spec: CellSpec) -> CellSpec:
    """The same contender on the test set of its own task."""
    return replace(spec, on=None, perturbation=None)


CHANGES: dict[str, Callable[[Rows], Floats]] = {
    "delta_confidence": lambda rows: rows.confidence,
    "delta_margin": lambda rows: margin(rows.probabilities),
    "delta_entropy": lambda rows: entropy(rows.probabilities),
    "delta_error": lambda rows: 1 - rows.correct,
}
"""measure -> the values (rows,) whose change is measured"""


def change(spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """The mean over rows of perturbed minus original; both are compared with the original labels."""
    value = CHANGES[spec.measure]
    pairs = zip(artifacts.outcomes(original(spec)), artifacts.outcomes(spec), strict=True)
    return mean_over_rows([value(after.rows) - value(before.rows) for before, after in pairs], spec, artifacts)


def change_jobs(spec: CellSpec, artifacts: Artifacts) -> list[PredictionJob]:
    """The jobs of the original and the perturbed rows."""
    return [*cell_jobs(original(spec), artifacts), *cell_jobs(spec, artifacts)]


def original(spec: CellSpec) -> CellSpec:
    """The same cell without its perturbation."""
    if spec.perturbation is None:
        raise ConfigurationError(f"{spec.measure} measures the change by a perturbation; add one to the cell.")
    return replace(spec, perturbation=None)


THRESHOLD_METRICS = {"selected-coverage": coverage_at, "selected-accuracy": accuracy_at}
TARGETS = (0.9, 0.8, 0.7)


def at_selected(spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """Coverage or accuracy of the test rows above a threshold that was set on the calibration rows."""
    kind, _, target = spec.measure.partition("@")
    outcomes, calibrators = artifacts.outcomes(spec), artifacts.calibrators(spec)
    statistics: list[Statistic] = []
    for job, outcome, calibrator in zip(artifacts.calibration_jobs(spec), outcomes, calibrators, strict=True):
        confidence = outcome_of(artifacts.predictions(job), calibrator).rows.confidence
        tau = float(np.quantile(confidence, 1 - float(target), method="lower"))
        statistics.append(THRESHOLD_METRICS[kind].prepare(outcome.rows, tau))
    rows = len(outcomes[0].labels)
    return resampled(statistics, rows, over=spec.rows_name, resamples=artifacts.settings.resamples)


def selected_jobs(spec: CellSpec, artifacts: Artifacts) -> list[PredictionJob]:
    """The cell's jobs, and the calibration rows also for a contender without a calibrator."""
    return [*artifacts.calibration_jobs(spec), *cell_jobs(spec, artifacts)]


PROMISES: dict[str, Callable[[Floats, Floats], Statistic]] = {
    "promised-coverage": lambda answered, wrong: mean_of(answered),
    "promised-risk": lambda answered, wrong: lambda counts: ratio(counts @ (answered * wrong), counts @ answered),
}
"""measure -> its statistic of which rows are answered and which are wrong (rows,)"""
RISKS = (0.05, 0.1, 0.2, 0.3)


def at_promised(spec: CellSpec, artifacts: Artifacts) -> Measurement:
    """Coverage or risk of the test rows under the promise that the calibration rows allow; it ranks by the margin."""
    kind, _, target = spec.measure.partition("@")
    statistics: list[Statistic] = []
    for jobs in zip(artifacts.calibration_jobs(spec), artifacts.jobs(spec), strict=True):
        predictions = [artifacts.predictions(job, spec.passes) for job in jobs]
        (known, new) = (margin(one.passes.mean_logits) for one in predictions)
        (missed, wrong) = (1 - outcome_of(one, None).rows.correct for one in predictions)
        wanted = Wanted(kind="risk", target=float(target), score=RAW_SCORE)
        rule = decide(Labelled({RAW_SCORE: known}, missed > 0), wanted).rule
        assert rule is not None
        statistics.append(PROMISES[kind]((new > rule.threshold).astype(np.float64), wrong))
    return resampled(statistics, len(wrong), over=spec.rows_name, resamples=artifacts.settings.resamples, lowest=0.0)


MARGIN = 0.05
"""How far above chance the accuracy of a model must be that has learned its task."""


@dataclass(frozen=True)
class Learning:
    """The accuracy of the plain model on the test rows of its own task, mean over seeds."""

    backbone: str
    task: str
    seeds: int
    rows: int
    accuracy: float
    chance: float
    """the share of the most frequent class: what always giving one answer gets"""

    @property
    def learned(self) -> bool:
        return self.accuracy >= self.chance + MARGIN

    @property
    def sentence(self) -> str:
        """'bert-tiny on mnli has an accuracy of 0.362, and always giving one answer 0.340'."""
        name = Path(self.backbone).name
        return f"{name} on {self.task} has an accuracy of {self.accuracy:.3f}, and one answer for all {self.chance:.3f}"


def learning_spec(spec: CellSpec) -> CellSpec:
    """The plain model of a cell on the test rows of its own task."""
    return CellSpec(measure="accuracy", contender="base", task=spec.task, backbone=spec.backbone, seeds=spec.seeds)


def learning_of(spec: CellSpec, artifacts: Artifacts) -> Learning:
    """Whether the model of a cell has learned its task; its predictions on the task's test rows were made before."""
    own = learning_spec(spec)
    outcomes = artifacts.outcomes(own)
    labels = outcomes[0].labels
    return Learning(
        backbone=artifacts.settings.backbone_of(spec.backbone),
        task=spec.task,
        seeds=len(outcomes),
        rows=len(labels),
        accuracy=float(np.mean([one.rows.correct.mean() for one in outcomes])),
        chance=float(np.bincount(labels).max() / len(labels)),
    )


def most_seeds(found: Iterable[Learning]) -> list[Learning]:
    """One entry for each backbone and task: the one over the most seeds."""
    best: dict[tuple[str, str], Learning] = {}
    for one in found:
        known = best.get((one.task, one.backbone))
        if known is None or one.seeds > known.seeds:
            best[one.task, one.backbone] = one
    return list(best.values())


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
        reader = PlainReader(
            artifacts.models.load(fit), artifacts.settings.recipe_of(fit.task).max_length, lambda rows: None
        )
        found = reader.strangeness(reader.scope(texts), dataset)
        return {"nonconformity": found.nonconformity, "chance": found.chance}

    assert texts.reference is not None
    identity = [fit, *(one.fingerprint for one in (dataset, texts.reference, texts.calibration))]
    return artifacts.cached("scope", fit, identity, compute)
