"""Does the promise still hold on labels of today? The risk now, a verdict, and an updated calibration.

The new promise is decided by the new texts alone, which also fit the calibrator; the old ones only say where the search
starts. It holds for data like those that the new texts were drawn from, and it holds for them only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.classifier.answer_kind import AnyKind, Reading
from uatlite.classifier.predictions import LOG_ODDS, Predictions
from uatlite.classifier.product import Product
from uatlite.classifier.record import AnyCalibrator, Calibration, CalibrationOptions
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.promise import Labelled, decide, fitting_rows
from uatlite.trust.risk_interval import RiskInterval, Verdict, risk_interval
from uatlite.trust.rule import ONE_ANSWER, RAW_SCORE, RowsNeeded, Rule, Wanted
from uatlite.trust.shift import REFERENCE_ROWS, summarise
from uatlite.values import Floats, Marks, Text

ANSWERS_ONLY = "The new rows are answers of the rule before, so that shares of rows are shares of those answers."
LEAST_KEPT = 0.5
"""A new version that answers less than this part of what the one before answered at calibration is not put in use."""
PROMISED = {
    "risk": "of the answers are wrong",
    "errors": "of all texts are answered wrongly",
    "cost": "of the highest cost",
    "precision": "of the reported answers are wrong",
    "per-text": "wrong answers a text are reported",
    "recall": "of the gold answers of answered texts are missed",
}
"""Kind of a rule -> what it promises to be at most its target."""


@dataclass(frozen=True, eq=False)
class LabelledNow:
    """Labelled texts of today, and what the classifier says about them."""

    kind: AnyKind
    predictions: Predictions
    reading: Reading
    gold: NDArray[Any]
    inclusion: Floats | None
    """(texts,): the probability with which each was drawn; None for a plain random sample"""

    @property
    def answered(self) -> Marks:
        return ~self.predictions.abstain

    @property
    def inside(self) -> Marks:
        """(texts,): those in scope."""
        outside = self.predictions.out_of_scope
        return np.ones(len(self.gold), dtype=np.bool_) if outside is None else ~outside

    @property
    def drawn(self) -> Marks:
        """(texts,): those drawn at random; the others were chosen for what they look like.

        Where all have the probability 1 every answer of the file was labelled, and the answers are the sample.
        """
        if self.inclusion is None:
            return np.ones(len(self.gold), dtype=np.bool_)
        below = self.inclusion < 1.0
        return np.asarray(below if below.any() else self.answered)

    @property
    def answers_only(self) -> bool:
        """Whether only answers were drawn at random: then nothing is known about texts below the threshold."""
        return self.inclusion is not None and bool(self.answered[self.drawn].all())

    def risk(self, rule: Rule, confidence: float, column: int | None = None) -> RiskInterval | None:
        """The risk that a rule is about, of all answers or of those of one class; None where it reports none.

        With one answer a text the interval is exact, else that of a bet, whatever the answers of a text have to do
        with each other. Of a promise about all texts it is the share of them that is answered wrongly; where only
        answers were drawn, their risk times the share that was answered at calibration.
        """
        said, most = self.predictions, float(rule.most or 1)
        asked = Wanted(score=rule.score, costs=rule.costs)
        rows = said.labelled(self.gold, _wanted(rule) if rule.kind == "recall" else asked)
        if rule.costs is not None and rows.paid is not None:
            paid = np.where(said.reports, rows.paid[:, 0], rows.paid[:, 1])
            return rule.costs.share(paid, confidence, self.inclusion)
        if rows.missed is not None and rows.gold is not None:
            shown = rule.reports(rows.scores[rule.score]) & self.inside
            scale = shown * np.minimum(1.0, most / np.maximum(rows.gold, 1))  # of more gold answers `most` count
            counts, errors = (values.astype(np.float64) * scale for values in (rows.gold, rows.missed))
        else:
            shown = said.reports if column is None else said.reports & (said.answers.kind == column)
            texts = (said.answers.text[marks] for marks in (shown, shown & rows.errors))
            counts, errors = (np.bincount(of, minlength=len(said)).astype(np.float64) for of in texts)
        if not counts.any():
            return None
        if rule.kind in ONE_ANSWER:
            some = counts > 0
            if rule.kind == "errors" and not self.answers_only:
                some = np.ones(len(said), dtype=np.bool_) if column is None else said.answers.kind == column
            inclusion = None if self.inclusion is None else self.inclusion[some]
            risk = risk_interval(errors[some] > 0, inclusion, confidence=confidence)
            return risk.times(rule.coverage) if rule.kind == "errors" and self.answers_only else risk
        if rule.kind != "per-text":
            return risk_interval(errors, self.inclusion, counts=counts, most=most, confidence=confidence)
        shares = risk_interval(errors / most, self.inclusion, counts=np.ones(len(said)), confidence=confidence)
        return replace(shares.times(most), errors=round(errors.sum()))


@dataclass(frozen=True, kw_only=True)
class Recheck:
    """The promise, and the risk of the answers now: of all answers, or of each class that has a promise of its own."""

    rule: Rule
    target: float
    now: tuple[tuple[str, RiskInterval], ...]
    """what the answers are called, and their risk"""
    coverage: float | None
    """the share of texts that is answered now; None where only answers were drawn"""

    @property
    def verdict(self) -> Verdict:
        """'broken' where any part is, 'holds' where all parts hold."""
        parts = {interval.verdict(self.target) for _, interval in self.now}
        return "broken" if "broken" in parts else "cannot tell yet" if "cannot tell yet" in parts else "holds"

    @property
    def labels_needed(self) -> RowsNeeded | None:
        """How many labelled answers would tell, of that kind for which it is most; None where it can be told."""
        unsure = [interval for _, interval in self.now if interval.verdict(self.target) == "cannot tell yet"]
        needed = [interval.labels_needed(self.target) for interval in unsure]
        return max(needed, key=lambda labels: (labels.high is None, labels.high), default=None)

    def describe(self) -> list[str]:
        """Before, now, and the verdict, a sentence each."""
        rule, one_answer = self.rule, self.rule.kind in ONE_ANSWER
        target = f"{self.target:g}" if rule.kind == "per-text" else f"{self.target:.2%}"
        wrong = "missed" if rule.kind == "recall" else "wrong"
        unit = "texts" if rule.kind == "errors" and self.coverage is not None else "answers"
        share = "of rows were answered" if one_answer else rule.share_of
        before = f"{rule.errors} of {rule.reported} answers were {wrong}, {rule.coverage:.1%} {share}"
        promised = PROMISED.get(rule.kind, PROMISED["risk"])
        covered = "" if self.coverage is None else f"; {self.coverage:.1%} of rows are answered"
        verdicts = {
            "holds": "The promise holds.",
            "broken": "The promise is broken. Make a new one from these rows: --update",
            "cannot tell yet": f"Cannot tell yet; {needed.describe()}." if (needed := self.labels_needed) else "",
        }
        if rule.costs is not None and rule.cost is not None:
            now, scale = self.now[0][1], rule.costs.highest
            mean, low, high = (scale * share for share in (now.risk, now.low, now.high))
            return [
                f"Promised: a text costs at most {scale * self.target:.4g} (at calibration {rule.cost.rule[0]:.4g}).",
                f"Now: {mean:.4g} ({low:.4g} to {high:.4g}, confidence {now.confidence:g}, {now.rows} rows){covered}.",
                verdicts[self.verdict].replace(" Make a new one from these rows: --update", " Calibrate again."),
            ]
        said = [(name, interval.describe(f"labelled {unit} are {wrong}")) for name, interval in self.now]
        return [
            f"Promised: at most {target} {promised} (at calibration {before}).",
            *(f"Now{name}: {risk}{covered}." for name, risk in said),
            verdicts[self.verdict],
        ]


def read_now(
    product: Product[Any], texts: Sequence[Text], gold: Iterable[Any], inclusion: ArrayLike | None = None
) -> LabelledNow:
    """Run the classifier over checked texts with their gold, as `calibrate` takes it."""
    predictor, kind = product.predictor(), product.kind
    if predictor.calibration is None or not predictor.calibration.rules:
        example = kind.predictions.words.example
        raise CalibrationError(f"there is no promise to check; calibrate with a target: {example}.")
    checked = product.gold_of(texts, gold, product.class_names)
    drawn = None if inclusion is None else np.asarray(inclusion, dtype=np.float64)
    if drawn is not None and len(drawn) != len(texts):
        raise InputError(f"{len(texts)} texts came with {len(drawn)} probabilities; give one for each.")
    reading = kind.read(product.runtime, texts, predictor.settings)
    return LabelledNow(kind, predictor.said(texts, reading, second_look=False), reading, checked, drawn)


def recheck(now: LabelledNow, rule: Rule, *, target: float | None = None) -> Recheck:
    """The risk of the answers now, with the confidence of the rule, against its target or another one."""
    asked = rule.target if target is None and rule.kind in PROMISED else target
    if rule.costs is not None:
        if now.answers_only or target is not None:
            raise ConfigurationError(
                "a rule of costs is checked on rows drawn from all (pick --of rows), without a risk."
            )
        asked = rule.cost.rule[2] / rule.costs.highest if rule.cost is not None else None
    if asked is None:
        raise ConfigurationError(
            f"the rule is a target {rule.kind}, which promises no risk; give one: --target-risk 0.05."
        )
    classes: list[tuple[str, int | None]] = [("", None)]
    if rule.per_kind is not None:
        classes = [(f", {promise.name}", column) for column, promise in enumerate(rule.per_kind) if promise.promised]
    confidence = 1.0 - (1.0 - rule.confidence) / max(len(classes), 1)
    risks = [(name, now.risk(rule, confidence, column)) for name, column in classes]
    parts = tuple((name, risk) for name, risk in risks if risk is not None)
    if not now.answered.any() or not parts:
        raise CalibrationError(
            f"none of the {len(now.gold)} labelled rows is answered, so nothing is known about answers; label answers, "
            "as uatlite pick chooses them. If this version answers nothing, go back to one that does (uatlite history "
            "DIR --use 1) and update it with a higher risk: --update --target-risk."
        )
    share = float(now.answered.mean()) if now.inclusion is None else None
    return Recheck(rule=rule, target=asked, now=parts, coverage=share)


def poorer(new: Calibration, before: Calibration, *, answers_only: bool) -> str:
    """Why a new version is not put in use: it answers nothing, or much less than the one before; '' where it is.

    With `answers_only` the coverage of the new rules is a share of what was answered before.
    """
    for rule, old in zip(new.rules, before.rules, strict=True):
        if not rule.promised:
            return f"it answers nothing. {rule.describe()}"
        if (kept := rule.coverage if answers_only else rule.coverage / (old.coverage or 1.0)) < LEAST_KEPT:
            return f"it answers {kept:.0%} of what was answered at calibration. {rule.describe()}"
    return ""


def update(
    calibration: Calibration,
    now: LabelledNow,
    *,
    target: float | None = None,
    current_scores: ArrayLike | None = None,
    seed: int = 0,
) -> Calibration:
    """A calibration for data like the new texts: calibrator and thresholds are fitted anew, the scope stays.

    `target` is the risk to promise, by default that of the promise before.
    `current_scores` (others,) are scores of unlabelled texts of today, of one answer each. They say where the search
    starts and what is compared later to tell a shift; without them the scores of the old texts say where to start.
    """
    rules = calibration.rules
    if not rules or any(rule.kind not in PROMISED or rule.per_kind or rule.costs is not None for rule in rules):
        raise ConfigurationError("an update renews one target risk for all answers; calibrate again for other rules.")
    if target is not None:
        rules = (replace(rules[0], target=target), *rules[1:])
    shared = rules[0].score not in (RAW_SCORE, LOG_ODDS) and rules[0].kind != "recall"  # then some fit, others decide
    fitting = fitting_rows(len(now.gold), seed) if shared else np.ones(len(now.gold), dtype=np.bool_)
    deciding, before = now.drawn & now.inside & ~(fitting & shared), calibration.shift
    calibrator, how_fitted = refitted(calibration.calibrator, now, fitting)
    said = now.kind.predictions.of(now.predictions.texts, now.reading, calibrator, calibration.classes)
    current = None if current_scores is None else np.asarray(current_scores, dtype=np.float64)
    planning = before.scores if current is None and before is not None else current
    renewed = []
    for rule in rules:
        rows = said.labelled(now.gold, _wanted(rule, seed))
        apart = rows.text is not None or rule.kind == "recall"  # their scores are not of one answer each
        reference = None if planning is None or apart else Labelled({rule.score: planning})
        renewed.append(renewed_rule(rule, rows.of(deciding), now.answers_only, reference, seed))
    score = said.text_score(rules[0].score)
    scores = said.text_scores(score) if now.inclusion is None and current is None else current
    shift = None
    if scores is not None and len(scores) >= REFERENCE_ROWS:
        shift = summarise(scores, score=score, false_alarm=0.01 if before is None else before.false_alarm)
    return replace(
        calibration,
        rows=len(now.gold),
        calibrator=calibrator,
        rules=tuple(renewed),
        label_sets=None,
        shift=shift,
        figures=None,
        menu=None,
        instead=(),
        sample=None
        if now.answers_only
        else said.labelled(now.gold, _wanted(rules[0])).sample(_wanted(rules[0]), deciding),
        comparison=None,
        asked=calibration.asked if target is None else None,
        spending=(*calibration.spending, how_fitted, *([ANSWERS_ONLY] if now.answers_only else [])),
    )


def _wanted(rule: Rule, seed: int = 0) -> Wanted:
    assert rule.target is not None
    return Wanted(kind=rule.kind, target=rule.target, score=rule.score, confidence=rule.confidence, seed=seed)


def renewed_rule(
    old: Rule, rows: Labelled, answers_only: bool = False, reference: Labelled | None = None, seed: int = 0
) -> Rule:
    """The rule for the old target, decided by new rows, a plain sample.

    `reference` are other texts of one answer each, old ones or unlabelled new ones: they say where the search starts.
    With `answers_only` the rows were drawn from the answers of the old rule; they say nothing about texts below its
    threshold, so the new one is not lower.
    """
    if old.target is None or not rows.size:
        raise CalibrationError("no labelled row can decide: they were not drawn at random, or are out of scope.")
    if reference is not None and answers_only:
        reference = reference.of(reference.scores[old.score] > old.threshold)
    plans = reference is not None and reference.size > 0
    rule = decide(rows, _wanted(old, seed), reference=reference if plans else None).rule
    assert rule is not None
    return replace(rule, threshold=max(rule.threshold, old.threshold)) if answers_only else rule


def refitted(before: AnyCalibrator, now: LabelledNow, fitting: Marks) -> tuple[AnyCalibrator, str]:
    """The calibrator of the same kind, fitted on the new rows, and a sentence about it; too few leave it as it is."""
    options = CalibrationOptions(calibrator=getattr(before, "name", None))
    try:
        new = now.kind.fit(now.reading, now.gold, options, fitting)
    except CalibrationError:
        return before, "The calibrator is the old one: the new rows are too few to fit it."
    return new, f"The calibrator was fitted on the {int(fitting.sum())} new rows."
