"""What calibration texts say about a calibrator: metrics, and a comparison with plain temperature scaling."""

from collections.abc import Mapping
from dataclasses import dataclass

from uatlite.metrics.accuracy import nll
from uatlite.metrics.intervals import Interval, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.predictive import softmax
from uatlite.trust.distribution import LabelSets
from uatlite.values import Floats, Integers

_SHOWN = ("accuracy", "nll", "brier", "ece", "aurc")
"""The metrics of figures of one class a text."""
CONFIDENCE = 0.95
"""Of their intervals."""


@dataclass(frozen=True)
class Figures:
    """Metrics of calibrated probabilities, and of the uncalibrated ones beside them."""

    basis: str
    """on which rows, in words"""
    rows: int
    calibrated: Mapping[str, Interval]
    uncalibrated: Mapping[str, Interval]

    def table(self) -> list[tuple[str, str, str]]:
        """A header and a line for each metric: its name, uncalibrated, calibrated; '0.883 (0.862 to 0.902)'."""
        lines = [(name, _spelt(self.uncalibrated[name]), _spelt(self.calibrated[name])) for name in self.calibrated]
        return [("metric", "uncalibrated", "calibrated"), *lines]


def _spelt(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


@dataclass(frozen=True)
class MethodComparison:
    """The chosen method and calibrator against the plain model with temperature scaling, on the same rows.

    Both were fitted without the rows that they are compared on, fold by fold.
    """

    rows: int
    nll: float
    """of what was chosen"""
    plain_nll: float
    """of the plain model with temperature scaling"""
    difference: Interval
    """nll - plain_nll, with its paired interval"""

    @property
    def verdict(self) -> str:
        """'better', 'level' or 'worse', where chance is ruled out."""
        return "better" if self.difference.high < 0 else "worse" if self.difference.low > 0 else "level"

    def describe(self) -> str:
        """The result in a sentence or two."""
        gap = self.difference
        line = (
            f"Against plain temperature scaling: {self.verdict}. NLL {self.nll:.4f} and {self.plain_nll:.4f}, "
            f"difference {gap.point:+.4f} ({gap.low:+.4f} to {gap.high:+.4f}), cross-fitted on {self.rows} rows."
        )
        if self.verdict != "worse":
            return line
        return f"{line} Temperature scaling is better here: use method 'base' with calibrator 'temperature'."


@dataclass(frozen=True)
class Evidence:
    """What the labels of calibration texts say besides a rule; None where there are too few, or nothing was asked."""

    figures: Figures | None = None
    comparison: MethodComparison | None = None
    label_sets: LabelSets | None = None


def measured_figures(logits: Floats, calibrated: Floats, labels: Integers, basis: str) -> Figures:
    """Figures of mean logits (rows, classes) and calibrated probabilities (rows, classes) on labels (rows,)."""
    before, after = (
        intervals(metric_estimates(Rows.of(probs, labels), _SHOWN), Resampling(confidence=CONFIDENCE))
        for probs in (softmax(logits), calibrated)
    )
    return Figures(basis, len(labels), calibrated=after, uncalibrated=before)


def compare(chosen: Floats, scaled: Floats, labels: Integers) -> MethodComparison:
    """Held-out probabilities (rows, classes) of what was chosen against those of the plain model with a temperature."""
    ours, usual = (metric_estimates(Rows.of(probs, labels), ["nll"]) for probs in (chosen, scaled))
    difference = intervals(ours - usual, Resampling(confidence=CONFIDENCE))["nll"]
    mean = nll(chosen, labels)
    return MethodComparison(len(labels), mean, mean - difference.point, difference)
