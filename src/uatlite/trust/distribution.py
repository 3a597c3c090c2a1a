"""From the logits of every pass to calibrated probabilities, and from these to sets of labels.

This is the one place where a calibrator meets passes. The sets contain the true label at a stated rate: split conformal
prediction.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

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
from uatlite.values import Floats, Integers, Marks, check_labels, check_probabilities, check_share

BAND_SHARES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Quantiles of a `Band`."""


@dataclass(frozen=True)
class Band:
    """The label's probability where the margin is normal around its value."""

    # The service describes the fields by their docstrings.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"use_attribute_docstrings": True}

    margin: float
    """of the logits: the label's minus the next one's"""
    spread: float
    """the standard deviation of that margin"""
    shares: tuple[float, ...]
    """shares of the normal distribution, from low to high"""
    probabilities: tuple[float, ...]
    """the label's calibrated probability at these quantiles"""


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


def margin_band(passes: PassLogits, calibrator: LogitCalibrator | None) -> Band | None:
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
    return Band(first - second, spread, BAND_SHARES, chances)


def _calibration(passes: PassLogits, calibrator: LogitCalibrator | None) -> Callable[[Floats, Integers], Floats]:
    """Logits (some rows, classes) and the places of their rows -> probabilities, as each of these rows is calibrated.

    What counts of a row's variance depends on its mean logits, so it is found once for all of its passes.
    """
    if calibrator is None:
        return lambda logits, rows: softmax(logits)
    effective = calibrator.effective_variance(passes.mean_logits, passes.margin_variance)
    return lambda logits, rows: calibrator.probabilities_with(logits, None if effective is None else effective[rows])


def conformal_rank(share: float, rows: int) -> int:
    """ceil(share·(rows+1)): of `rows` exchangeable values and a new one, the new one is among this many smallest (or
    largest) with probability `share` or more. Above `rows` no value of the sample will do."""
    return math.ceil(share * (rows + 1) - 1e-9)  # 0.29·100 is 29 and not 28.999999999999996


@dataclass(frozen=True, kw_only=True)
class LabelSets:
    """Sets of labels that contain the true one with probability `coverage` or more, averaged over rows.

    A label is in the set where 1 - p is at most `threshold` (LAC, Sadinle et al., 2019: the smallest sets on average);
    +inf means all labels, because `rows` are too few for smaller sets. 95 % of calibration samples give a coverage
    within `coverage_interval` (a Beta law, exact without ties). A set may be empty: then no label conforms, and that is
    an abstention.
    """

    coverage: float
    threshold: float
    rows: int
    coverage_interval: tuple[float, float]

    def sets(self, probabilities: ArrayLike) -> Marks:
        """True where the label is in the row's set: probabilities (rows, classes) → (rows, classes)."""
        return np.asarray(1.0 - check_probabilities(probabilities) <= self.threshold)


def label_sets(probabilities: ArrayLike, labels: ArrayLike, coverage: float = 0.9) -> LabelSets:
    """Split conformal sets from calibration rows: probabilities (rows, classes) and labels (rows,).

    The threshold is the k-th smallest 1 - p of the true labels, k = ceil((rows+1)·coverage); +inf if k > rows. The rows
    must not be those that fitted the calibrator.
    """
    from scipy.stats import beta

    check_share("coverage", coverage)
    probs = check_probabilities(probabilities)
    y = check_labels(labels, rows=len(probs), classes=probs.shape[1])
    strange = 1.0 - np.take_along_axis(probs, y[:, None], axis=1)[:, 0]
    rank, rows = conformal_rank(coverage, len(strange)), len(strange)
    threshold, low, high = math.inf, 1.0, 1.0
    if rank <= rows:
        threshold = float(np.sort(strange)[rank - 1])
        low, high = beta.ppf([0.025, 0.975], rank, rows + 1 - rank).tolist()
    return LabelSets(coverage=coverage, threshold=threshold, rows=rows, coverage_interval=(low, high))
