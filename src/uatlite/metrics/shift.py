"""Calibration on an in-domain set and on a shifted one (DESIGN §4, the paper's two scores of robustness)."""

from numpy.typing import ArrayLike

from uatlite.metrics.calibration import ece
from uatlite.metrics.metric import Statistic
from uatlite.metrics.ranking import Floats
from uatlite.metrics.rows import Rows


def delta_ece(
    probabilities: ArrayLike, labels: ArrayLike, shifted_probabilities: ArrayLike, shifted_labels: ArrayLike
) -> float:
    """ΔECE = ECE(shifted) - ECE(in-domain); below 0 where the model is better calibrated under shift."""
    return ece(shifted_probabilities, shifted_labels) - ece(probabilities, labels)


def robustness_score(
    probabilities: ArrayLike, labels: ArrayLike, shifted_probabilities: ArrayLike, shifted_labels: ArrayLike
) -> float:
    """The mean of the two, (ECE(in-domain) + ECE(shifted)) / 2; lower is better."""
    return (ece(shifted_probabilities, shifted_labels) + ece(probabilities, labels)) / 2


def combine(in_domain: Rows, shifted: Rows, *, weights: tuple[float, float]) -> Statistic:
    """A weighted sum of both ECEs over counts (resamples, in-domain rows then shifted rows)."""
    first, second, split = ece.prepare(in_domain), ece.prepare(shifted), len(in_domain)

    def statistic(counts: Floats) -> Floats:
        return weights[0] * first(counts[:, :split]) + weights[1] * second(counts[:, split:])

    return statistic


SHIFT: dict[str, tuple[float, float]] = {"delta_ece": (-1.0, 1.0), "robustness_score": (0.5, 0.5)}
"""The weights of the in-domain and of the shifted ECE."""
