"""Label sets that contain the true label at a stated rate: split conformal prediction."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from uatlite.values import Marks, check_labels, check_probabilities, check_share


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
    if rank > rows:
        return LabelSets(coverage=coverage, threshold=math.inf, rows=rows, coverage_interval=(1.0, 1.0))
    low, high = beta.ppf([0.025, 0.975], rank, rows + 1 - rank).tolist()
    threshold = float(np.sort(strange)[rank - 1])
    return LabelSets(coverage=coverage, threshold=threshold, rows=rows, coverage_interval=(low, high))
