"""From labelled rows to a calibrator, an abstention rule, label sets, a scope and a reference to tell a shift by.

A promise about new rows must not rest on rows that fitted what it is about. The raw score, the margin of the logits, is
fitted on no row, and no calibrator changes a prediction, so by default all rows fit the calibrator and all decide the
rule. Another score and label sets need rows of their own: there a third of them fits and the others decide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.evidence import (
    CalibrationRecord,
    Comparison,
    Figures,
    compare,
    cross_validated,
    measure,
)
from uatlite.classifier.learn import Learned
from uatlite.classifier.second_look import SecondLook
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, ConfigurationError, check_choice
from uatlite.methods.method import Method
from uatlite.predictive import PassLogits, Predictive
from uatlite.trust.calibrators import CALIBRATORS, Calibrator, Temperature, check_calibrator
from uatlite.trust.distribution import predictive
from uatlite.trust.label_sets import LabelSets, label_sets
from uatlite.trust.promise import FITTING_SHARE, Labelled, Wanted, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE, SCORES, Menu, Rule, RuleKind, trust
from uatlite.trust.scope import Scope, fit_scope
from uatlite.trust.shift import REFERENCE_ROWS, ShiftReference, Usual, summarise
from uatlite.values import Floats, check_share


@dataclass(frozen=True)
class CalibrationOptions:
    """What calibration is asked for; at most one of the three ways to a threshold."""

    calibrator: str | None = None
    """None: input-temperature where the method knows the variance of its margin, else temperature"""
    score: str | None = None
    """None: the raw score, or the confidence where a threshold is given"""
    target_risk: float | None = None
    target_coverage: float | None = None
    threshold: float | None = None
    confidence: float = 0.95
    label_sets: float | None = None
    per_class: bool = False
    """whether a target risk holds among the answers of each class, and not only among all"""
    false_alarm: float = 0.01
    """the share of texts in scope that may be called out of scope"""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.score is not None:
            check_choice("score", self.score, SCORES)
        if self.calibrator is not None:
            check_calibrator(self.calibrator)
        check_share("false_alarm", self.false_alarm)
        if self.per_class and self.target_risk is None:
            raise ConfigurationError("per_class=True is about a target risk; give one, as in target_risk=0.05.")
        if len(self._targets) > 1:
            given = " and ".join(self._targets)
            raise ConfigurationError(f"{given} were given together; there is one threshold, so choose one of them.")

    @property
    def _targets(self) -> dict[str, float]:
        names = ("target_risk", "target_coverage", "threshold")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def wanted(self, classes: tuple[str, ...]) -> Wanted:
        """What shall be promised, for classes of these names."""
        rule, names = self.rule, classes if self.per_class else None
        common = Wanted(score=self.rule_score, confidence=self.confidence, classes=names, seed=self.seed)
        return common if rule is None else replace(common, kind=rule[0], target=rule[1])

    @property
    def rule(self) -> tuple[RuleKind, float] | None:
        """The kind of the rule and its target, where one is asked for."""
        kinds: dict[str, RuleKind] = {
            "target_risk": "risk", "target_coverage": "coverage", "threshold": "threshold"
        }  # fmt: skip
        return next(((kinds[name], target) for name, target in self._targets.items()), None)

    @property
    def rule_score(self) -> str:
        """The score that ranks rows for the rule and the shift check."""
        if self.score is not None:
            return self.score
        return "confidence" if self.threshold is not None else RAW_SCORE

    def calibrator_of(self, method: Method) -> str:
        """The name of the calibrator for the outputs of a method."""
        if self.calibrator is not None:
            return self.calibrator
        return "input-temperature" if method.knows_variance else "temperature"


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration(CalibrationRecord):
    """What a classifier learned from labelled rows."""

    calibrator: Calibrator
    rule: Rule | None
    label_sets: LabelSets | None
    menu: Menu | None = None
    """which risks can be promised; None where the rows are too few"""
    comparison: Comparison | None = None
    """with plain temperature scaling; None where that was chosen, or where the rows are too few"""
    second_look: SecondLook | None = None
    """at the texts that are abstained on"""

    def _promises(self) -> list[str]:
        lines = [f"Calibrator {self.calibrator.name}"]
        if self.comparison is not None:
            lines.append(self.comparison.describe())
        lines += super()._promises()
        if self.label_sets is not None:
            low, high = self.label_sets.coverage_interval
            lines.append(
                f"Label sets hold the true label for {self.label_sets.coverage:.1%} of rows or more "
                f"({low:.1%} to {high:.1%}, {self.label_sets.rows} calibration rows)."
            )
        return lines if self.second_look is None else [*lines, self.second_look.describe()]

    def to_dict(self) -> dict[str, Any]:
        own: dict[str, Any] = {"comparison": self.comparison, "second_look": self.second_look}
        parts = {name: None if value is None else value.to_dict() for name, value in own.items()}
        parts |= {"label_sets": dump(self.label_sets), "menu": dump(self.menu)}
        return super().to_dict() | {"calibrator": dump(self.calibrator, kind=Calibrator)} | parts

    @classmethod
    def _own(cls, state: Mapping[str, Any], arrays: dict[str, Floats]) -> dict[str, Any]:
        return {
            "calibrator": load(Calibrator, state["calibrator"], advice="calibrate again."),
            "rule": load(Rule | None, state["rule"], advice="calibrate again."),
            "label_sets": load(LabelSets | None, state["label_sets"], advice="calibrate again."),
            "menu": load(Menu | None, state.get("menu"), advice="calibrate again."),
            "comparison": Comparison.from_dict(state["comparison"]) if state.get("comparison") else None,
            "second_look": SecondLook.from_dict(state["second_look"]) if state.get("second_look") else None,
        }


def calibrate(
    learned: Learned,
    labels: NDArray[np.int64],
    options: CalibrationOptions,
    *,
    model_hash: str,
    classes: tuple[str, ...],
) -> Calibration:
    """Learn from the outputs for labelled rows; labels (rows,)."""
    outputs = learned.outputs
    name = options.calibrator_of(learned.settings.method)
    fitting, deciding = split(labels, options, name, learns=learned.learns)
    calibrator = _fit(name, outputs, labels, fitting)
    found = predictive(outputs, calibrator)
    scope = _scope(learned, options)
    inside = scope.inside if scope is not None and scope.inside is not None else np.ones(len(labels), dtype=np.bool_)
    # Rows that fitted the calibrator do not decide, but they may say where the search starts.
    decision = decide(
        Labelled(
            {score: trust(score, found) for score in (RAW_SCORE, options.rule_score)},
            found.predicted != labels,
            kind=found.predicted,
        ),
        options.wanted(classes),
        inside=inside,
        fitting=None if (fitting & deciding).any() else fitting,
        menu=True,
    )
    rule = decision.rule
    return Calibration(
        settings=learned.settings,
        model_hash=model_hash,
        classes=classes,
        rows=len(labels),
        calibrator=calibrator,
        rule=rule,
        label_sets=(
            None
            if options.label_sets is None
            else label_sets(found.probabilities[deciding], labels[deciding], options.label_sets)
        ),
        # The comparison of scores and representations uses no label, so all rows may take part.
        shift=_shift(found, rule, inside, options, classes) if len(labels) >= REFERENCE_ROWS else None,
        figures=_figures(outputs, found, calibrator, labels, fitting, deciding, options.seed),
        spending=learned.spending,
        scope=scope,
        menu=decision.menu,
        comparison=_comparison(learned, calibrator, labels, options.seed),
    )


def split(
    labels: NDArray[np.int64], options: CalibrationOptions, calibrator: str, *, learns: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows fit the calibrator of this name and which decide: (rows,) each, the same where nothing is fitted."""
    everything = np.ones(len(labels), dtype=np.bool_)
    decides = options.rule is not None or options.label_sets is not None
    raw = options.label_sets is None and options.rule_score == RAW_SCORE
    if not decides or raw or (calibrator == "none" and not learns):
        return everything, everything
    fitting = fitting_rows(len(labels), options.seed)
    return fitting, ~fitting


def _fit(name: str, outputs: PassLogits, labels: NDArray[np.int64], fitting: NDArray[np.bool_]) -> Calibrator:
    try:
        some = outputs.take(fitting)
        return CALIBRATORS[name].fit(some.mean_logits, labels[fitting], some.margin_variance)
    except CalibrationError as error:
        if fitting.all():
            raise
        share = f"of {len(labels)} rows one in {FITTING_SHARE} fits the calibrator, the others decide"
        raise CalibrationError(f"{share}: {error}") from error


def _shift(
    found: Predictive,
    rule: Rule | None,
    inside: NDArray[np.bool_],
    options: CalibrationOptions,
    classes: tuple[str, ...],
) -> ShiftReference:
    answers = None if rule is None else rule.reports(trust(rule.score, found), kind=found.predicted) & inside
    usual = Usual.of(found.confidence, found.predicted, answers, classes)
    scores, name = trust(options.rule_score, found), options.rule_score
    return summarise(scores, score=name, false_alarm=options.false_alarm, usual=usual)


def _scope(learned: Learned, options: CalibrationOptions) -> Scope | None:
    outputs = learned.outputs
    if outputs.logits.shape[1] < REFERENCE_ROWS:
        return None
    return fit_scope(learned.reference, outputs.representations, outputs.mean_logits, false_alarm=options.false_alarm)


def _figures(
    outputs: PassLogits,
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
        held_out = cross_validated(type(calibrator), logits, labels, outputs.margin_variance, seed)
    except CalibrationError:  # enough rows for the calibrator, too few without a fifth of them
        return None
    return measure(logits, held_out, labels, f"calibration data: {len(labels)} rows, cross-validated")


def _comparison(learned: Learned, calibrator: Calibrator, labels: NDArray[np.int64], seed: int) -> Comparison | None:
    if learned.outputs is learned.plain and calibrator.name == Temperature.name:
        return None
    try:
        return compare(calibrator, learned.outputs, learned.plain, labels, seed)
    except CalibrationError:  # too few rows without a fifth of them
        return None
