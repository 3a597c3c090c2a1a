"""Calibration on an in-domain set and on a shifted one: the paper's two scores of robustness."""

from numpy.typing import ArrayLike

from uatlite.metrics.calibration import ece
from uatlite.metrics.metric import Statistic, at_once
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows

SHIFT: dict[str, tuple[float, float]] = {"delta_ece": (-1.0, 1.0), "robustness_score": (0.5, 0.5)}
"""Each score as the weights of the in-domain and of the shifted ECE. Of both, less is better."""


def delta_ece(
    probabilities: ArrayLike, labels: ArrayLike, shifted_probabilities: ArrayLike, shifted_labels: ArrayLike
) -> float:
    """ΔECE = ECE(shifted) - ECE(in-domain); below 0 where the model is better calibrated under shift."""
    in_domain, shifted = Rows.of(probabilities, labels), Rows.of(shifted_probabilities, shifted_labels)
    return at_once(combine(in_domain, shifted, SHIFT["delta_ece"]), len(in_domain) + len(shifted))


def robustness_score(
    probabilities: ArrayLike, labels: ArrayLike, shifted_probabilities: ArrayLike, shifted_labels: ArrayLike
) -> float:
    """The mean of both, (ECE(in-domain) + ECE(shifted)) / 2."""
    in_domain, shifted = Rows.of(probabilities, labels), Rows.of(shifted_probabilities, shifted_labels)
    return at_once(combine(in_domain, shifted, SHIFT["robustness_score"]), len(in_domain) + len(shifted))


def combine(in_domain: Rows, shifted: Rows, weights: tuple[float, float]) -> Statistic:
    """A weighted sum of both ECEs over counts (resamples, in-domain rows then shifted rows)."""
    first, second, split = ece.prepare(in_domain), ece.prepare(shifted), len(in_domain)

    def statistic(counts: Floats) -> Floats:
        return weights[0] * first(counts[:, :split]) + weights[1] * second(counts[:, split:])

    return statistic
