"""Measures computed from stored predictions.

- metrics of a contender on a set, and what a shift of the set does to calibration
- whether a model has learned its task: a claim about one that has not would compare noise
- changes that a perturbation makes to the same rows
- coverage and accuracy at thresholds that the calibration rows choose, as the paper's text has it; its tables have
  fixed thresholds. 'selected-coverage@0.8' uses the confidence that 80 % of the calibration rows exceed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.outcomes import outcome_of
from uatlite.lab.paper.artifacts import Artifacts, PredictionJob
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.measurement import Measurement, cell_jobs, draws, mean_over_rows, resampled
from uatlite.metrics.bootstrap import METRICS
from uatlite.metrics.calibration import SHIFT, combine
from uatlite.metrics.metric import Statistic, at_once
from uatlite.metrics.ranking import Rows
from uatlite.metrics.selective import accuracy_at, coverage_at
from uatlite.predictive import entropy, margin
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
    statistics = [combine(one.rows, two.rows, SHIFT[spec.measure]) for one, two in pairs]
    sizes = [len(outcome.labels) for outcome in pairs[0]]
    # The same draws as those of the cells that have either set alone.
    counts = [
        np.concatenate(list(draws((size,), one.rows_name, artifacts.settings.resamples)))
        for size, one in zip(sizes, (home, spec), strict=True)
    ]
    values = tuple(at_once(one, sum(sizes)) for one in statistics)
    drawn = np.stack([one(np.hstack(counts)) for one in statistics])
    return Measurement(values, rows=sizes[1], drawn=drawn, truth=float(np.mean(values)))


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
