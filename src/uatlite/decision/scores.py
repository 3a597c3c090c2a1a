"""What to abstain by: five ways to rank rows, each turned so that higher is more trustworthy."""

from collections.abc import Callable
from typing import Protocol

from uatlite.calibration.inputs import FloatArray
from uatlite.decision.inputs import check_scores
from uatlite.errors import check_choice


class Uncertainties(Protocol):
    """The figures of each row, (rows,) each, that a score may read; `Predictive` has them."""

    @property
    def confidence(self) -> FloatArray:
        """The probability of the predicted class."""
        ...

    @property
    def entropy(self) -> FloatArray:
        """The entropy of the predictive distribution."""
        ...

    @property
    def mutual_information(self) -> FloatArray:
        """What the passes disagree about."""
        ...

    @property
    def margin(self) -> FloatArray:
        """The largest minus the second largest probability."""
        ...

    @property
    def variance(self) -> FloatArray:
        """The variance that the method gives: over passes, or the analytic one."""
        ...


SCORES: dict[str, Callable[[Uncertainties], FloatArray]] = {
    "confidence": lambda row: row.confidence,
    "entropy": lambda row: -row.entropy,
    "mutual-information": lambda row: -row.mutual_information,
    "margin": lambda row: row.margin,
    "variance": lambda row: -row.variance,
}


def trust(name: str, uncertainties: Uncertainties) -> FloatArray:
    """The score `name` of each row, (rows,); higher is more trustworthy."""
    check_choice("score", name, SCORES)
    return check_scores(SCORES[name](uncertainties))
