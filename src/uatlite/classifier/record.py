"""What was learned from labelled texts: a calibrator, rules, a scope, what a shift is told by, and figures.

A record is one frozen value for every kind of answers, stored by the codec beside the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from uatlite.classifier.entities import EntityCalibrator
from uatlite.classifier.evidence import Figures, MethodComparison
from uatlite.classifier.settings import Settings
from uatlite.codec import NOT_STORED, Arrays, dump, load
from uatlite.trust.answers import AnswerCalibrator
from uatlite.trust.calibrators import Identity, InputTemperature, Temperature
from uatlite.trust.distribution import LabelSets
from uatlite.trust.rule import Menu, Rule
from uatlite.trust.scope import Scope
from uatlite.trust.shift import REFERENCE_ROWS, ShiftReference

LogitCalibrators = Identity | Temperature | InputTemperature
AnyCalibrator = Identity | Temperature | InputTemperature | AnswerCalibrator | EntityCalibrator
"""What may calibrate a kind of answers; `AnswerKind.fit` says which does."""
AGAIN = "calibrate again."


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
    """which risks can be promised; None where it was not asked for, or the texts or their answers are too few"""
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

    @property
    def rule(self) -> Rule | None:
        """The first of the rules: that by which answers are reported, where there is one."""
        return self.rules[0] if self.rules else None

    def describe(self) -> list[str]:
        """What was learned and what is promised, a sentence each."""
        lines = list(self.spending)
        if isinstance(self.calibrator, LogitCalibrators):
            lines.append(f"Calibrator {self.calibrator.name}")
        lines += [] if self.comparison is None else [self.comparison.describe()]
        lines += [rule.describe() for rule in self.rules]
        if self.label_sets is not None:
            low, high = self.label_sets.coverage_interval
            lines.append(
                f"Label sets hold the true label for {self.label_sets.coverage:.1%} of rows or more "
                f"({low:.1%} to {high:.1%}, {self.label_sets.rows} calibration rows)."
            )
        lines += [] if self.second_look is None else [self.second_look.describe()]
        lines += [] if self.scope is None else [self.scope.describe()]
        if self.shift is None:
            return [
                *lines,
                f"A shift will not be noticed: that takes {REFERENCE_ROWS} calibration rows, there were {self.rows}.",
            ]
        return [
            *lines,
            f"New rows are compared with the {self.rows} calibration rows; without a shift the alarm goes off in "
            f"{self.shift.false_alarm:.1%} of runs or fewer.",
        ]

    def to_dict(self, arrays: Arrays | None = None) -> dict[str, Any]:
        """All but the settings, as plain JSON values; its arrays go into `arrays`."""
        state: dict[str, Any] = dump(self, {} if arrays is None else arrays)
        return state

    @classmethod
    def from_dict(cls, state: Any, arrays: Mapping[str, Any], settings: Settings) -> Self:
        """The calibration that `to_dict` described, under these settings."""
        return replace(load(cls, state, arrays, advice=AGAIN), settings=settings)
