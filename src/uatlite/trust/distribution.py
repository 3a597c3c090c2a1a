"""From the logits of every pass to calibrated probabilities: the one place where a calibrator meets passes."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from uatlite.predictive import PassLogits, Predictive, by_count, predict, softmax, summarise
from uatlite.trust.auto import make_calibrator
from uatlite.trust.calibrators import Calibrator
from uatlite.values import Floats, Integers


def fit_calibrator(name: str, passes: PassLogits, labels: Integers, rows: NDArray[np.bool_]) -> Calibrator:
    """The calibrator of this name, fitted on the rows (rows,) marked True; labels (rows,)."""
    variance = passes.margin_variance
    return make_calibrator(name).fit(
        passes.mean_logits[rows], labels[rows], None if variance is None else variance[rows]
    )


def probabilities(passes: PassLogits, calibrator: Calibrator | None) -> Floats:
    """The prediction (rows, classes): the calibrator applied to the mean logits; without one their softmax."""
    return _apply(calibrator, passes.mean_logits, passes.margin_variance)


def pass_probabilities(passes: PassLogits, calibrator: Calibrator | None) -> Floats:
    """The same calibrator applied to each pass: (passes, rows, classes), NaN where a row has no such pass."""
    variance = passes.margin_variance
    found = np.full(passes.logits.shape, np.nan)
    for number, logits in enumerate(passes.logits):
        rows = np.flatnonzero(np.full(len(logits), True) if passes.counts is None else passes.counts > number)
        if len(rows):
            found[number, rows] = _apply(calibrator, logits[rows], None if variance is None else variance[rows])
    return found


def predictive(passes: PassLogits, calibrator: Calibrator | None) -> Predictive:
    """The prediction and the uncertainty in it.

    The variance is that of the predicted class's probability over passes, or the margin's where the method gives it.
    """
    if calibrator is None:
        found = predict(passes.logits, counts=passes.counts)
    else:
        own, each = probabilities(passes, calibrator), pass_probabilities(passes, calibrator)
        if passes.counts is None:
            found = summarise(own, each)
        else:
            found = by_count(passes.counts, lambda count, rows: summarise(own[rows], each[:count, rows]))
    return found if passes.given_variance is None else replace(found, variance=passes.given_variance)


def _apply(calibrator: Calibrator | None, logits: Floats, variance: Floats | None) -> Floats:
    return softmax(logits) if calibrator is None else calibrator.probabilities(logits, variance)
