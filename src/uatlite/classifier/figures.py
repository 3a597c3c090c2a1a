"""The figures of a classifier on labelled rows, with their intervals, and the sentence that says which rows."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.calibration import CALIBRATORS, Calibrator
from uatlite.calibration.auto import Auto, stratified_folds
from uatlite.metrics import Interval, bootstrap
from uatlite.predictive import Floats, softmax

SHOWN = ("accuracy", "nll", "brier", "ece", "aurc")
CONFIDENCE = 0.95
FOLDS = 5


@dataclass(frozen=True)
class Figures:
    """Metrics of calibrated probabilities, and of the plain softmax of the same mean logits beside them."""

    basis: str
    """on which rows, in words"""
    rows: int
    calibrated: Mapping[str, Interval]
    uncalibrated: Mapping[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Figures":
        """The figures that `to_dict` described."""
        both = {
            kind: {name: Interval(**interval) for name, interval in values[kind].items()}
            for kind in ("calibrated", "uncalibrated")
        }
        return cls(basis=str(values["basis"]), rows=int(values["rows"]), **both)

    def table(self) -> list[tuple[str, str, str]]:
        """A header and a line for each metric: its name, uncalibrated, calibrated; '0.883 (0.862 to 0.902)'."""
        lines = [(name, _spelt(self.uncalibrated[name]), _spelt(self.calibrated[name])) for name in self.calibrated]
        return [("metric", "uncalibrated", "calibrated"), *lines]


def measure(logits: Floats, calibrated: Floats, labels: NDArray[np.int64], basis: str) -> Figures:
    """Figures of mean logits (rows, classes) and calibrated probabilities (rows, classes) on labels (rows,)."""
    before, after = (
        bootstrap(probabilities, labels, metrics=SHOWN, confidence=CONFIDENCE)
        for probabilities in (softmax(logits), calibrated)
    )
    return Figures(basis, len(labels), calibrated=after, uncalibrated=before)


def cross_validated(
    calibrator: Calibrator, logits: Floats, labels: NDArray[np.int64], variance: Floats | None, seed: int
) -> Floats:
    """Probabilities (rows, classes) of each row by a calibrator of the same kind that was fitted without it."""
    kind = CALIBRATORS[(calibrator.chosen_ if isinstance(calibrator, Auto) else calibrator).name]
    folds = stratified_folds(labels, FOLDS, seed)
    result = np.empty_like(logits)
    for fold in range(FOLDS):
        out = folds == fold
        inside, outside = (None, None) if variance is None else (variance[~out], variance[out])
        result[out] = kind().fit(logits[~out], labels[~out], inside).probabilities(logits[out], outside)
    return result


def _spelt(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"
