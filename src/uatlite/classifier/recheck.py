"""Does the promise still hold on labels of today? The risk now, a verdict, and an updated calibration.

The new promise is decided by the new rows alone, which also fit the calibrator; the old ones only say where the search
starts. It holds for data like those that the new rows were drawn from, and it holds for them only.
"""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.record import Calibration
from uatlite.classifier.run import run
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.predictive import PassLogits
from uatlite.trust.binomial import RiskInterval, Verdict, risk_interval
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import predictive
from uatlite.trust.promise import Labelled, Wanted, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE, Rule, trust
from uatlite.trust.shift import REFERENCE_ROWS, summarise
from uatlite.values import Floats, Integers, Marks, Text

ANSWERS_ONLY = "The new rows are answers of the rule before, so that shares of rows are shares of those answers."


@dataclass(frozen=True, eq=False)
class LabelledNow:
    """Labelled rows of today, and what the classifier says about them."""

    predictions: ClassPredictions
    outputs: PassLogits
    labels: Integers
    """(rows,): columns"""
    inclusion: Floats | None
    """(rows,): the probability with which each was drawn; None for a plain random sample"""

    @property
    def answered(self) -> Marks:
        return ~self.predictions.abstain

    @property
    def wrong(self) -> Marks:
        return np.asarray(self.predictions.predicted != self.labels)

    @property
    def drawn(self) -> Marks:
        """(rows,): those drawn at random; the others were chosen for what they look like.

        Where all have the probability 1 every answer of the file was labelled, and the answers are the sample.
        """
        if self.inclusion is None:
            return np.ones(len(self.labels), dtype=np.bool_)
        below = self.inclusion < 1.0
        return np.asarray(below if below.any() else self.answered)

    @property
    def answers_only(self) -> bool:
        """Whether only answers were drawn at random: then nothing is known about rows below the threshold."""
        return self.inclusion is not None and bool(self.answered[self.drawn].all())


@dataclass(frozen=True, kw_only=True)
class Recheck:
    """The promise, and the risk of the answers now: of all answers, or of each class that has a promise of its own."""

    rule: Rule
    target: float
    now: tuple[tuple[str, RiskInterval], ...]
    """what the answers are called, and their risk"""
    coverage: float | None
    """the share of rows that is answered now; None where only answers were drawn"""

    @property
    def verdict(self) -> Verdict:
        """'broken' where any part is, 'holds' where all parts hold."""
        parts = {interval.verdict(self.target) for _, interval in self.now}
        return "broken" if "broken" in parts else "cannot tell yet" if "cannot tell yet" in parts else "holds"

    @property
    def labels_needed(self) -> int | None:
        """How many labelled answers of each kind would tell; None where too many."""
        open_ = [one.labels_needed(self.target) for _, one in self.now if one.verdict(self.target) == "cannot tell yet"]
        return None if not open_ or None in open_ else max(number for number in open_ if number is not None)

    def describe(self) -> list[str]:
        """Before, now, and the verdict, a sentence each."""
        rule = self.rule
        before = f"{rule.errors} of {rule.reported} answers were wrong, {rule.coverage:.1%} of rows were answered"
        lines = [f"Promised: at most {self.target:.2%} of the answers are wrong (at calibration {before})."]
        covered = "" if self.coverage is None else f"; {self.coverage:.1%} of rows are answered"
        lines += [f"Now{name}: {interval.describe()}{covered}." for name, interval in self.now]
        if self.verdict == "holds":
            lines.append("The promise holds.")
        elif self.verdict == "broken":
            lines.append("The promise is broken. Make a new one from these rows: --update")
        elif self.labels_needed is None:
            lines.append("Cannot tell yet: the risk is so near the target that no reasonable number of labels would.")
        else:
            lines.append(f"Cannot tell yet; about {self.labels_needed:,} labelled answers in all would tell.")
        return lines


def read_now(
    classifier: UncertaintyClassifier, texts: list[Text], labels: ArrayLike, inclusion: ArrayLike | None = None
) -> LabelledNow:
    """Run the classifier over labelled texts; labels (rows,) are columns."""
    predictor = classifier.predictor()
    if predictor.calibration is None or predictor.calibration.rule is None:
        raise CalibrationError("there is no promise to check; calibrate with a target risk: --target-risk 0.05.")
    outputs = run(classifier.runtime, texts, predictor.settings)
    drawn = None if inclusion is None else np.asarray(inclusion, dtype=np.float64)
    columns = np.asarray(labels, dtype=np.int64)
    if len(columns) != len(texts) or (drawn is not None and len(drawn) != len(texts)):
        raise InputError(
            f"{len(texts)} texts came with {len(columns)} labels; give one, and one probability, for each."
        )
    return LabelledNow(predictor.predictions(texts, outputs), outputs, columns, drawn)


def recheck(now: LabelledNow, rule: Rule, *, target: float | None = None) -> Recheck:
    """The risk of the answers now, with the confidence of the rule, against its target or another one."""
    asked = rule.target if target is None and rule.kind == "risk" else target
    if asked is None:
        raise ConfigurationError(
            f"the rule is a target {rule.kind}, which promises no risk; give one: --target-risk 0.05."
        )
    answered = now.answered
    if not answered.any():
        raise CalibrationError(
            f"none of the {len(answered)} labelled rows is answered, so nothing is known about answers; label answers, "
            "as uatlite pick chooses them. If this version answers nothing, go back to one that does (uatlite history "
            "DIR --use 1) and update it with a higher risk: --update --target-risk."
        )
    kinds = [("", answered)]
    if rule.per_kind is not None:
        columns = [column for column, one in enumerate(rule.per_kind) if one.promised]
        kinds = [(f", {rule.per_kind[c].name}", answered & (now.predictions.predicted == c)) for c in columns]
    confidence = 1.0 - (1.0 - rule.confidence) / max(len(kinds), 1)
    parts = tuple((name, _interval(now, of, confidence)) for name, of in kinds if of.any())
    share = float(answered.mean()) if now.inclusion is None else None
    return Recheck(rule=rule, target=asked, now=parts, coverage=share)


def _interval(now: LabelledNow, of: Marks, confidence: float) -> RiskInterval:
    return risk_interval(now.wrong[of], None if now.inclusion is None else now.inclusion[of], confidence=confidence)


def update(
    calibration: Calibration,
    now: LabelledNow,
    *,
    target: float | None = None,
    current_scores: ArrayLike | None = None,
    seed: int = 0,
) -> Calibration:
    """A calibration for data like the new rows: calibrator and threshold are fitted anew, the scope stays.

    `target` is the risk to promise, by default that of the promise before.
    `current_scores` (others,) are scores of unlabelled rows of today. They say where the search starts and what is
    compared later to tell a shift; without them the scores of the old rows say where to start.
    """
    old = calibration.rule
    if old is None or old.kind != "risk" or old.target is None or old.per_kind is not None:
        raise ConfigurationError("an update renews one target risk for all answers; calibrate again for other rules.")
    if target is not None:
        old = replace(old, target=target)
    fitting, deciding = _split(now, old, seed)
    calibrator, how_fitted = refitted(cast(Calibrator, calibration.calibrator), now.outputs, now.labels, fitting)
    found = predictive(now.outputs, calibrator)
    scores = trust(old.score, found)
    current = None if current_scores is None else np.asarray(current_scores, dtype=np.float64)
    before = None if calibration.shift is None else calibration.shift.scores
    rule = renewed_rule(
        old,
        scores[deciding],
        (found.predicted != now.labels)[deciding],
        answers_only=now.answers_only,
        reference=before if current is None else current,
        seed=seed,
    )
    reference = current if current is not None else None if now.inclusion is not None else scores
    alarm = 0.01 if calibration.shift is None else calibration.shift.false_alarm
    shift = None
    if reference is not None and len(reference) >= REFERENCE_ROWS:
        shift = summarise(reference, score=old.score, false_alarm=alarm)
    return replace(
        calibration,
        rows=len(now.labels),
        calibrator=calibrator,
        rules=(rule,),
        label_sets=None,
        shift=shift,
        figures=None,
        menu=None,
        comparison=None,
        spending=(*calibration.spending, how_fitted, *([ANSWERS_ONLY] if now.answers_only else [])),
    )


def _split(now: LabelledNow, rule: Rule, seed: int) -> tuple[Marks, Marks]:
    """Which rows fit and which decide. All that were drawn at random decide where nothing fitted is at stake."""
    everything = np.ones(len(now.labels), dtype=np.bool_)
    deciding = now.drawn.copy()
    if now.predictions.out_of_scope is not None:
        deciding &= ~now.predictions.out_of_scope
    if rule.score == RAW_SCORE:
        return everything, deciding
    fitting = fitting_rows(len(now.labels), seed)
    return fitting, deciding & ~fitting


def renewed_rule(
    old: Rule,
    scores: Floats,
    wrong: Marks,
    *,
    answers_only: bool,
    reference: Floats | None = None,
    seed: int = 0,
) -> Rule:
    """The rule for the old target, decided by new rows: scores (rows,) and errors (rows,) of a plain sample.

    `reference` (others,) are scores of other rows, old ones or unlabelled new ones: they say where the search starts.
    With `answers_only` the rows were drawn from the answers of the old rule; they say nothing about texts below its
    threshold, so the new one is not lower.
    """
    if old.target is None or not len(scores):
        raise CalibrationError("no labelled row can decide: they were not drawn at random, or are out of scope.")
    if reference is not None and answers_only:
        reference = reference[reference > old.threshold]
    if reference is not None and not len(reference):
        reference = None
    rule = decide(
        Labelled({old.score: scores}, wrong),
        Wanted(kind="risk", target=old.target, score=old.score, confidence=old.confidence, seed=seed),
        reference=None if reference is None else Labelled({old.score: reference}),
    ).rule
    assert rule is not None
    return replace(rule, threshold=max(rule.threshold, old.threshold)) if answers_only else rule


def refitted(before: Calibrator, outputs: PassLogits, labels: Integers, fitting: Marks) -> tuple[Calibrator, str]:
    """The calibrator of the same kind, fitted on the new rows, and a sentence about it; too few leave it as it is."""
    some = outputs.take(fitting)
    try:
        new = type(before).fit(some.mean_logits, labels[fitting], some.margin_variance)
    except CalibrationError:
        return before, "The calibrator is the old one: the new rows are too few to fit it."
    return new, f"The calibrator was fitted on the {len(some.mean_logits)} new rows."
