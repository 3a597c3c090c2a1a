"""From stored logits to the probabilities that are scored: calibrate, then put the task's classes in order.

Calibrators work in the model's own columns and are applied before classes are summed, so one that was fitted on NLI
with three classes serves HANS with two.

Scores of contenders on a set and its shifts, from stored predictions alone: no model, no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import CalibrationError, DataError
from uatlite.lab.evaluate.compare import Estimates, Score, Tick, compare
from uatlite.lab.evaluate.contenders import Contender
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.metrics.accuracy import DETECTION, check_detection
from uatlite.metrics.bootstrap import METRICS, Estimate
from uatlite.metrics.calibration import SHIFT, combine
from uatlite.metrics.metric import Better
from uatlite.metrics.ranking import Rows
from uatlite.predictive import margin_variance, mean_logits, softmax
from uatlite.trust.auto import make_calibrator
from uatlite.trust.calibrators import Calibrator

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one run of a contender comes to on a set."""

    probabilities: Floats
    """(rows, classes): of the rows whose gold label is a class that the model knows"""
    labels: NDArray[np.int64]
    """(rows,)"""
    doubt: Floats | None
    """(labelled rows,): how much each row looks out of scope, where the task has such rows"""
    out_of_scope: NDArray[np.bool_] | None
    """(labelled rows,): which of them are"""


def fit_calibrator(name: str, predictions: StoredPredictions) -> Calibrator:
    """A calibrator fitted on the stored predictions of a calibration split."""
    columns = _gold_columns(predictions)
    known = columns >= 0
    logits, variance = _mean_logits(predictions), _variance(predictions)
    try:
        return make_calibrator(name).fit(logits[known], columns[known], None if variance is None else variance[known])
    except CalibrationError as error:
        raise CalibrationError(f"{predictions.provenance.set_name}: {error}") from error


def outcome_of(predictions: StoredPredictions, calibrator: Calibrator | None) -> Outcome:
    """Calibrated probabilities of the task's classes, and the gold labels in their order."""
    provenance = predictions.provenance
    logits = _mean_logits(predictions)
    own = softmax(logits) if calibrator is None else calibrator.probabilities(logits, _variance(predictions))
    probabilities = provenance.align().apply(own).astype(np.float64)
    labels = _class_indices(predictions)
    known = labels >= 0
    if not known.any():
        raise DataError(f"{provenance.set_name} has no row with a gold label that the model knows: nothing to score.")
    doubt = flags = None
    if provenance.out_of_scope is not None:
        labelled = predictions.labels >= 0
        flags = (predictions.labels == provenance.out_of_scope)[labelled]
        doubt = _doubt(predictions, probabilities)[labelled]
    return Outcome(probabilities[known], labels[known], doubt, flags)


def _mean_logits(predictions: StoredPredictions) -> Floats:
    return mean_logits(predictions.logits.astype(np.float64), predictions.counts)


def _variance(predictions: StoredPredictions) -> Floats | None:
    """The margin's variance: the method's own where it gives one, else over its passes, else None."""
    if predictions.margin_variance is not None:
        return predictions.margin_variance.astype(np.float64)
    return margin_variance(predictions.logits, predictions.counts) if len(predictions.logits) > 1 else None


def _class_indices(predictions: StoredPredictions) -> NDArray[np.int64]:
    """The gold label as an index into the classes that the model knows; -1 without a label or outside of them."""
    provenance = predictions.provenance
    place = {label: index for index, label in enumerate(provenance.classes)}
    table = np.array([place.get(label, -1) for label in provenance.labels] + [-1], dtype=np.int64)
    return np.asarray(table[predictions.labels])  # NO_LABEL, -1, reads the entry at the end


def _gold_columns(predictions: StoredPredictions) -> NDArray[np.int64]:
    """The model's column of each gold label; -1 where there is none."""
    provenance = predictions.provenance
    if any(len(columns) != 1 for columns in provenance.recipe.columns):
        raise CalibrationError(
            f"{provenance.set_name} sums several classes of the model into one, so its labels do not say which of them "
            "is right, and no calibrator can be fitted on it. Evaluate the model's own task, with this one as --shift."
        )
    columns = np.array([columns[0] for columns in provenance.recipe.columns] + [-1], dtype=np.int64)
    return np.asarray(columns[_class_indices(predictions)])


def _doubt(predictions: StoredPredictions, probabilities: Floats) -> Floats:
    """The probability of the out-of-scope class where the model has it, else 1 - confidence."""
    provenance = predictions.provenance
    assert provenance.out_of_scope is not None
    name = provenance.labels[provenance.out_of_scope]
    if name in provenance.classes:
        return np.asarray(probabilities[:, provenance.classes.index(name)])
    return np.asarray(1 - probabilities.max(axis=1))


HEADLINE = (
    "accuracy", "macro_f1", "ece", "debiased_ece", "nll", "brier", "aurc", "coverage@0.9", "accuracy@0.9", "error_auroc"
)  # fmt: skip
"""What is scored unless other metrics are asked for."""

# Coverage and accuracy at a fixed threshold trade against each other: an overconfident model admits the most rows, an
# underconfident one only the easiest. And ΔECE is low for whoever is badly calibrated in domain already. Alone, none of
# them has a better direction.
_NEITHER = ("coverage@", "count@", "accuracy@", "delta_ece")
DIRECTIONS: dict[str, Better | None] = {
    **{name: None if name.startswith(_NEITHER) else metric.better for name, metric in METRICS.items()},
    **{name: None if name.startswith(_NEITHER) else "lower" for name in SHIFT},
    "auroc": "higher",
    "aupr": "higher",
    "fpr95": "lower",
}
"""Which way is better, for everything that is scored; None where neither is."""

Outcomes = Mapping[str, Sequence[Outcome]]
"""contender -> what it comes to on a set, for each seed"""


@dataclass(frozen=True)
class Resampling:
    """How intervals are made."""

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class SetScores:
    """Every contender on one set. `rows` are scored; `left_out` have no gold label that the model knows."""

    name: str
    source: str
    alignment: str
    rows: int
    left_out: int
    truncated_texts: int
    truncated_tokens: int
    scores: Mapping[str, Mapping[str, Score]]
    """contender -> metric -> score"""
    shift: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    """contender -> delta_ece, robustness_score, against the first set; empty for that one"""
    detection: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    """contender -> auroc, aupr, fpr95 of finding out-of-scope rows; empty where a task has none"""
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs in the store, one for each seed"""


def fit_calibrators(contender: Contender, calibration: Sequence[StoredPredictions]) -> list[Calibrator]:
    """A calibrator for each seed, fitted on that seed's predictions of the calibration split."""
    return [fit_calibrator(contender.calibrator, predictions) for predictions in calibration]


def outcomes_of(predictions: Sequence[StoredPredictions], calibrators: Sequence[Calibrator | None]) -> list[Outcome]:
    """What a contender comes to on a set, for each seed."""
    return [outcome_of(run, calibrator) for run, calibrator in zip(predictions, calibrators, strict=True)]


def score_set(outcomes: Outcomes, metrics: Sequence[str], how: Resampling, tick: Tick) -> dict[str, dict[str, Score]]:
    """Metrics of every contender on the same rows."""
    estimates: dict[str, dict[str, list[Estimate]]] = {}
    for contender, seeds in outcomes.items():
        rows = [Rows.of(outcome.probabilities, outcome.labels) for outcome in seeds]
        estimates[contender] = {name: [_estimate(name, seed) for seed in rows] for name in metrics}
    return _compare(estimates, metrics, (_rows(outcomes),), how, tick)


def score_shift(
    in_domain: Outcomes, shifted: Outcomes, how: Resampling, tick: Tick = lambda share: None
) -> dict[str, dict[str, Score]]:
    """ΔECE and the robustness score of every contender; both sets are resampled, each by itself."""
    estimates: dict[str, dict[str, list[Estimate]]] = {}
    for contender, seeds in in_domain.items():
        pairs = [
            (Rows.of(first.probabilities, first.labels), Rows.of(second.probabilities, second.labels))
            for first, second in zip(seeds, shifted[contender], strict=True)
        ]
        estimates[contender] = {}
        for name, weights in SHIFT.items():
            statistics = [combine(first, second, weights) for first, second in pairs]
            lowest = -np.inf if min(weights) < 0 else 0.0
            estimates[contender][name] = [Estimate(one, truth=one, lowest=lowest) for one in statistics]
    strata = (_rows(in_domain), _rows(shifted))
    return _compare(estimates, tuple(SHIFT), strata, how, tick)


def score_detection(outcomes: Outcomes, how: Resampling) -> dict[str, dict[str, Score]]:
    """AUROC, AUPR and FPR95 of telling out-of-scope rows from the others; empty where there are not both kinds."""
    estimates: dict[str, dict[str, list[Estimate]]] = {}
    rows = 0
    for contender, seeds in outcomes.items():
        estimates[contender] = {name: [] for name in DETECTION}
        for outcome in seeds:
            if outcome.doubt is None or outcome.out_of_scope is None or len(np.unique(outcome.out_of_scope)) < 2:
                return {}
            ranking, positives = check_detection(outcome.doubt, outcome.out_of_scope)
            rows = len(positives)
            for name, statistic_of in DETECTION.items():
                estimates[contender][name].append(Estimate(statistic_of(ranking, positives)))
    return _compare(estimates, tuple(DETECTION), (rows,), how, lambda share: None)


def _compare(
    estimates: Estimates, metrics: Sequence[str], strata: tuple[int, ...], how: Resampling, tick: Tick
) -> dict[str, dict[str, Score]]:
    better = {name: DIRECTIONS[name] for name in metrics}
    return compare(
        estimates, better, strata, resamples=how.resamples, confidence=how.confidence, seed=how.seed, tick=tick
    )


def _estimate(metric: str, rows: Rows) -> Estimate:
    chosen = METRICS[metric]
    return Estimate(chosen.prepare(rows), chosen.truth and chosen.truth(rows), lowest=0.0)


def _rows(outcomes: Outcomes) -> int:
    return len(next(iter(outcomes.values()))[0].labels)
