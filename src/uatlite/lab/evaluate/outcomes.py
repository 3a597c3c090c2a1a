"""From stored logits to outcomes: calibrated probabilities in the task's order, beside the gold labels.

Only stored predictions are needed, no model and no torch. Calibrators work on the model's own columns, before columns
are summed into classes of the task. A calibrator fitted on NLI with three classes therefore serves HANS with two.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import CalibrationError, DataError
from uatlite.lab.evaluate.answer_outcomes import (
    AnswerScores,
    entity_counts,
    entity_estimates,
    entity_score,
    label_estimates,
)
from uatlite.lab.evaluate.baseline_calibrators import EVALUATED
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.metrics.answers import ANSWER_METRICS
from uatlite.metrics.intervals import METRICS, SCALES, Better
from uatlite.metrics.rows import Rows
from uatlite.trust import distribution
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.values import Floats, Kind

HEADLINE = (
    "accuracy", "macro_f1", "ece", "debiased_ece", "nll", "brier", "aurc", "coverage@0.9", "accuracy@0.9", "error_auroc"
)  # fmt: skip
"""The metrics that are scored by default."""

DIRECTIONS: dict[str, Better | None] = {name: scale.better for name, scale in SCALES.items()}
"""The better direction of every score; None where it has none."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The probabilities and gold labels of one run of a contender on a set."""

    probabilities: Floats
    """(rows, classes): of the rows whose gold label is a class of the model"""
    labels: NDArray[np.int64]
    """(rows,)"""
    doubt: Floats | None
    """(labelled rows,): how much each row looks out of scope; None where the task has no such rows"""
    out_of_scope: NDArray[np.bool_] | None
    """(labelled rows,): which rows are out of scope"""

    @cached_property
    def rows(self) -> Rows:
        """Probabilities and labels as the metrics take them."""
        return Rows.of(self.probabilities, self.labels)

    @property
    def applies(self) -> Rows:
        """The rows whose confidence is compared with how often it is right."""
        return self.rows


def fit_calibrator(name: str, predictions: StoredPredictions) -> LogitCalibrator:
    """A calibrator fitted on the stored predictions of a calibration split."""
    columns = _gold_columns(predictions)
    try:
        passes = predictions.passes.take(columns >= 0)
        return EVALUATED[name](passes.mean_logits, columns[columns >= 0], passes.margin_variance)
    except CalibrationError as error:
        raise CalibrationError(f"{predictions.provenance.set_name}: {error}") from error


def outcome_of(predictions: StoredPredictions, calibrator: LogitCalibrator | None) -> Outcome:
    """Calibrated probabilities of the task's classes, and the gold labels in the same order."""
    provenance = predictions.provenance
    probabilities = class_probabilities(predictions, calibrator)
    labels = class_indices(predictions)
    known = labels >= 0
    if not known.any():
        raise DataError(f"{provenance.set_name} has no row with a gold label that the model knows: nothing to score.")
    doubt = flags = None
    if provenance.out_of_scope is not None:
        labelled = predictions.labels >= 0
        flags = (predictions.labels == provenance.out_of_scope)[labelled]
        doubt = doubt_of(probabilities, provenance.classes, provenance.labels[provenance.out_of_scope])[labelled]
    return Outcome(probabilities[known], labels[known], doubt, flags)


def class_probabilities(predictions: StoredPredictions, calibrator: LogitCalibrator | None) -> Floats:
    """(rows, classes): calibrated probabilities of the task's classes that the model knows."""
    columns = distribution.probabilities(predictions.passes, calibrator)
    return np.asarray(predictions.provenance.align().apply(columns).astype(np.float64))


def class_indices(predictions: StoredPredictions) -> NDArray[np.int64]:
    """(rows,): the gold label as an index into the model's classes; -1 without a label or outside of them."""
    provenance = predictions.provenance
    place = {label: index for index, label in enumerate(provenance.classes)}
    table = np.array([place.get(label, -1) for label in provenance.labels] + [-1], dtype=np.int64)
    return np.asarray(table[predictions.labels])  # NO_LABEL, -1, reads the entry at the end


def _gold_columns(predictions: StoredPredictions) -> NDArray[np.int64]:
    """(rows,): the model's column of each gold label; -1 where there is none."""
    provenance = predictions.provenance
    if any(len(columns) != 1 for columns in provenance.recipe.columns):
        raise CalibrationError(
            f"{provenance.set_name} sums several classes of the model into one, so its labels do not say which of them "
            "is right, and no calibrator can be fitted on it. Evaluate the model's own task, with this one as --shift."
        )
    columns = np.array([columns[0] for columns in provenance.recipe.columns] + [-1], dtype=np.int64)
    return np.asarray(columns[class_indices(predictions)])


def doubt_of(probabilities: Floats, classes: tuple[str, ...], out_of_scope: str | None) -> Floats:
    """(rows,): the probability of the out-of-scope class where the model has it, else 1 - confidence."""
    if out_of_scope is not None and out_of_scope in classes:
        return np.asarray(probabilities[:, classes.index(out_of_scope)])
    return np.asarray(1 - probabilities.max(axis=1))


@dataclass(frozen=True)
class ClassScores:
    """What is scored of a model that says one class about a text."""

    metrics: tuple[str, ...] = HEADLINE
    every: tuple[str, ...] = tuple(METRICS)


LABEL_METRICS = (
    "label_nll", "label_ece", "label_brier", "pair_aurc", "micro_average_precision", "macro_average_precision",
    "micro_f1", "macro_f1",
)  # fmt: skip
ENTITY_METRICS = ("answer_nll", "answer_ece", "answer_aurc", "wrong_auroc", "f1", "precision", "recall")

OUTCOMES: dict[Kind, ClassScores | AnswerScores] = {
    "one": ClassScores(),
    "choice": ClassScores(),
    "labels": AnswerScores(
        True, LABEL_METRICS, LABEL_METRICS, lambda said: said.sure, lambda gold, _: gold.matrix.astype(np.int64),
        label_estimates, lambda target: {"target_precision": 1.0 - target},
    ),
    "entities": AnswerScores(
        False, ENTITY_METRICS, (*ANSWER_METRICS, "f1", "precision", "recall", "macro_f1"), entity_score, entity_counts,
        entity_estimates, lambda target: {"target_risk": target},
    ),
}  # fmt: skip
"""kind of an answer -> what is scored of it"""
