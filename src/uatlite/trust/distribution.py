"""From the logits of every pass to calibrated probabilities: the one place where a calibrator meets passes."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from uatlite.predictive import (
    PassLogits,
    Predictive,
    margin_direction,
    predict,
    softmax,
    summarise,
    summarise_gaussian,
)
from uatlite.trust.calibrators import LogitCalibrator
from uatlite.values import Floats, Integers

BAND_SHARES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Quantiles of a `MarginBand`."""


@dataclass(frozen=True)
class MarginBand:
    """The predicted class's probability where the margin of a text is normal around its value."""

    margin: float
    """of the logits: the largest minus the second"""
    spread: float
    """the standard deviation of that margin"""
    shares: tuple[float, ...]
    """of the normal distribution, from low to high"""
    probabilities: tuple[float, ...]
    """calibrated, at these quantiles"""


def probabilities(passes: PassLogits, calibrator: LogitCalibrator | None) -> Floats:
    """The prediction (rows, classes): the calibrator applied to the mean logits; without one their softmax."""
    return _calibration(passes, calibrator)(passes.mean_logits, np.arange(len(passes.mean_logits)))


def pass_probabilities(passes: PassLogits, calibrator: LogitCalibrator | None) -> Floats:
    """The same calibrator applied to each pass: (passes, rows, classes)."""
    apply, rows = _calibration(passes, calibrator), np.arange(passes.logits.shape[1])
    return np.stack([apply(logits, rows) for logits in passes.logits])


def predictive(passes: PassLogits, calibrator: LogitCalibrator | None) -> Predictive:
    """The prediction and the uncertainty in it.

    A method that gives the variance of its margin is summarised by the Gaussian of that margin, others by their passes.
    """
    if passes.given_variance is not None:
        return summarise_gaussian(passes.mean_logits, passes.given_variance[:, 0], _calibration(passes, calibrator))
    if calibrator is None:
        return predict(passes.logits)
    each = pass_probabilities(passes, calibrator)
    return summarise(probabilities(passes, calibrator), each, passes.mean_logits)


def margin_band(passes: PassLogits, calibrator: LogitCalibrator | None) -> MarginBand | None:
    """The predicted class's probability at quantiles of the margin's Gaussian, of the first row.

    None for a method that does not give the variance of its margin.
    """
    if passes.given_variance is None:
        return None
    logits, spread = passes.mean_logits[:1], float(np.sqrt(passes.given_variance.flat[0]))
    apply, row = _calibration(passes, calibrator), np.zeros(1, dtype=np.int64)
    predicted, step = int(apply(logits, row).argmax()), margin_direction(logits) * spread
    moved = [logits + NormalDist().inv_cdf(share) * step for share in BAND_SHARES]
    second, first = np.sort(logits[0])[-2:].tolist()
    chances = tuple(float(apply(each, row)[0, predicted]) for each in moved)
    return MarginBand(first - second, spread, BAND_SHARES, chances)


def _calibration(passes: PassLogits, calibrator: LogitCalibrator | None) -> Callable[[Floats, Integers], Floats]:
    """Logits (some rows, classes) and the places of their rows -> probabilities, as each of these rows is calibrated.

    What counts of a row's variance depends on its mean logits, so it is found once for all of its passes.
    """
    if calibrator is None:
        return lambda logits, rows: softmax(logits)
    effective = calibrator.effective_variance(passes.mean_logits, passes.margin_variance)
    return lambda logits, rows: calibrator.probabilities_with(logits, None if effective is None else effective[rows])
