"""What products of several answers a text share: from answers that are right or wrong to a calibrator and a promise.

An answer is one label of a text, or one entity. Texts are the unit of everything that is promised: a text fits, or
decides, with all of its answers.

The raw score, the log-odds that the model gives, is fitted on no row, so that all texts decide; with the score
`confidence` a third of the texts fits the calibrator and the others decide.
"""

import math
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
from uatlite.errors import CalibrationError, ConfigurationError, check_choice
from uatlite.trust.answers import AnswerCalibrator, Answers, TextScores
from uatlite.trust.grouped import GroupedRule, grouped_risk, ratio_interval
from uatlite.trust.menu import GroupedMenu, grouped_menu
from uatlite.trust.promise import fitting_rows
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
    def promise(self) -> tuple[str, float] | None:
        """The kind of the rule and its target, where one is asked for."""
        if self.target_precision is not None:
            return "precision", 1.0 - self.target_precision
        return None if self.target_wrong is None else ("per-text", self.target_wrong)


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerCalibration(CalibrationRecord):
    """What a product of several answers a text learned; its rows are texts."""

    label_sets: ClassVar[None] = None
    second_look: ClassVar[None] = None
    calibrator: AnswerCalibrator | EntityCalibrator
    rule: GroupedRule | None
    menu: GroupedMenu | None = None
    """None where it was not asked for, or the texts or their answers are too few"""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """what else the product needs, as plain JSON values"""

    @property
    def rules(self) -> tuple[GroupedRule, ...]:
        recall = self.extra.get("recall")
        return (*super().rules, *(() if recall is None else (GroupedRule.from_dict(recall),)))

    def _promises(self) -> list[str]:
        return [rule.describe() for rule in self.rules]

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "calibrator": dump(self.calibrator, kind=AnswerCalibrator | EntityCalibrator),
            "menu": None if self.menu is None else self.menu.to_dict(),
            "extra": dict(self.extra),
        }

    @classmethod
    def _own(cls, state: Mapping[str, Any], arrays: dict[str, Floats]) -> dict[str, Any]:
        return {
            "calibrator": load(AnswerCalibrator | EntityCalibrator, state["calibrator"], advice="calibrate again."),
            "rule": GroupedRule.from_dict(state["rule"]) if state["rule"] else None,
            "menu": GroupedMenu.from_dict(state["menu"]) if state.get("menu") else None,
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
    split = options.promise is not None and options.score == CONFIDENCE
    fitting = fitting_rows(texts, options.seed) if split else np.ones(texts, dtype=np.bool_)
    calibrator = AnswerCalibrator.fit(answers.of_texts(fitting), right[fitting[answers.text]])
    scope = _scope(learned, texts, options)
    inside = scope.inside if scope is not None and scope.inside is not None else np.ones(texts, dtype=np.bool_)
    rule = _rule(answers, right, calibrator, fitting if split else None, inside, options, least)
    menu = _menu(answers, right, inside, options, least)

    def finished(rule: GroupedRule, score: str, decides: NDArray[np.bool_]) -> GroupedRule:
        """The rule, never below `least`, with its coverage of gold answers where they are known."""
        rule = replace(rule, threshold=max(rule.threshold, lowest_score(score, least)))
        scores = answer_scores(score, answers, calibrator)
        return rule if gold is None else with_coverage(rule, answers, scores, right, decides, gold, covered)

    if rule is not None:
        rule = finished(rule, options.score, inside & ~fitting if split else inside)
    if menu is not None:
        menu = menu.with_rules(lambda promised: finished(promised, LOG_ODDS, inside))
    return AnswerCalibration(
        settings=learned.settings,
        model_hash=model_hash,
        classes=classes,
        rows=texts,
        calibrator=calibrator,
        rule=rule,
        menu=menu,
        shift=_shift(answers, options),
        scope=scope,
        spending=learned.spending,
        extra={} if extra is None else extra,
    )


def answer_scores(score: str, answers: Answers, calibrator: AnswerCalibrator) -> Floats:
    """What ranks answers, (answers,)."""
    return answers.log_odds if score == LOG_ODDS else calibrator.confidence(answers)


def with_coverage(
    rule: GroupedRule,
    answers: Answers,
    scores: Floats,
    right: NDArray[np.bool_],
    texts: NDArray[np.bool_],
    gold: Integers,
    covered: str,
) -> GroupedRule:
    """The rule with its coverage of gold answers, (texts,), among the chosen texts, (texts,) bool."""
    said = rule.reports(scores, answers.text) & right
    found = np.bincount(answers.text[said], minlength=answers.texts)[texts].astype(np.float64)
    wanted = gold[texts].astype(np.float64)
    if not wanted.sum():
        return rule
    share, interval = found.sum() / wanted.sum(), ratio_interval(found, wanted, rule.confidence)
    return replace(rule, coverage=float(share), coverage_interval=interval, covered=covered)


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


def _rule(
    answers: Answers,
    right: NDArray[np.bool_],
    calibrator: AnswerCalibrator,
    fitting: NDArray[np.bool_] | None,
    inside: NDArray[np.bool_],
    options: AnswerOptions,
    least: float,
) -> GroupedRule | None:
    """The rule asked for. Texts out of scope are abstained on, so no answer among them counts."""
    if options.promise is None:
        return None
    kind, target = options.promise
    scores = answer_scores(options.score, answers, calibrator)
    floor = lowest_score(options.score, least)
    chosen, wrong = _likely(scores, answers, right, inside if fitting is None else inside & ~fitting, floor)
    return grouped_risk(
        chosen.scores,
        wrong,
        chosen.text,
        chosen.texts,
        target,
        kind=kind,
        confidence=options.confidence,
        # Texts that fitted the calibrator do not decide, but say where the search starts.
        reference=None if fitting is None else _likely(scores, answers, right, fitting & inside, floor)[0],
        score=options.score,
        seed=options.seed,
    )


def _menu(
    answers: Answers, right: NDArray[np.bool_], inside: NDArray[np.bool_], options: AnswerOptions, least: float
) -> GroupedMenu | None:
    """The risks that can be promised by the raw score, which no text has fitted, so that all in scope decide."""
    if not options.menu or inside.sum() < REFERENCE_ROWS:
        return None
    chosen, wrong = _likely(answers.log_odds, answers, right, inside, lowest_score(LOG_ODDS, least))
    arguments: dict[str, Any] = {"score": LOG_ODDS, "confidence": options.confidence, "seed": options.seed}
    try:
        return grouped_menu(chosen.scores, wrong, chosen.text, chosen.texts, **arguments)
    except CalibrationError:  # too few answers
        return None


def _likely(
    scores: Floats, answers: Answers, right: NDArray[np.bool_], texts: NDArray[np.bool_], floor: float
) -> tuple[TextScores, NDArray[np.bool_]]:
    """The answers of the chosen texts, (texts,) bool, whose score is above a floor, and which of them are wrong."""
    likely = scores > floor
    whole = TextScores(scores[likely], answers.text[likely], answers.texts)
    return whole.of_texts(texts), ~right[likely][texts[whole.text]]


def lowest_score(score: str, least: float) -> float:
    """The score of an answer of this probability."""
    if score == CONFIDENCE:
        return least
    return math.log(least / (1.0 - least)) if least > 0.0 else -math.inf
