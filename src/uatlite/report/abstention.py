"""Where the classifier would not answer: a rule from the calibration rows, and what it does on each set.

The calibration rows are divided as `UncertaintyClassifier.calibrate` divides them: a third fits the contender's
calibrator, and there the contender itself is chosen where none is named; the others, which had no part in either,
decide the threshold. So the rule's promise holds, and a classifier that is calibrated for it has the same threshold.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.calibration import Calibrator
from uatlite.decision import AbstentionRule, target_risk
from uatlite.decision.division import fitting_rows
from uatlite.errors import ConfigurationError, check_choice
from uatlite.experiments.contenders import Contender
from uatlite.experiments.probabilities import Outcome, fit_calibrator, outcome_of
from uatlite.experiments.store import Predictions
from uatlite.metrics import nll
from uatlite.report.evaluation import Evaluation

TARGET_RISK = 0.1


@dataclass(frozen=True, eq=False)
class Answered:
    """What the rule does on one set."""

    name: str
    rows: int
    answered: int
    wrong: int
    """of the answers"""
    wrong_without: int
    """of all rows, had it answered every one"""

    @property
    def coverage(self) -> float:
        return self.answered / self.rows

    @property
    def risk(self) -> float:
        """The share of answers that is wrong; 0 where there is none."""
        return self.wrong / self.answered if self.answered else 0.0

    @property
    def risk_without(self) -> float:
        return self.wrong_without / self.rows


@dataclass(frozen=True)
class AbstainedRow:
    """A text that the rule does not answer."""

    id: str
    predicted: str
    gold: str
    confidence: float

    @property
    def right(self) -> bool:
        return self.predicted == self.gold


@dataclass(frozen=True, eq=False)
class Abstention:
    """A contender's rule and what came of it; `abstained` are rows of the first set, the least sure first."""

    contender: str
    rule: AbstentionRule
    sets: tuple[Answered, ...]
    abstained: tuple[AbstainedRow, ...]


def abstain(evaluation: Evaluation, contender: str | None = None, *, target: float = TARGET_RISK) -> Abstention | None:
    """The rule for a target risk and its outcome on every set; None where the store has no calibration rows.

    Without a name, the contender is the one with the lowest NLL on the calibration rows that fit.
    """
    parts = {one.name: _parts(evaluation, one) for one in evaluation.contenders}
    known = {name: pair for name, pair in parts.items() if pair is not None}
    if contender is not None:
        check_choice("contender", contender, parts)
    if not known:
        return None
    calibrators = {c.name: _fit(c, known[c.name][0]) for c in evaluation.contenders if c.name in known}
    chosen = contender or min(known, key=lambda name: _nll(outcome_of(known[name][0], calibrators[name])))
    if chosen not in known:
        raise ConfigurationError(f"{chosen} has no predictions of calibration rows; choose one of {', '.join(known)}.")
    fitting, deciding = (outcome_of(part, calibrators[chosen]) for part in known[chosen])
    rule = target_risk(_scores(deciding), ~_right(deciding), target, pilot=_scores(fitting))
    method = next(one.method.name for one in evaluation.contenders if one.name == chosen)
    on = {one.name: evaluation.predictions(method, one.name) for one in evaluation.results.sets}
    outcomes = {name: outcome_of(rows, calibrators[chosen]) for name, rows in on.items()}
    first = evaluation.results.sets[0].name
    return Abstention(
        contender=chosen,
        rule=rule,
        sets=tuple(_answered(name, outcome, rule) for name, outcome in outcomes.items()),
        abstained=_abstained(on[first], outcomes[first], rule),
    )


def _parts(evaluation: Evaluation, contender: Contender) -> tuple[Predictions, Predictions] | None:
    rows = evaluation.calibration_rows(contender.method.name)
    if rows is None:
        return None
    fitting = fitting_rows(len(rows.ids))
    return rows.take(np.flatnonzero(fitting)), rows.take(np.flatnonzero(~fitting))


def _fit(contender: Contender, rows: Predictions) -> Calibrator | None:
    return fit_calibrator(contender.calibrator, rows) if contender.calibrated else None


def _nll(outcome: Outcome) -> float:
    return nll(outcome.probabilities, outcome.labels)


def _scores(outcome: Outcome) -> NDArray[np.float64]:
    return np.asarray(outcome.probabilities.max(axis=1))


def _right(outcome: Outcome) -> NDArray[np.bool_]:
    return np.asarray(outcome.probabilities.argmax(axis=1) == outcome.labels)


def _answered(name: str, outcome: Outcome, rule: AbstentionRule) -> Answered:
    answers, right = rule.answers(_scores(outcome)), _right(outcome)
    return Answered(name, len(right), int(answers.sum()), int((answers & ~right).sum()), int((~right).sum()))


def _abstained(rows: Predictions, outcome: Outcome, rule: AbstentionRule) -> tuple[AbstainedRow, ...]:
    classes = rows.provenance.classes
    # The outcome leaves out rows whose label the model does not know; ids are matched by the same rule.
    known = [rows.provenance.labels[label] in classes if label >= 0 else False for label in rows.labels]
    ids = [name for name, is_known in zip(rows.ids, known, strict=True) if is_known]
    scores, predicted = _scores(outcome), outcome.probabilities.argmax(axis=1)
    answers = rule.answers(scores)
    return tuple(
        AbstainedRow(ids[row], classes[predicted[row]], classes[outcome.labels[row]], float(scores[row]))
        for row in np.argsort(scores, kind="stable")
        if not answers[row]
    )
