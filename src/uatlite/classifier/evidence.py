"""What calibration rows say: the record that is stored, metrics, a comparison with temperature scaling."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.settings import Settings
from uatlite.codec import dump
from uatlite.errors import CalibrationError
from uatlite.methods.registry import learned_arrays
from uatlite.metrics.accuracy import nll
from uatlite.metrics.intervals import Interval, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.predictive import PassLogits, softmax
from uatlite.trust.calibrators import Calibrator, Temperature, held_out, stratified_folds
from uatlite.trust.scope import Scope
from uatlite.trust.shift import REFERENCE_ROWS, ShiftReference
from uatlite.values import Floats

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
        intervals(metric_estimates(Rows.of(probabilities, labels), SHOWN), Resampling(confidence=CONFIDENCE))
        for probabilities in (softmax(logits), calibrated)
    )
    return Figures(basis, len(labels), calibrated=after, uncalibrated=before)


def cross_validated(
    kind: type[Calibrator], logits: Floats, labels: NDArray[np.int64], variance: Floats | None, seed: int
) -> Floats:
    """Probabilities (rows, classes) of each row by a calibrator of this kind that was fitted without it."""
    return held_out(kind.fit, logits, labels, variance, stratified_folds(labels, FOLDS, seed))


def _spelt(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationRecord:
    """What was learned from labelled rows, and what it holds for: one model, one tokenizer, one method."""

    settings: Settings
    model_hash: str
    classes: tuple[str, ...]
    """what the classes, labels or types of entities are called"""
    rows: int
    calibrator: Any
    rule: Any
    shift: ShiftReference | None
    scope: Scope | None = None
    """None where the rows are too few"""
    figures: Figures | None = None
    """None where the rows are too few to measure a calibrator that was fitted on them"""
    spending: tuple[str, ...] = ()
    """what the method learned, a sentence each"""

    @property
    def rules(self) -> tuple[Any, ...]:
        """The rules by which texts are abstained on."""
        return () if self.rule is None else (self.rule,)

    def describe(self) -> list[str]:
        """What was learned and what is promised, a sentence each."""
        lines = [*self.spending, *self._promises()]
        if self.scope is not None:
            lines.append(self.scope.describe())
        if self.shift is None:
            lines.append(
                f"A shift will not be noticed: that takes {REFERENCE_ROWS} calibration rows, there were {self.rows}."
            )
        else:
            lines.append(
                f"New rows are compared with the {self.rows} calibration rows; without a shift the alarm goes off in "
                f"{self.shift.false_alarm:.1%} of runs or fewer."
            )
        return lines

    def _promises(self) -> list[str]:
        return [] if self.rule is None else [self.rule.describe()]

    def to_dict(self) -> dict[str, Any]:
        """All but the arrays, as plain JSON values."""
        parts: dict[str, Any] = {"shift": self.shift, "scope": self.scope, "figures": self.figures}
        return {
            "model_hash": self.model_hash,
            "settings": self.settings.to_dict(),
            "classes": list(self.classes),
            "rows": self.rows,
            "calibrator": dump(self.calibrator),
            "rule": dump(self.rule),
            **{name: None if value is None else value.to_dict() for name, value in parts.items()},
            "spending": list(self.spending),
        }

    def to_arrays(self) -> dict[str, Floats]:
        """The arrays of the method, the scope and the summary of calibration rows, by name."""
        shift = {} if self.shift is None else self.shift.to_arrays()
        scope = {} if self.scope is None else self.scope.to_arrays()
        return {**learned_arrays(self.settings.method), **scope, **shift}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], arrays: dict[str, Floats]) -> Self:
        """The calibration that `to_dict` and `to_arrays` described."""
        try:
            return cls(
                settings=Settings.from_dict(state["settings"], arrays),
                model_hash=str(state["model_hash"]),
                classes=tuple(state["classes"]),
                rows=int(state["rows"]),
                shift=ShiftReference.from_arrays(state["shift"], arrays) if state["shift"] else None,
                scope=Scope.from_arrays(state["scope"], arrays) if state.get("scope") else None,
                figures=Figures.from_dict(state["figures"]) if state["figures"] else None,
                spending=tuple(state.get("spending", ())),
                **cls._own(state, arrays),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"the stored calibration is broken ({error!r}); calibrate again.") from error

    @classmethod
    def _own(cls, state: Mapping[str, Any], arrays: dict[str, Floats]) -> dict[str, Any]:
        """The stored calibrator, rule and further fields of a product, by name."""
        raise NotImplementedError


@dataclass(frozen=True)
class Comparison:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Comparison":
        """The comparison that `to_dict` described."""
        return cls(**{**values, "difference": Interval(**values["difference"])})


def compare(
    calibrator: Calibrator, outputs: PassLogits, plain: PassLogits, labels: NDArray[np.int64], seed: int
) -> Comparison:
    """The method's outputs under a calibrator of this kind against the plain pass's with a temperature; labels (rows,).

    The variance of `outputs` is already that of a method which did not learn from the row.
    """
    chosen = cross_validated(type(calibrator), outputs.mean_logits, labels, outputs.margin_variance, seed)
    scaled = cross_validated(Temperature, plain.mean_logits, labels, None, seed)
    losses, usual = (metric_estimates(Rows.of(values, labels), ["nll"]) for values in (chosen, scaled))
    difference = intervals(losses - usual, Resampling(confidence=CONFIDENCE))["nll"]
    mean = nll(chosen, labels)
    return Comparison(len(labels), mean, mean - difference.point, difference)
