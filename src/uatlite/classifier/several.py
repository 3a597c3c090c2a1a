"""What products of several answers a text share: from answers that are right or wrong to a calibrator and a promise.

An answer is one label of a text, or one entity. Texts are the unit of everything that is promised: a text fits, or
decides, with all of its answers.

The raw score, the log-odds that the model gives, is fitted on no row, so that all texts decide; with the score
`confidence` a third of the texts fits the calibrator and the others decide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.entities import EntityCalibrator
from uatlite.classifier.evidence import CalibrationRecord
from uatlite.classifier.learn import Learned
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.codec import dump, load
from uatlite.errors import ConfigurationError, check_choice
from uatlite.trust.answers import AnswerCalibrator, Answers
from uatlite.trust.promise import Labelled, Wanted, decide, fitting_rows
from uatlite.trust.rule import Menu, Rule
from uatlite.trust.scope import Scope, fit_scope
from uatlite.trust.shift import REFERENCE_ROWS, ShiftReference, summarise
from uatlite.values import Floats, Integers, check_share

CONFIDENCE = "confidence"
ANSWER_SCORES = (LOG_ODDS, CONFIDENCE)
TOP_LOG_ODDS = "log_odds"
"""The score of a text that a shift is told by: the highest log-odds of an answer."""


@dataclass(frozen=True)
class AnswerOptions:
    """What calibration is asked for; at most one of the two promises."""

    target_precision: float | None = None
    """at least this share of the reported answers is right"""
    target_wrong: float | None = None
    """at most so many wrong answers are reported a text, on average; 0.1 is one in ten texts"""
    confidence: float = 0.95
    score: str = LOG_ODDS
    false_alarm: float = 0.01
    seed: int = 0
    menu: bool = False
    """whether to list which shares of wrong answers can be promised"""

    def __post_init__(self) -> None:
        check_choice("score", self.score, ANSWER_SCORES)
        check_share("false_alarm", self.false_alarm)
        check_share("confidence", self.confidence)
        if self.target_precision is not None:
            check_share("target_precision", self.target_precision)
        if self.target_wrong is not None:
            check_share("target_wrong", self.target_wrong)
        if self.target_precision is not None and self.target_wrong is not None:
            raise ConfigurationError(
                "target_precision and target_wrong were given together; there is one threshold, so choose one of them."
            )

    @property
    def wanted(self) -> Wanted:
        """What shall be promised."""
        common = Wanted(score=self.score, confidence=self.confidence, seed=self.seed)
        if self.target_precision is not None:
            return replace(common, kind="precision", target=1.0 - self.target_precision)
        return common if self.target_wrong is None else replace(common, kind="per-text", target=self.target_wrong)


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerCalibration(CalibrationRecord):
    """What a product of several answers a text learned; its rows are texts."""

    label_sets: ClassVar[None] = None
    second_look: ClassVar[None] = None
    calibrator: AnswerCalibrator | EntityCalibrator
    rule: Rule | None
    menu: Menu | None = None
    """None where it was not asked for, or the texts or their answers are too few"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """what else the product needs, as plain JSON values"""

    @property
    def rules(self) -> tuple[Rule, ...]:
        recall = load(Rule | None, self.extra.get("recall"), advice="calibrate again.")
        return super().rules if recall is None else (*super().rules, recall)

    def _promises(self) -> list[str]:
        return [rule.describe() for rule in self.rules]

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "calibrator": dump(self.calibrator, kind=AnswerCalibrator | EntityCalibrator),
            "menu": dump(self.menu),
            "extra": dict(self.extra),
        }

    @classmethod
    def _own(cls, state: Mapping[str, Any], arrays: dict[str, Floats]) -> dict[str, Any]:
        return {
            "calibrator": load(AnswerCalibrator | EntityCalibrator, state["calibrator"], advice="calibrate again."),
            "rule": load(Rule | None, state["rule"], advice="calibrate again."),
            "menu": load(Menu | None, state.get("menu"), advice="calibrate again."),
            "extra": state["extra"],
        }


def calibrate_answers(
    learned: Learned,
    answers: Answers,
    right: NDArray[np.bool_],
    options: AnswerOptions,
    *,
    model_hash: str,
    classes: tuple[str, ...],
    least: float = 0.0,
    gold: Integers | None = None,
    covered: str = "gold answers",
    extra: Mapping[str, Any] | None = None,
) -> AnswerCalibration:
    """Learn from the answers of labelled texts, and whether each is right, (answers,).

    Answers at or below the probability `least`, by the score of the rule, are never reported. Where most answers are
    unlikely, as of many labels, this plans the promise for those that matter.

    `gold` (texts,) are the answers that a text should have; the coverage of a rule is the share of them that is
    reported, and `covered` is what they are called. Without them it is the share of answers.
    """
    texts = answers.texts
    splits = options.wanted.kind is not None and options.score == CONFIDENCE
    fitting = fitting_rows(texts, options.seed) if splits else np.ones(texts, dtype=np.bool_)
    calibrator = AnswerCalibrator.fit(answers.of_texts(fitting), right[fitting[answers.text]])
    scope = _scope(learned, texts, options)
    scores = {LOG_ODDS: answers.log_odds, CONFIDENCE: calibrator.confidence(answers)}
    decision = decide(
        Labelled(scores, ~right, answers.text, texts, least=least, gold=gold, covered=covered),
        options.wanted,
        inside=None if scope is None else scope.inside,
        # Texts that fitted the calibrator do not decide, but say where the search starts.
        fitting=fitting if splits else None,
        menu=options.menu,
    )
    return AnswerCalibration(
        settings=learned.settings,
        model_hash=model_hash,
        classes=classes,
        rows=texts,
        calibrator=calibrator,
        rule=decision.rule,
        menu=decision.menu,
        shift=_shift(answers, options),
        scope=scope,
        spending=learned.spending,
        extra={} if extra is None else extra,
    )


def top_log_odds(answers: Answers) -> Floats:
    """The highest log-odds of a text's answers, (texts,); of a text without one below all others."""
    lowest = float(answers.log_odds.min(initial=0.0)) - 1.0
    found = np.full(answers.texts, lowest)
    np.maximum.at(found, answers.text, answers.log_odds)
    return found


def _scope(learned: Learned, texts: int, options: AnswerOptions) -> Scope | None:
    outputs = learned.outputs
    if texts < REFERENCE_ROWS:
        return None
    return fit_scope(learned.reference, outputs.representations, outputs.scope_logits, false_alarm=options.false_alarm)


def _shift(answers: Answers, options: AnswerOptions) -> ShiftReference | None:
    if answers.texts < REFERENCE_ROWS:
        return None
    return summarise(top_log_odds(answers), score=TOP_LOG_ODDS, false_alarm=options.false_alarm)
