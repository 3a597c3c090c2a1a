"""The measures of cells by name, computed from stored predictions.

- metrics of a contender on a set, and what a shift of the set does to calibration
- whether a model has learned its task: a claim about one that has not would compare noise
- changes that a perturbation makes to the same rows
- coverage and accuracy at thresholds that the calibration rows choose, as the paper's text has it; its tables have
  fixed thresholds. 'selected-coverage@0.8' uses the confidence that 80 % of the calibration rows exceed.
- coverage and risk where the calibration rows promise a risk: 'promised-coverage@0.1' answers where the margin is above
  the threshold at which at most 10 % of answers are wrong, with 95 % confidence, as `uatlite calibrate` does
- finding texts out of scope by the contender's doubt, which is 1 - confidence (oos-auroc, oos-aupr), by 1 - confidence
  × the chance that the text is in scope (oos-auroc+scope, …) or by the scope alone (scope-auroc, …); and the AURC of
  all rows, where every answer to a text out of scope is an error (mixture-aurc, mixture-aurc+scope), or of those in
  scope alone (inside-aurc, …). The scope is read off the plain model of the same seed, whatever the contender. Rows in
  scope and out of scope are resampled separately.
"""

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from uatlite.errors import (
    CalibrationError,
    ConfigurationError,
    DataError,
    InputError,
    MissingDependency,
    ModelError,
    check_choice,
)
from uatlite.lab.evaluate.cells import CellSpec, Learning
from uatlite.lab.evaluate.comparison import Measurement, ResampledRows, Sampled, Tick, measured
from uatlite.lab.evaluate.models import Job
from uatlite.lab.evaluate.outcomes import OUTCOMES, outcome_of
from uatlite.lab.evaluate.plan import Contender
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.scope import Mixture, labelled_in_scope, not_labelled_outside, scope_jobs, strangeness
from uatlite.methods.sampling import BASE
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.calibration import SHIFT
from uatlite.metrics.intervals import (
    METRICS,
    Estimate,
    Resampling,
    detection_estimates,
    shift_estimates,
)
from uatlite.metrics.rows import Ranking, Rows, Statistic, mean_of, ratio
from uatlite.metrics.selective import accuracy_at, area_under_risk, coverage_at
from uatlite.predictive import entropy, margin
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.trust.promise import Labelled, decide
from uatlite.trust.rule import RAW_SCORE, Wanted
from uatlite.values import Floats


def cell_jobs(cell: CellSpec, runs: Runs) -> list[Job]:
    """The contender on the cell's rows, and on the calibration rows where it is calibrated."""
    return [*(runs.calibration_jobs(cell) if cell.contender.calibrated else ()), *runs.jobs(cell)]


def with_cell(other: Callable[[CellSpec], CellSpec]) -> Callable[[CellSpec, Runs], list[Job]]:
    """The jobs of a cell and of another one that it is compared with."""
    return lambda cell, runs: [*cell_jobs(other(cell), runs), *cell_jobs(cell, runs)]


def no_jobs(cell: CellSpec, runs: Runs) -> list[Job]:
    """For a measure that runs the model itself."""
    return []


@dataclass(frozen=True)
class Measure:
    """How a cell is computed, and from which predictions."""

    compute: Callable[[CellSpec, Runs], Sampled | Measurement]
    """a number that is ready to be resampled, or one that has no rows"""
    jobs: Callable[[CellSpec, Runs], list[Job]] = cell_jobs
    decimals: int = 3
    of_learning: bool = True
    """whether it says nothing of a model that has not learned its task; time and size say something of any model"""


UNAVAILABLE = (CalibrationError, DataError, InputError, MissingDependency, ModelError)
"""Errors that leave a cell of a table empty: missing data, package or model. Any other error is raised."""


def measure_of(name: str) -> Measure:
    """The measure of this name among those of stored predictions."""
    check_choice("measure", name, MEASURES)
    return MEASURES[name]


def measure(
    cells: Iterable[CellSpec],
    runs: Runs,
    how: Resampling,
    *,
    named: Callable[[str], Measure] = measure_of,
    tick: Tick = lambda share: None,
    reasons: MutableMapping[CellSpec, str] | None = None,
) -> dict[CellSpec, Measurement]:
    """The numbers of cells; those on the same rows share their draws.

    With `reasons` a cell that cannot be computed is left out, and they say why.
    """
    numbers: dict[CellSpec, Sampled | Measurement] = {}
    for cell in dict.fromkeys(cells):
        try:
            numbers[cell] = named(cell.measure).compute(cell, runs)
        except UNAVAILABLE as error:
            if reasons is None:
                raise
            reasons[cell] = str(error)
    drawn = measured({cell: number for cell, number in numbers.items() if isinstance(number, Sampled)}, how, tick)
    return {cell: number if isinstance(number, Measurement) else drawn[cell] for cell, number in numbers.items()}


def over_rows(cell: CellSpec, estimates: Iterable[Estimate], rows: int) -> Sampled:
    """Estimates of each seed over the rows of a cell."""
    return Sampled(list(estimates), (ResampledRows((rows,), cell.rows_name),))


def mean_over_rows(cell: CellSpec, values: Iterable[Floats]) -> Sampled:
    """The mean over rows of values (rows,), one array for each seed."""
    of_seeds = list(values)
    return over_rows(cell, (Estimate(mean_of(of_seed)) for of_seed in of_seeds), len(of_seeds[0]))


# ── metrics, shift, change ─────────────────────────────────────────────────────────────────────────────────────────


def metric_measure(cell: CellSpec, runs: Runs) -> Sampled:
    """A metric of the registry."""
    estimates = runs.estimates(cell)
    return over_rows(cell, (of_seed[cell.measure] for of_seed in estimates), sum(estimates[0].strata))


def shift(cell: CellSpec, runs: Runs) -> Sampled:
    """ΔECE or the robustness score, from the task's own test set to the cell's; each set is resampled by itself."""
    home = in_domain(cell)
    pairs = list(zip(runs.outcomes(home), runs.outcomes(cell), strict=True))
    sizes = [len(outcome.rows) for outcome in pairs[0]]
    names = (home.rows_name, cell.rows_name)  # the same draws as those of the cells that have either set alone
    rows = tuple(ResampledRows((size,), name) for size, name in zip(sizes, names, strict=True))
    return Sampled([shift_estimates(before.rows, after.rows)[cell.measure] for before, after in pairs], rows)


def in_domain(cell: CellSpec) -> CellSpec:
    """The same contender on the test set of its own task."""
    return replace(cell, on=cell.home, perturbation=None)


_CHANGES: dict[str, Callable[[Rows], Floats]] = {
    "delta_confidence": lambda rows: rows.confidence,
    "delta_margin": lambda rows: margin(rows.probabilities),
    "delta_entropy": lambda rows: entropy(rows.probabilities),
    "delta_error": lambda rows: 1 - rows.correct,
}
"""measure -> the values (rows,) whose change is measured"""


def change(cell: CellSpec, runs: Runs) -> Sampled:
    """The mean over rows of perturbed minus original; both are compared with the original labels."""
    value = _CHANGES[cell.measure]
    pairs = zip(runs.outcomes(original(cell)), runs.outcomes(cell), strict=True)
    return mean_over_rows(cell, (value(after.rows) - value(before.rows) for before, after in pairs))


def original(cell: CellSpec) -> CellSpec:
    """The same cell without its perturbation."""
    if cell.perturbation is None:
        raise ConfigurationError(f"{cell.measure} measures the change by a perturbation; add one to the cell.")
    return replace(cell, perturbation=None)


# ── thresholds of the calibration rows ─────────────────────────────────────────────────────────────────────────────

THRESHOLD_METRICS = {"selected-coverage": coverage_at, "selected-accuracy": accuracy_at}
SELECTED = (0.9, 0.8, 0.7)


def selected(cell: CellSpec, runs: Runs) -> Sampled:
    """Coverage or accuracy of the test rows above a threshold that was set on the calibration rows."""
    kind, _, target = cell.measure.partition("@")
    outcomes, calibrators = runs.outcomes(cell), runs.calibrators(cell)
    estimates = []
    for job, outcome, calibrator in zip(runs.calibration_jobs(cell), outcomes, calibrators, strict=True):
        confidence = outcome_of(runs.predictions(job), calibrator).rows.confidence
        tau = float(np.quantile(confidence, 1 - float(target), method="lower"))
        estimates.append(Estimate(partial(THRESHOLD_METRICS[kind].values, outcome.rows, tau=tau)))
    return over_rows(cell, estimates, len(outcomes[0].rows))


def selected_jobs(cell: CellSpec, runs: Runs) -> list[Job]:
    """The cell's jobs, and the calibration rows also for a contender without a calibrator."""
    return [*runs.calibration_jobs(cell), *cell_jobs(cell, runs)]


_PROMISES: dict[str, Callable[[Floats, Floats], Statistic]] = {
    "promised-coverage": lambda answered, wrong: mean_of(answered),
    "promised-risk": lambda answered, wrong: lambda counts: ratio(counts @ (answered * wrong), counts @ answered),
}
"""measure -> its statistic of which rows are answered and which are wrong (rows,)"""
_RISKS = (0.05, 0.1, 0.2, 0.3)


def promised(cell: CellSpec, runs: Runs) -> Sampled:
    """Coverage or risk of the test rows under the promise that the calibration rows allow; it ranks by the margin."""
    kind, _, target = cell.measure.partition("@")
    estimates = []
    for jobs in zip(runs.calibration_jobs(cell), runs.jobs(cell), strict=True):
        predictions = [runs.predictions(job, cell.passes) for job in jobs]
        margins = [margin(rows.passes.mean_logits) for rows in predictions]
        wrong = [1 - outcome_of(rows, None).rows.correct for rows in predictions]
        wanted = Wanted(kind="risk", target=float(target), score=RAW_SCORE)
        rule = decide(Labelled({RAW_SCORE: margins[0]}, wrong[0] > 0), wanted).rule
        assert rule is not None
        answered = (margins[1] > rule.threshold).astype(np.float64)
        estimates.append(Estimate(_PROMISES[kind](answered, wrong[1]), lowest=0.0))
    return over_rows(cell, estimates, len(wrong[1]))


# ── whether the model has learned its task ─────────────────────────────────────────────────────────────────────────


def learning_cell(cell: CellSpec) -> CellSpec:
    """The plain model of a cell on the test rows of its own task."""
    return CellSpec(
        measure="accuracy", contender=Contender(BASE), task=cell.task, backbone=cell.backbone, seeds=cell.seeds
    )


def learning_of(cell: CellSpec, runs: Runs, backbone: str) -> Learning:
    """Whether the model of a cell has learned its task; `backbone` is what it was fine-tuned from."""
    outcomes = runs.outcomes(learning_cell(cell))
    labels = outcomes[0].rows.labels
    return Learning(
        backbone=backbone,
        task=cell.task,
        seeds=len(outcomes),
        rows=len(labels),
        accuracy=float(np.mean([outcome.rows.correct.mean() for outcome in outcomes])),
        chance=float(np.bincount(labels).max() / len(labels)),
    )


# ── texts out of scope ─────────────────────────────────────────────────────────────────────────────────────────────


def detection(cell: CellSpec, runs: Runs) -> Sampled:
    """AUROC, AUPR or FPR95 of telling all labelled rows out of scope from the others, which are resampled together."""
    estimates = []
    for outcome in runs.outcomes(cell):
        assert outcome.doubt is not None
        assert outcome.out_of_scope is not None
        estimates.append(detection_estimates(outcome.doubt, outcome.out_of_scope)[cell.measure])
        rows = len(outcome.doubt)
    return over_rows(cell, estimates, rows)


Outside = Callable[[Mixture], Statistic]
"""The statistic of a run on rows in scope and out of scope."""


def _finding(metric: str, score: Callable[[Mixture], Floats]) -> Outside:
    return lambda rows: detection_estimates(score(rows), rows.outside)[metric].statistic


def _area(rows: Mixture, confidence: Floats) -> Statistic:
    return partial(area_under_risk, Ranking.of(confidence), rows.wrong)


def _area_change(rows: Mixture) -> Statistic:
    both, alone = (_area(rows, confidence) for confidence in (rows.confidence * rows.chance, rows.confidence))
    return lambda counts: both(counts) - alone(counts)


_SCORES: dict[str, Callable[[Mixture], Floats]] = {
    "oos-{}": lambda rows: rows.doubt,
    "oos-{}+scope": lambda rows: 1 - rows.confidence * rows.chance,
    "scope-{}": lambda rows: rows.nonconformity,
}
"""name -> how much each row looks out of scope"""
_AREAS: dict[str, Outside] = {
    "{}-aurc": lambda rows: _area(rows, rows.confidence),
    "{}-aurc+scope": lambda rows: _area(rows, rows.confidence * rows.chance),
    "{}-aurc-change": _area_change,
}
_OUTSIDE: dict[str, Outside] = {
    **{name.format(metric): _finding(metric, score) for name, score in _SCORES.items() for metric in DETECTION},
    **{name.format(rows): area for name, area in _AREAS.items() for rows in ("inside", "mixture")},
}
"""measure -> its statistic; those of 'inside' are of the rows in scope alone"""
READS_SCOPE = tuple(name for name in _OUTSIDE if "scope" in name or "change" in name)


def outside(cell: CellSpec, runs: Runs) -> Sampled:
    """One of the measures above; rows in scope come first, then those out of scope."""
    mixtures = [_mixture(cell, *run, runs) for run in zip(runs.jobs(cell), runs.calibrators(cell), strict=True)]
    if cell.measure.startswith("inside"):
        mixtures = [rows.in_scope for rows in mixtures]
    lowest = -np.inf if "change" in cell.measure else 0.0
    estimates = [Estimate(_OUTSIDE[cell.measure](rows), lowest=lowest) for rows in mixtures]
    sizes = tuple(size for size in np.bincount(mixtures[-1].outside).tolist() if size)
    return Sampled(estimates, (ResampledRows(sizes, f"{cell.rows_name}|out of scope"),))


def _mixture(cell: CellSpec, job: Job, calibrator: LogitCalibrator | None, runs: Runs) -> Mixture:
    other = outside_job(cell, job)
    test, others = (runs.predictions(each, cell.passes) for each in (job, other))
    inside = labelled_in_scope(test)
    out = ~not_labelled_outside(others) if other == job else np.ones(len(others.ids), dtype=np.bool_)
    if not out.any():
        raise DataError(
            f"{others.provenance.set_name} has no row that is labelled out of scope; give more rows, or another set."
        )
    strange = None
    if cell.measure in READS_SCOPE:
        strange = np.hstack([strangeness(job, runs)[:, inside], strangeness(other, runs)[:, out]])
    return Mixture.of(test.take(inside), others.take(out), calibrator, strange)


def outside_jobs(cell: CellSpec, runs: Runs) -> list[Job]:
    """The cell's jobs, those over the texts out of scope, and the plain passes that tell what is in scope."""
    others = [outside_job(cell, job) for job in runs.jobs(cell)]
    plain = [job for run in (*runs.jobs(cell), *others) for job in scope_jobs(run, runs)]
    return [*cell_jobs(cell, runs), *others, *(plain if cell.measure in READS_SCOPE else ())]


def outside_job(cell: CellSpec, job: Job) -> Job:
    """A job over the texts out of scope of a cell."""
    return job if cell.outside is None else job.over(cell.outside)


MEASURES: dict[str, Measure] = {
    **{name: Measure(metric_measure, decimals=0 if name.startswith("count@") else 3) for name in METRICS},
    **{name: Measure(metric_measure) for kind in OUTCOMES.values() if kind.answers for name in kind.every},
    **{name: Measure(shift, with_cell(in_domain)) for name in SHIFT},
    **{name: Measure(change, with_cell(original)) for name in _CHANGES},
    **{f"{kind}@{target}": Measure(selected, selected_jobs) for kind in THRESHOLD_METRICS for target in SELECTED},
    **{f"{kind}@{target}": Measure(promised, selected_jobs) for kind in _PROMISES for target in _RISKS},
    **{name: Measure(detection) for name in DETECTION},
    **{name: Measure(outside, outside_jobs) for name in _OUTSIDE},
}
"""Those that are computed from stored predictions; the paper's tables have some that run a model themselves."""
