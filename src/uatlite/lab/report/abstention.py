"""Abstention in a report: what a classifier would do that was calibrated on the calibration rows.

The rule is that of `UncertaintyClassifier.calibrate`. All calibration rows in scope decide it, by the margin of the
logits, which no label has fitted. A baseline calibrator may change a prediction and needs rows of its own: a third
fits it and the others decide. A text is answered if it is in scope and its margin is above the threshold.
"""

from dataclasses import dataclass

import numpy as np

from uatlite.errors import check_choice
from uatlite.lab.evaluate.outcomes import class_indices, fit_calibrator, outcome_of
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.lab.report.evaluation import Evaluation
from uatlite.metrics.rows import Rows
from uatlite.predictive import margin
from uatlite.trust.calibrators import CALIBRATORS
from uatlite.trust.promise import Labelled, decide, fitting_rows
from uatlite.trust.rule import RAW_SCORE, Menu, Rule, Wanted
from uatlite.trust.scope import CALIBRATION_ROWS, Scope, fit_scope, in_scope
from uatlite.values import Floats, Marks

TARGET_RISK = 0.1


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
class RuledSet:
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
    abstained: tuple[AbstainedRow, ...]
    """the smallest margin first"""

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


@dataclass(frozen=True, eq=False)
class Abstention:
    """A contender's rule and its outcome."""

    contender: str
    rule: Rule
    scope: Scope | None
    """None where the rows are too few, or where the store does not have what the scope reads"""
    sets: tuple[RuledSet, ...]
    menu: Menu | None
    """the risks that the same rows can promise; None where a calibrator that may change a prediction takes some"""


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
    names, verdict = [each.name for each in evaluation.contenders], evaluation.results.verdict
    if contender is None:
        contender = names[0] if verdict is None else verdict.recommended
    check_choice("contender", contender, names)
    asked = evaluation.contenders[names.index(contender)]
    stored = evaluation.calibration_rows(asked.method.name)
    if stored is None:
        return None
    stored = _labelled(evaluation, stored)
    scope, inside = _scope(stored, scope)
    calibrator, fitting = evaluation.calibrators[contender], None
    if asked.calibrator not in CALIBRATORS:  # else no row fits anything that the rule is about
        fitting = fitting_rows(len(stored.ids))
        calibrator = fit_calibrator(asked.calibrator, stored.take(np.flatnonzero(fitting)))
    decision = decide(
        Labelled({RAW_SCORE: _margins(stored)}, outcome_of(stored, calibrator).rows.correct == 0),
        Wanted(kind="risk", target=target, score=RAW_SCORE),
        inside=inside,
        fitting=fitting,
        menu=fitting is None,
    )
    rule = decision.rule
    assert rule is not None
    sets = []
    for scores in evaluation.results.sets:
        rows = _labelled(evaluation, evaluation.predictions(asked.method.name, scores.name))
        sets.append(_ruled(scores.name, rows, outcome_of(rows, calibrator).rows, rule, scope))
    return Abstention(contender, rule, scope, tuple(sets), decision.menu)


def _labelled(evaluation: Evaluation, stored: StoredPredictions) -> StoredPredictions:
    """The rows with a gold label that the model knows, and what the head reads of them."""
    return evaluation.with_representations(stored).take(np.flatnonzero(class_indices(stored) >= 0))


def _margins(stored: StoredPredictions) -> Floats:
    """(rows,): the largest logit minus the second, before calibration"""
    return margin(stored.passes.mean_logits)


def _scope(stored: StoredPredictions, given: Scope | None) -> tuple[Scope | None, Marks | None]:
    """The scope by these calibration rows, or the given one; and which of the rows are inside, None for all."""
    passes = stored.passes
    if passes.representations is None or len(stored.ids) < CALIBRATION_ROWS:
        return None, None
    if given is not None:
        return given, in_scope(given.nonconformity(passes.representations, passes.mean_logits), given.false_alarm)
    scope = fit_scope(None, passes.representations, passes.mean_logits)
    return scope, scope.inside


def _ruled(name: str, stored: StoredPredictions, rows: Rows, rule: Rule, scope: Scope | None) -> RuledSet:
    """The outcome of a rule on the stored rows of a set."""
    passes, classes, margins = stored.passes, stored.provenance.classes, _margins(stored)
    outside = np.zeros(len(stored.ids), dtype=np.bool_)
    if scope is not None and passes.representations is not None:
        outside = scope.out_of_scope(scope.p_values(passes.representations, passes.mean_logits))
    answers, wrong = rule.reports(margins) & ~outside, rows.correct == 0
    abstained = tuple(
        AbstainedRow(
            id=stored.ids[i],
            predicted=classes[rows.predicted[i]],
            gold=classes[rows.labels[i]],
            confidence=float(rows.confidence[i]),
            out_of_scope=bool(outside[i]),
        )
        for i in np.argsort(margins, kind="stable")
        if not answers[i]
    )
    return RuledSet(
        name=name,
        rows=len(wrong),
        answered=int(answers.sum()),
        wrong=int((answers & wrong).sum()),
        wrong_without=int(wrong.sum()),
        out_of_scope=int(outside.sum()),
        abstained=abstained,
    )
