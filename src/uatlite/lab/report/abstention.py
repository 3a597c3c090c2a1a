"""Abstention in a report: a rule from the calibration rows, its outcome on each set, and the findings in sentences.

The calibration rows are split as `UncertaintyClassifier.calibrate` splits them. A third fits the calibrators and, where
no contender is named, chooses the one with the lowest NLL. The other rows set the threshold. They had no part in either
choice, so the rule's promise holds, and a classifier calibrated on the same rows has the same threshold.
"""

from dataclasses import dataclass

import numpy as np

from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.evaluate.outcomes import Outcome, class_indices, fit_calibrator, outcome_of
from uatlite.lab.evaluate.plan import Contender
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.lab.report.evaluation import Evaluation
from uatlite.lab.report.verdict import headline
from uatlite.metrics.accuracy import nll
from uatlite.trust.menu import Menu, risk_menu
from uatlite.trust.promise import fitting_rows, target_risk
from uatlite.trust.rule import RAW_SCORE, AbstentionRule
from uatlite.values import Floats

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

    @property
    def right(self) -> bool:
        return self.predicted == self.gold


@dataclass(frozen=True, eq=False)
class Abstention:
    """A contender's rule and its outcome."""

    contender: str
    rule: AbstentionRule
    sets: tuple[RuleOutcome, ...]
    abstained: tuple[AbstainedRow, ...]
    """rows of the first set, the least confident first"""
    menu: Menu
    """the risks that the same rows can promise, by the raw margin of the logits"""


def abstain(evaluation: Evaluation, contender: str | None = None, *, target: float = TARGET_RISK) -> Abstention | None:
    """The rule for a target risk and its outcome on every set; None where the store has no calibration rows."""
    parts = {one.name: _parts(evaluation, one) for one in evaluation.contenders}
    known = {name: pair for name, pair in parts.items() if pair is not None}
    if contender is not None:
        check_choice("contender", contender, parts)
    if not known:
        return None
    calibrators = {
        one.name: fit_calibrator(one.calibrator, known[one.name][0]) if one.calibrated else None
        for one in evaluation.contenders
        if one.name in known
    }
    fitting = {name: outcome_of(parts[0], calibrators[name]) for name, parts in known.items()}
    chosen = contender or min(known, key=lambda name: nll(fitting[name].probabilities, fitting[name].labels))
    if chosen not in known:
        raise ConfigurationError(f"{chosen} has no predictions of calibration rows; choose one of {', '.join(known)}.")
    deciding = outcome_of(known[chosen][1], calibrators[chosen]).rows
    rule = target_risk(deciding.confidence, deciding.correct == 0, target, reference=fitting[chosen].rows.confidence)
    menu = risk_menu(
        _margins(known[chosen][1]), deciding.correct == 0, score=RAW_SCORE, reference=_margins(known[chosen][0])
    )
    method = next(one.method.name for one in evaluation.contenders if one.name == chosen)
    on = {one.name: evaluation.predictions(method, one.name) for one in evaluation.results.sets}
    outcomes = {name: outcome_of(rows, calibrators[chosen]) for name, rows in on.items()}
    first = evaluation.results.sets[0].name
    return Abstention(
        contender=chosen,
        rule=rule,
        sets=tuple(_rule_outcome(name, outcome, rule) for name, outcome in outcomes.items()),
        abstained=_abstained(on[first], outcomes[first], rule),
        menu=menu,
    )


def _parts(evaluation: Evaluation, contender: Contender) -> tuple[StoredPredictions, StoredPredictions] | None:
    rows = evaluation.calibration_rows(contender.method.name)
    if rows is None:
        return None
    fitting = fitting_rows(len(rows.ids))
    return rows.take(np.flatnonzero(fitting)), rows.take(np.flatnonzero(~fitting))


def _margins(stored: StoredPredictions) -> Floats:
    """The largest logit minus the second, before calibration: (rows of the outcome,)."""
    ranked = np.sort(stored.passes.mean_logits[class_indices(stored) >= 0], axis=1)
    return np.asarray(ranked[:, -1] - ranked[:, -2])


def _rule_outcome(name: str, outcome: Outcome, rule: AbstentionRule) -> RuleOutcome:
    answers, wrong = rule.answers(outcome.rows.confidence), outcome.rows.correct == 0
    return RuleOutcome(name, len(wrong), int(answers.sum()), int((answers & wrong).sum()), int(wrong.sum()))


def _abstained(stored: StoredPredictions, outcome: Outcome, rule: AbstentionRule) -> tuple[AbstainedRow, ...]:
    rows, classes = outcome.rows, stored.provenance.classes
    ids = [stored.ids[place] for place in np.flatnonzero(class_indices(stored) >= 0)]  # the rows of the outcome
    answers = rule.answers(rows.confidence)
    return tuple(
        AbstainedRow(ids[row], classes[rows.predicted[row]], classes[rows.labels[row]], float(rows.confidence[row]))
        for row in np.argsort(rows.confidence, kind="stable")
        if not answers[row]
    )


def findings(results: Results, abstention: Abstention | None) -> list[str]:
    """At most three sentences: the verdict, calibration under shift, the effect of abstention.

    Every number in them is read from the results.
    """
    verdict = "" if results.verdict is None else headline(results, results.verdict)
    found = [verdict, _under_shift(results), _abstaining(abstention)]
    return [sentence for sentence in found if sentence]


def _under_shift(results: Results) -> str:
    if len(results.sets) < 2 or "ece" not in results.metrics:
        return ""
    first, shifted = results.sets[0], results.sets[1]
    steady = min(results.contenders, key=lambda name: shifted.scores[name]["ece"].mean)
    before, after = first.scores[steady]["ece"].mean, shifted.scores[steady]["ece"]
    sentence = (
        f"Under shift, on {shifted.name}, {steady} has the lowest ECE, {after.mean:.3f} ({after.low:.3f} to "
        f"{after.high:.3f}), after {before:.3f} in domain"
    )
    if "accuracy" in results.metrics:
        old, new = (one.scores[steady]["accuracy"].mean for one in (first, shifted))
        sentence += f"; its accuracy went from {old:.1%} to {new:.1%}"
    return sentence + "."


def _abstaining(abstention: Abstention | None) -> str:
    if abstention is None:
        return ""
    rule, first = abstention.rule, abstention.sets[0]
    if not rule.promised:
        return f"With {abstention.contender} no threshold can promise an error of {rule.target:.0%}: {rule.reason}"
    sentence = (
        f"Told to keep errors at {rule.target:.0%} or less, {abstention.contender} answers {first.coverage:.0%} of "
        f"{first.name} and errs on {first.risk:.1%} of its answers (answering all it would err on "
        f"{first.risk_without:.1%})"
    )
    for shifted in abstention.sets[1:2]:
        sentence += f"; on {shifted.name}, which the promise does not cover, on {shifted.risk:.1%}"
    return sentence + "."
