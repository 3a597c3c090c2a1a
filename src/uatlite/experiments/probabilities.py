"""From stored logits to the probabilities that are scored: calibrate, then put the task's classes in order.

Calibrators work in the model's own columns and are applied before classes are summed, so one that was fitted on NLI
with three classes serves HANS with two.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.calibration import Calibrator, make_calibrator, margin_variance
from uatlite.errors import CalibrationError, DataError
from uatlite.experiments.store import Predictions
from uatlite.predictive import mean_logits, softmax

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


def fit_calibrator(name: str, predictions: Predictions) -> Calibrator:
    """A calibrator fitted on the stored predictions of a calibration split."""
    columns = _gold_columns(predictions)
    known = columns >= 0
    logits, variance = _mean_logits(predictions), _variance(predictions)
    try:
        return make_calibrator(name).fit(logits[known], columns[known], None if variance is None else variance[known])
    except CalibrationError as error:
        raise CalibrationError(f"{predictions.provenance.set_name}: {error}") from error


def outcome_of(predictions: Predictions, calibrator: Calibrator | None) -> Outcome:
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


def _mean_logits(predictions: Predictions) -> Floats:
    return mean_logits(predictions.logits.astype(np.float64), predictions.counts)


def _variance(predictions: Predictions) -> Floats | None:
    """The margin's variance: the method's own where it gives one, else over its passes, else None."""
    if predictions.margin_variance is not None:
        return predictions.margin_variance.astype(np.float64)
    return margin_variance(predictions.logits, predictions.counts) if len(predictions.logits) > 1 else None


def _class_indices(predictions: Predictions) -> NDArray[np.int64]:
    """The gold label as an index into the classes that the model knows; -1 without a label or outside of them."""
    provenance = predictions.provenance
    place = {label: index for index, label in enumerate(provenance.classes)}
    table = np.array([place.get(label, -1) for label in provenance.labels] + [-1], dtype=np.int64)
    return np.asarray(table[predictions.labels])  # NO_LABEL, -1, reads the entry at the end


def _gold_columns(predictions: Predictions) -> NDArray[np.int64]:
    """The model's column of each gold label; -1 where there is none."""
    provenance = predictions.provenance
    if any(len(columns) != 1 for columns in provenance.recipe.columns):
        raise CalibrationError(
            f"{provenance.set_name} sums several classes of the model into one, so its labels do not say which of them "
            "is right, and no calibrator can be fitted on it. Evaluate the model's own task, with this one as --shift."
        )
    columns = np.array([columns[0] for columns in provenance.recipe.columns] + [-1], dtype=np.int64)
    return np.asarray(columns[_class_indices(predictions)])


def _doubt(predictions: Predictions, probabilities: Floats) -> Floats:
    """The probability of the out-of-scope class where the model has it, else 1 - confidence."""
    provenance = predictions.provenance
    assert provenance.out_of_scope is not None
    name = provenance.labels[provenance.out_of_scope]
    if name in provenance.classes:
        return np.asarray(probabilities[:, provenance.classes.index(name)])
    return np.asarray(1 - probabilities.max(axis=1))
