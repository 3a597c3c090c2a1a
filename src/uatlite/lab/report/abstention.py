"""Abstention in a report: what a classifier would do that was calibrated on the calibration rows.

The rule is that of `UncertaintyClassifier.calibrate`. All calibration rows in scope decide it, by the margin of the
logits, which no label has fitted. A baseline calibrator may change a prediction and needs rows of its own: a third
fits it and the others decide. A text is answered if it is in scope and its margin is above the threshold.
"""

from dataclasses import dataclass

import numpy as np

from uatlite.errors import check_choice
from uatlite.lab.evaluate.outcomes import Outcome, class_indices, fit_calibrator, outcome_of
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.lab.report.evaluation import Evaluation
from uatlite.predictive import margin
from uatlite.trust.calibrators import CALIBRATORS, LogitCalibrator
from uatlite.trust.promise import Labelled, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE, Menu, Rule, Wanted
from uatlite.trust.scope import CALIBRATION_ROWS, Scope, fit_scope, in_scope
from uatlite.values import Floats, Marks

TARGET_RISK = 0.1


@dataclass(frozen=True, eq=False)
class RuleOutcome:
    """Counts of answers and errors on one set under the rule."""

    name: str
    rows: int
    answered: int
    wrong: int
    """wrong answers"""
    wrong_without: int
    """wrong answers without the rule, with every row answered"""
    out_of_scope: int
    """rows that are not answered because they are out of scope"""

    @property
    def coverage(self) -> float:
        return self.answered / self.rows

    @property
    def risk(self) -> float:
        """The share of answers that is wrong; 0 without answers."""
        return self.wrong / self.answered if self.answered else 0.0

    @property
    def risk_without(self) -> float:
        return self.wrong_without / self.rows


@dataclass(frozen=True)
class AbstainedRow:
    """A row that the rule does not answer."""

    id: str
    predicted: str
    gold: str
    confidence: float
    out_of_scope: bool

    @property
    def right(self) -> bool:
        return self.predicted == self.gold


@dataclass(frozen=True, eq=False)
class Abstention:
    """A contender's rule and its outcome."""

    contender: str
    rule: Rule
    scope: Scope | None
    """None where the rows are too few, or where the store does not have what the scope reads"""
    sets: tuple[RuleOutcome, ...]
    abstained: tuple[AbstainedRow, ...]
    """rows of the first set, the smallest margin first"""
    menu: Menu | None
    """the risks that the same rows can promise; None where a calibrator that may change a prediction takes some"""


@dataclass(frozen=True, eq=False)
class _Seen:
    """The rows of a stored run whose gold label the model knows, as the rule sees them."""

    stored: StoredPredictions
    outcome: Outcome
    margins: Floats
    """(rows,): the largest logit minus the second, before calibration"""
    inside: Marks
    """(rows,): in scope"""

    @property
    def wrong(self) -> Marks:
        return np.asarray(self.outcome.rows.correct == 0)

    def answers(self, rule: Rule) -> Marks:
        return rule.reports(self.margins) & self.inside


def abstain(
    evaluation: Evaluation,
    contender: str | None = None,
    *,
    target: float = TARGET_RISK,
    scope: Scope | None = None,
) -> Abstention | None:
    """The rule for a target risk and its outcome on every set; None where the store has no calibration rows.

    Without a name the contender is the one that the verdict recommends: the test rows chose it, so the calibration rows
    decide the promise alone. `scope` is that of a calibrated classifier; without it the calibration rows give one.
    """
    names = [each.name for each in evaluation.contenders]
    if contender is not None:
        check_choice("contender", contender, names)
    verdict = evaluation.results.verdict
    chosen = contender or (names[0] if verdict is None else verdict.recommended)
    asked = evaluation.contenders[names.index(chosen)]
    stored = evaluation.calibration_rows(asked.method.name)
    if stored is None:
        return None
    stored = _known(evaluation, stored)
    scope, inside = _scope(stored, scope)
    # Where no row fits anything that the rule is about, every row decides.
    free = asked.calibrator in CALIBRATORS
    fitting = np.zeros(len(stored.ids), dtype=np.bool_) if free else fitting_rows(len(stored.ids))
    calibrator = evaluation.calibrators[chosen]
    if not free:
        calibrator = fit_calibrator(asked.calibrator, stored.take(np.flatnonzero(fitting)))
    rows = _Seen(stored, outcome_of(stored, calibrator), _margins(stored), inside)
    on = {
        scores.name: _seen(
            _known(evaluation, evaluation.predictions(asked.method.name, scores.name)), calibrator, scope
        )
        for scores in evaluation.results.sets
    }
    decision = decide(
        Labelled({RAW_SCORE: rows.margins}, rows.wrong),
        Wanted(kind="risk", target=target, score=RAW_SCORE),
        inside=rows.inside,
        fitting=None if free else fitting,
        menu=free,
    )
    rule = decision.rule
    assert rule is not None
    return Abstention(
        contender=chosen,
        rule=rule,
        scope=scope,
        sets=tuple(_rule_outcome(name, seen, rule) for name, seen in on.items()),
        abstained=_abstained(on[evaluation.results.sets[0].name], rule),
        menu=decision.menu,
    )


def _known(evaluation: Evaluation, stored: StoredPredictions) -> StoredPredictions:
    """The rows with a gold label that the model knows, and what the head reads of them."""
    return evaluation.with_representations(stored).take(np.flatnonzero(class_indices(stored) >= 0))


def _scope(stored: StoredPredictions, given: Scope | None) -> tuple[Scope | None, Marks]:
    """The scope by these calibration rows, or the given one; and which of the rows are inside."""
    passes, everything = stored.passes, np.ones(len(stored.ids), dtype=np.bool_)
    if passes.representations is None or len(stored.ids) < CALIBRATION_ROWS:
        return None, everything
    if given is not None:
        strange = given.nonconformity(passes.representations, passes.mean_logits)
        return given, in_scope(strange, given.false_alarm)
    scope = fit_scope(None, passes.representations, passes.mean_logits)
    return scope, everything if scope.inside is None else scope.inside


def _seen(stored: StoredPredictions, calibrator: LogitCalibrator | None, scope: Scope | None) -> _Seen:
    passes, inside = stored.passes, np.ones(len(stored.ids), dtype=np.bool_)
    if scope is not None and passes.representations is not None:
        inside = ~scope.out_of_scope(scope.p_values(passes.representations, passes.mean_logits))
    return _Seen(stored, outcome_of(stored, calibrator), _margins(stored), inside)


def _margins(stored: StoredPredictions) -> Floats:
    return margin(stored.passes.mean_logits)


def _rule_outcome(name: str, rows: _Seen, rule: Rule) -> RuleOutcome:
    answers, wrong = rows.answers(rule), rows.wrong
    counts = (len(wrong), answers.sum(), (answers & wrong).sum(), wrong.sum(), (~rows.inside).sum())
    return RuleOutcome(name, *map(int, counts))


def _abstained(rows: _Seen, rule: Rule) -> tuple[AbstainedRow, ...]:
    scored, classes, answers = rows.outcome.rows, rows.stored.provenance.classes, rows.answers(rule)
    return tuple(
        AbstainedRow(
            id=rows.stored.ids[row],
            predicted=classes[scored.predicted[row]],
            gold=classes[scored.labels[row]],
            confidence=float(scored.confidence[row]),
            out_of_scope=not rows.inside[row],
        )
        for row in np.argsort(rows.margins, kind="stable")
        if not answers[row]
    )
