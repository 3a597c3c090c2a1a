"""From the logits of every pass to calibrated probabilities: the one place where a calibrator meets passes."""

from collections.abc import Callable, Sequence
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


def probability_quantiles(
    passes: PassLogits, calibrator: LogitCalibrator | None, shares: Sequence[float]
) -> Floats | None:
    """The predicted class's probability at quantiles of the margin's Gaussian: (shares, rows).

    None for a method that does not give the variance of its margin.
    """
    variance, logits = passes.given_variance, passes.mean_logits
    if variance is None:
        return None
    apply, rows = _calibration(passes, calibrator), np.arange(len(logits))
    predicted = apply(logits, rows).argmax(axis=1)
    step = margin_direction(logits) * np.sqrt(variance)
    moved = (logits + deviate * step for deviate in (NormalDist().inv_cdf(share) for share in shares))
    return np.stack([apply(one, rows)[rows, predicted] for one in moved])


def margin_band(passes: PassLogits, calibrator: LogitCalibrator | None) -> MarginBand | None:
    """The band of the first row; None for a method that does not give the variance of its margin."""
    found = probability_quantiles(passes, calibrator, BAND_SHARES)
    if found is None or passes.given_variance is None:
        return None
    second, first = np.sort(passes.mean_logits[0])[-2:].tolist()
    spread = float(np.sqrt(passes.given_variance[0, 0]))
    return MarginBand(first - second, spread, BAND_SHARES, tuple(found[:, 0].tolist()))


def _calibration(passes: PassLogits, calibrator: LogitCalibrator | None) -> Callable[[Floats, Integers], Floats]:
    """Logits (some rows, classes) and the places of their rows -> probabilities, as each of these rows is calibrated.

    What counts of a row's variance depends on its mean logits, so it is found once for all of its passes.
    """
    if calibrator is None:
        return lambda logits, rows: softmax(logits)
    effective = calibrator.effective_variance(passes.mean_logits, passes.margin_variance)
    return lambda logits, rows: calibrator.probabilities_with(logits, None if effective is None else effective[rows])
