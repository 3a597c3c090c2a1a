"""What calibration is asked for, and what was learned from labelled texts: calibrator, rules, scope, figures.

A record is one frozen value for every kind of answers, stored by the codec beside the model. What the labels say
besides a rule is here too: metrics of a calibrator, and a comparison with plain temperature scaling.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self, TypedDict, cast

import numpy as np

from uatlite.classifier.predictions import CONFIDENCE, SHARE_FOUND, Predictions
from uatlite.classifier.runtime import Settings
from uatlite.codec import NOT_STORED, dump, load
from uatlite.errors import ConfigurationError, check_choice
from uatlite.metrics.accuracy import nll
from uatlite.metrics.intervals import Interval, Resampling, intervals, metric_estimates
from uatlite.metrics.rows import Rows
from uatlite.predictive import softmax
from uatlite.trust.all_texts import LabelledScores
from uatlite.trust.answers import AnswerCalibrator, EntityCalibrator
from uatlite.trust.calibrators import Calibrator, check_calibrator
from uatlite.trust.cost import SAVING, Costs
from uatlite.trust.distribution import LabelSets
from uatlite.trust.rule import Menu, Rule, Wanted
from uatlite.trust.scope import Scope
from uatlite.trust.shift import REFERENCE_ROWS, Share, ShiftReference, ShiftReport
from uatlite.values import Floats, Integers, check_share

AnyCalibrator = Calibrator | AnswerCalibrator | EntityCalibrator
"""What may calibrate a kind of answers; `AnswerKind.fit` says which does."""
_SHOWN = ("accuracy", "nll", "brier", "ece", "aurc")
"""The metrics of figures of one class a text."""
INTERVAL_CONFIDENCE = 0.95
"""Of their intervals."""


PROMISE_OPTIONS = ("target_risk", "target_errors", "review_share", "threshold", "target_recall")
_COMPLEMENTS = ("review_share", "target_recall")
"""Targets whose rule is about the rest: the share that is answered, or missed."""


class AskedOfAll(TypedDict, total=False):
    """What every `calibrate` may be asked for: texts, a report, and fields of `CalibrationOptions`, as all below."""

    reference: Iterable[Any] | None
    report: Callable[[int], None] | None
    confidence: float
    score: str | None
    second_look: str | None
    menu: bool
    false_alarm: float
    seed: int
    target_risk: float | None
    target_errors: float | None


class AskedOfClasses(AskedOfAll, total=False):
    """Of one class a text."""

    review_share: float | None
    threshold: float | None
    per_class: bool
    calibrator: str | None
    label_sets: float | None
    cost_wrong: float | None
    cost_review: float
    costs: Mapping[str, Mapping[str, float]] | None


class AskedOfEntities(AskedOfAll, total=False):
    """Of entities."""

    target_recall: float | None


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """What calibration is asked for; each product takes its own of them (see its `calibrate`)."""

    target_risk: float | None = None
    """at most this share of the answers, or of the reported labels or entities, is wrong"""
    target_errors: float | None = None
    """at most this share of all texts is answered wrongly; of several answers a text, the wrong ones a text"""
    review_share: float | None = None
    """at most this share of texts is left to a person"""
    threshold: float | None = None
    target_recall: float | None = None
    """at least this share of the gold entities is found in the texts that are answered"""
    cost_wrong: float | None = None
    """of a wrong answer; a text gets the answer or the review that is expected to cost least"""
    cost_review: float = 1.0
    costs: Mapping[str, Mapping[str, float]] | None = None
    """true class -> answer, or "review" -> cost, instead of one cost for all wrong answers"""
    confidence: float = 0.95
    per_class: bool = False
    """whether the target holds for each class, and not only for all together"""
    score: str | None = None
    """None: the raw score, which no label has fitted; or the confidence where a threshold is given"""
    calibrator: str | None = None
    """None: input-temperature where the method knows the variance of its margin, else temperature"""
    label_sets: float | None = None
    """the share of texts whose label set holds the true label"""
    second_look: str | None = None
    """a further method for the texts that are abstained on"""
    menu: bool = False
    """whether to list which risks can be promised"""
    false_alarm: float = 0.01
    """the share of texts in scope that may be called out of scope"""
    seed: int = 0

    def __post_init__(self) -> None:
        targets = [name for name in PROMISE_OPTIONS if getattr(self, name) is not None]
        for name in (*targets, "false_alarm", "confidence"):
            if name != "threshold":
                check_share(name, getattr(self, name))
        if self.calibrator is not None:
            check_calibrator(self.calibrator)
        if self.per_class and self.target_risk is None and self.target_errors is None:
            raise ConfigurationError("per_class=True is about a target; give one, as in target_risk=0.05.")
        thresholds = [name for name in targets if name != "target_recall"]
        thresholds += [name for name in ("cost_wrong", "costs") if getattr(self, name) is not None]
        if len(thresholds) > 1:
            given = " and ".join(thresholds)
            raise ConfigurationError(f"{given} were given together; there is one threshold, so choose one of them.")

    def wanted(self, said: type[Predictions], classes: tuple[str, ...]) -> tuple[Wanted, ...]:
        """What shall be promised: first about the answers, which may be nothing, then about the texts."""
        score = self.score or (said.ranked_by[0] if self.threshold is None else CONFIDENCE)
        check_choice("score", score, said.ranked_by)
        names = classes if self.per_class else None
        wanted = [Wanted(score=score, confidence=self.confidence, classes=names, seed=self.seed)]
        for name, kind in said.promises.items():
            if (target := getattr(self, name)) is not None:
                about = replace(wanted[0], kind=kind, target=1.0 - target if name in _COMPLEMENTS else target)
                if kind == "recall":
                    wanted.append(replace(about, score=SHARE_FOUND))
                else:
                    wanted[0] = about
        if self.costs is not None or self.cost_wrong is not None:
            same = Costs(wrong=self.cost_wrong or 0.0, review=self.cost_review)
            costs = same if self.costs is None else Costs.of(self.costs, classes)
            wanted[0] = replace(wanted[0], kind="cost", score=SAVING, costs=costs)
        return tuple(wanted)


def asked_by(said: type[Predictions], rule: Rule) -> tuple[str, float]:
    """The option that asks for a rule of the kind of answers, and its number."""
    name = next(name for name, kind in said.promises.items() if kind == rule.kind)
    assert rule.target is not None
    return name, 1.0 - rule.target if name in _COMPLEMENTS else rule.target


@dataclass(frozen=True)
class Figures:
    """Metrics of calibrated probabilities, and of the uncalibrated ones beside them."""

    basis: str
    """on which rows, in words"""
    rows: int
    calibrated: Mapping[str, Interval]
    uncalibrated: Mapping[str, Interval]

    def describe(self) -> list[str]:
        """The table for a person."""
        table = ("  ".join(cell.ljust(24) for cell in row).rstrip() for row in self.table())
        return [f"On {self.basis}:", *(f"  {row}" for row in table)]

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
        return f"{line} Temperature scaling is better here: take the method base, whose calibrator it is."


@dataclass(frozen=True)
class Evidence:
    """What the labels of calibration texts say besides a rule; None where there are too few, or nothing was asked."""

    figures: Figures | None = None
    comparison: MethodComparison | None = None
    label_sets: LabelSets | None = None


def measured_figures(logits: Floats, calibrated: Floats, labels: Integers, basis: str) -> Figures:
    """Figures of mean logits (rows, classes) and calibrated probabilities (rows, classes) on labels (rows,)."""
    before, after = (
        intervals(metric_estimates(Rows.of(probs, labels), _SHOWN), Resampling(confidence=INTERVAL_CONFIDENCE))
        for probs in (softmax(logits), calibrated)
    )
    return Figures(basis, len(labels), calibrated=after, uncalibrated=before)


def compare(chosen: Floats, scaled: Floats, labels: Integers) -> MethodComparison:
    """Held-out probabilities (rows, classes) of what was chosen against those of the plain model with a temperature."""
    ours, usual = (metric_estimates(Rows.of(probs, labels), ["nll"]) for probs in (chosen, scaled))
    difference = intervals(ours - usual, Resampling(confidence=INTERVAL_CONFIDENCE))["nll"]
    mean = nll(chosen, labels)
    return MethodComparison(len(labels), mean, mean - difference.point, difference)


@dataclass(frozen=True, eq=False)
class SecondLook:
    """The method of a second look at the texts that are abstained on, and the calibrator of what it says."""

    method: str
    """its spelling"""
    calibrator: AnyCalibrator
    rows: int
    """calibration texts that fitted the calibrator"""

    def describe(self) -> str:
        """What will be done, in one sentence."""
        return (
            f"Texts that are abstained on get a second look by {self.method} (calibrated on {self.rows} rows); it is "
            "reported beside the first one and answers none of them."
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """What was learned from labelled texts, and what it holds for: one model, one tokenizer, one method."""

    settings: Settings = field(default=cast(Settings, None), metadata=NOT_STORED)
    """stored beside it, as those of a product that is not calibrated"""
    model_hash: str
    classes: tuple[str, ...]
    """what the classes, labels or types of entities are called"""
    rows: int
    """texts that it was learned from"""
    calibrator: AnyCalibrator
    rules: tuple[Rule, ...] = ()
    """by which answers are reported and texts are abstained on; of entities there may be one more, of recall"""
    menu: Menu | None = None
    """what can be promised; None where it was not asked for, or the texts or their answers are too few"""
    instead: tuple[Rule, ...] = ()
    """what can be promised where the target cannot"""
    sample: LabelledScores | None = None
    """of one answer a text: the labelled rows that bound the risk at a threshold that they did not choose"""
    label_sets: LabelSets | None = None
    scope: Scope | None = None
    """None where the texts are too few"""
    shift: ShiftReference | None = None
    """None where the texts are too few"""
    figures: Figures | None = None
    """None where the texts are too few to measure a calibrator that was fitted on them"""
    comparison: MethodComparison | None = None
    """with plain temperature scaling; None where that was chosen, or where the texts are too few"""
    second_look: SecondLook | None = None
    """at the texts that are abstained on"""
    spending: tuple[str, ...] = ()
    """what the method learned, a sentence each"""
    ties: str = ""
    """what it means that the score of the rule has few values; nothing where it has many"""
    asked: Mapping[str, Any] | None = None
    """what `calibrate` was asked for, to ask for it again; None where an update has changed the target"""

    @property
    def rule(self) -> Rule | None:
        """The first of the rules: that by which answers are reported, where there is one."""
        return self.rules[0] if self.rules else None

    def judged(self, report: ShiftReport, over: str, texts: int, answers: int, wrong: float) -> ShiftReport:
        """The report on texts with what it means for their reported answers, whose chances of being wrong add up to
        `wrong`; `over` says what was looked at."""
        return replace(
            report,
            over=over,
            expected=Share.expected(wrong, answers),
            promised=None if self.rule is None else self.rule.allowed(texts, answers),
            referenced=self.scope is None or self.scope.reference_rows > 0,
        )

    def describe(self) -> list[str]:
        """What was learned and what is promised, a sentence each."""
        lines = list(self.spending)
        if isinstance(self.calibrator, Calibrator):
            lines.append(f"Calibrator {self.calibrator.name}")
        lines += [] if self.comparison is None else [self.comparison.describe()]
        lines += [rule.describe() for rule in self.rules]
        lines += [self.ties] if self.ties else []
        lines += [f"Instead they can promise: {rule.describe()}" for rule in self.instead]
        if self.label_sets is not None:
            low, high = self.label_sets.coverage_interval
            lines.append(
                f"Label sets hold the true label for {self.label_sets.coverage:.1%} of rows or more "
                f"({low:.1%} to {high:.1%}, {self.label_sets.rows} calibration rows)."
            )
        lines += [] if self.second_look is None else [self.second_look.describe()]
        lines += [] if self.scope is None else [self.scope.describe()]
        if self.shift is None:
            few = f"that takes {REFERENCE_ROWS} calibration rows, there were {self.rows}"
            return [*lines, f"A shift will not be noticed: {few}."]
        alarm = f"without a shift the alarm goes off in {self.shift.false_alarm:.1%} of runs or fewer"
        return [*lines, f"New rows are compared with the {self.rows} calibration rows; {alarm}."]

    def __repr__(self) -> str:
        sections = [section for section in (self, self.menu, self.figures) if section is not None]
        return "\n".join(line for section in sections for line in section.describe())

    def write(self, file: IO[bytes]) -> None:
        """All of it as one file of NumPy, for `read`."""
        arrays: dict[str, Any] = {}
        arrays["state"] = np.array(json.dumps([self.settings.to_dict(arrays), dump(self, arrays)]))
        np.savez(file, **arrays)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The inverse of `write`."""
        arrays = dict(np.load(path))
        settings, state = json.loads(str(arrays.pop("state")))
        calibration = load(cls, state, arrays, advice="calibrate again.")
        return replace(calibration, settings=Settings.from_dict(settings, arrays))
