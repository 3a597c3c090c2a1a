"""From labelled rows to a calibrator, an abstention rule, label sets and a reference to tell a shift by.

A promise about new rows must not rest on rows that fitted what it is about. So where a rule or label sets are asked
for, a third of the rows fits the calibrator and the others decide; otherwise all rows fit the calibrator.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.run import Outputs
from uatlite.classifier.settings import Settings
from uatlite.errors import CalibrationError, ConfigurationError, check_choice
from uatlite.metrics.bootstrap import Interval, bootstrap
from uatlite.predictive import Predictive, softmax
from uatlite.trust.auto import CALIBRATORS, Auto, calibrator_from_dict, held_out, stratified_folds
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import fit_calibrator, predictive
from uatlite.trust.label_sets import LabelSets, label_sets
from uatlite.trust.promise import FITTING_SHARE, RULES, fitting_rows
from uatlite.trust.rule import SCORES, AbstentionRule, trust
from uatlite.trust.shift import REFERENCE_ROWS, ShiftReference, summarise
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
        bootstrap(probabilities, labels, metrics=SHOWN, confidence=CONFIDENCE)
        for probabilities in (softmax(logits), calibrated)
    )
    return Figures(basis, len(labels), calibrated=after, uncalibrated=before)


def cross_validated(
    calibrator: Calibrator, logits: Floats, labels: NDArray[np.int64], variance: Floats | None, seed: int
) -> Floats:
    """Probabilities (rows, classes) of each row by a calibrator of the same kind that was fitted without it."""
    kind = CALIBRATORS[(calibrator.chosen_ if isinstance(calibrator, Auto) else calibrator).name]
    return held_out(kind, logits, labels, variance, stratified_folds(labels, FOLDS, seed))


def _spelt(interval: Interval) -> str:
    return f"{interval.point:.3f} ({interval.low:.3f} to {interval.high:.3f})"


@dataclass(frozen=True)
class CalibrationOptions:
    """What calibration is asked for; at most one of the three ways to a threshold."""

    calibrator: str = "auto"
    score: str = "confidence"
    target_risk: float | None = None
    target_coverage: float | None = None
    threshold: float | None = None
    confidence: float = 0.95
    label_sets: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("score", self.score, SCORES)
        if len(self._targets) > 1:
            given = " and ".join(self._targets)
            raise ConfigurationError(f"{given} were given together; there is one threshold, so choose one of them.")

    @property
    def _targets(self) -> dict[str, float]:
        names = {"target_risk": "risk", "target_coverage": "coverage", "threshold": "threshold"}
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def rule(self) -> tuple[str, float] | None:
        """The key in `RULES` and the target, where a rule is asked for."""
        for name, target in self._targets.items():
            return name.removeprefix("target_"), target
        return None


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was learned from labelled rows, and what it holds for: one model, one tokenizer, one method."""

    settings: Settings
    model_hash: str
    classes: tuple[str, ...]
    rows: int
    calibrator: Calibrator
    rule: AbstentionRule | None
    label_sets: LabelSets | None
    shift: ShiftReference | None
    figures: Figures | None
    """None where the rows are too few to measure a calibrator that was fitted on them"""
    spending: tuple[str, ...] = ()
    """what was learned about where to spend passes, a sentence each"""

    def describe(self) -> list[str]:
        """What was learned and what is promised, a sentence each."""
        chosen = self.calibrator
        lines = [*self.spending, f"Calibrator {chosen.reason_ if isinstance(chosen, Auto) else chosen.name}"]
        if self.rule is not None:
            lines.append(self.rule.describe())
        if self.label_sets is not None:
            low, high = self.label_sets.coverage_interval
            lines.append(
                f"Label sets hold the true label for {self.label_sets.coverage:.1%} of rows or more "
                f"({low:.1%} to {high:.1%}, {self.label_sets.rows} calibration rows)."
            )
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

    def to_dict(self) -> dict[str, Any]:
        """All but the arrays, as plain JSON values."""
        return {
            "model_hash": self.model_hash,
            "settings": self.settings.to_dict(),
            "classes": list(self.classes),
            "rows": self.rows,
            "calibrator": self.calibrator.to_dict(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "label_sets": None if self.label_sets is None else self.label_sets.to_dict(),
            "shift": None if self.shift is None else self.shift.to_dict(),
            "figures": None if self.figures is None else self.figures.to_dict(),
            "spending": list(self.spending),
        }

    def to_arrays(self) -> dict[str, Floats]:
        """The arrays of the summary of calibration rows, by name; empty where there is none."""
        return {} if self.shift is None else self.shift.to_arrays()

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], arrays: dict[str, Floats]) -> "Calibration":
        """The calibration that `to_dict` and `to_arrays` described."""
        try:
            return cls(
                settings=Settings.from_dict(state["settings"]),
                model_hash=str(state["model_hash"]),
                classes=tuple(state["classes"]),
                rows=int(state["rows"]),
                calibrator=calibrator_from_dict(state["calibrator"]),
                rule=AbstentionRule.from_dict(state["rule"]) if state["rule"] else None,
                label_sets=LabelSets.from_dict(state["label_sets"]) if state["label_sets"] else None,
                shift=ShiftReference.from_arrays(state["shift"], arrays) if state["shift"] else None,
                figures=Figures.from_dict(state["figures"]) if state["figures"] else None,
                spending=tuple(state.get("spending", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"the stored calibration is broken ({error!r}); calibrate again.") from error


def calibrate(
    outputs: Outputs,
    labels: NDArray[np.int64],
    options: CalibrationOptions,
    *,
    settings: Settings,
    model_hash: str,
    classes: tuple[str, ...],
    spending: tuple[str, ...] = (),
) -> Calibration:
    """Learn from the outputs for labelled rows; labels (rows,)."""
    fitting, deciding = split(labels, options, tunes=bool(spending))
    calibrator = _fit(outputs, labels, fitting, options)
    found = predictive(outputs, calibrator)
    scores = trust(options.score, found)
    errors = found.predicted != labels
    return Calibration(
        settings=settings,
        model_hash=model_hash,
        classes=classes,
        rows=len(labels),
        calibrator=calibrator,
        rule=_rule(scores, errors, fitting, deciding, options),
        label_sets=(
            None
            if options.label_sets is None
            else label_sets(found.probabilities[deciding], labels[deciding], options.label_sets)
        ),
        # The comparison of scores and representations uses no label, so all rows may take part.
        shift=summarise(scores, outputs.representations, score=options.score)
        if len(labels) >= REFERENCE_ROWS
        else None,
        figures=_figures(outputs, found, calibrator, labels, fitting, deciding, options.seed),
        spending=spending,
    )


def split(
    labels: NDArray[np.int64], options: CalibrationOptions, *, tunes: bool = False
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows fit the calibrator and which decide: (rows,) each, disjoint unless nothing is to be decided.

    `tunes` says that the method learns from the rows that fit, too.
    """
    everything = np.ones(len(labels), dtype=np.bool_)
    if options.rule is None and options.label_sets is None:
        return everything, everything
    if options.calibrator == "none" and not tunes:  # nothing is fitted, so every row may decide
        return ~everything, everything
    fitting = fitting_rows(len(labels), options.seed)
    return fitting, ~fitting


def _fit(
    outputs: Outputs, labels: NDArray[np.int64], fitting: NDArray[np.bool_], options: CalibrationOptions
) -> Calibrator:
    used = fitting if fitting.any() else np.ones_like(fitting)
    try:
        return fit_calibrator(options.calibrator, outputs, labels, used)
    except CalibrationError as error:
        if used.all():
            raise
        share = f"of {len(labels)} rows one in {FITTING_SHARE} fits the calibrator, the others decide"
        raise CalibrationError(f"{share}: {error}") from error


def _rule(
    scores: Floats,
    errors: NDArray[np.bool_],
    fitting: NDArray[np.bool_],
    deciding: NDArray[np.bool_],
    options: CalibrationOptions,
) -> AbstentionRule | None:
    if options.rule is None:
        return None
    kind, target = options.rule
    arguments: dict[str, Any] = {"score": options.score, "confidence": options.confidence}
    if kind == "risk":  # the search must not begin where these very rows say
        arguments |= {"reference": scores[fitting] if fitting.any() else None, "seed": options.seed}
    return RULES[kind](scores[deciding], errors[deciding], target, **arguments)


def boundary_of(options: CalibrationOptions) -> Callable[[Floats, NDArray[np.bool_]], float] | None:
    """Where answers begin, from confidences and errors (rows,); None where one does not abstain by confidence."""
    if options.rule is None or options.score != "confidence":
        return None
    kind, target = options.rule

    def threshold(confidences: Floats, errors: NDArray[np.bool_]) -> float:
        return RULES[kind](confidences, errors, target, score=options.score, confidence=options.confidence).threshold

    return threshold


def _figures(
    outputs: Outputs,
    found: Predictive,
    calibrator: Calibrator,
    labels: NDArray[np.int64],
    fitting: NDArray[np.bool_],
    deciding: NDArray[np.bool_],
    seed: int,
) -> Figures | None:
    logits = outputs.mean_logits
    if not (fitting & deciding).any():
        basis = f"calibration data: {int(deciding.sum())} rows that did not fit the calibrator"
        return measure(logits[deciding], found.probabilities[deciding], labels[deciding], basis)
    try:
        held_out = cross_validated(calibrator, logits, labels, outputs.margin_variance, seed)
    except CalibrationError:  # enough rows for the calibrator, too few without a fifth of them
        return None
    return measure(logits, held_out, labels, f"calibration data: {len(labels)} rows, cross-validated")
