"""Where the classifier would not answer: a rule from the calibration rows, and what it does on each set.

The calibration rows are divided as `UncertaintyClassifier.calibrate` divides them: a third fits the contender's
calibrator, and there the contender itself is chosen where none is named; the others, which had no part in either,
decide the threshold. So the rule's promise holds, and a classifier that is calibrated for it has the same threshold.

What was found, in a few plain sentences. Every number and every verdict in them is read off the results.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import ConfigurationError, check_choice
from uatlite.lab.evaluate.compare import Score
from uatlite.lab.evaluate.contenders import Contender
from uatlite.lab.evaluate.outcomes import Outcome, fit_calibrator, outcome_of
from uatlite.lab.evaluate.results import Results
from uatlite.lab.evaluate.store import StoredPredictions
from uatlite.lab.report.evaluation import Evaluation
from uatlite.metrics.accuracy import nll
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.promise import fitting_rows, target_risk
from uatlite.trust.rule import AbstentionRule

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


def _parts(evaluation: Evaluation, contender: Contender) -> tuple[StoredPredictions, StoredPredictions] | None:
    rows = evaluation.calibration_rows(contender.method.name)
    if rows is None:
        return None
    fitting = fitting_rows(len(rows.ids))
    return rows.take(np.flatnonzero(fitting)), rows.take(np.flatnonzero(~fitting))


def _fit(contender: Contender, rows: StoredPredictions) -> Calibrator | None:
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


def _abstained(rows: StoredPredictions, outcome: Outcome, rule: AbstentionRule) -> tuple[AbstainedRow, ...]:
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


METRIC = "nll"
"""The proper score by which contenders are ranked in words."""


def findings(results: Results, abstention: Abstention | None) -> list[str]:
    """At most three sentences: who is best in domain, what shift does to calibration, what abstaining buys."""
    found = [_in_domain(results), _under_shift(results), _abstaining(abstention)]
    return [sentence for sentence in found if sentence]


def _in_domain(results: Results) -> str:
    first = results.sets[0]
    if METRIC not in results.metrics or len(results.contenders) < 2:
        return ""
    base = results.contenders[0]
    best = min(results.contenders, key=lambda name: first.scores[name][METRIC].mean)
    own, start = first.scores[best][METRIC], first.scores[base][METRIC]
    if best == base:
        return f"On {first.name} no method has a lower NLL than {base} ({start.mean:.3f})."
    return (
        f"On {first.name} {best} has the lowest NLL, {own.mean:.3f} against {start.mean:.3f} for {base}"
        f"{_accuracy(results, best)}: {_verdict(own)}."
    )


def _accuracy(results: Results, best: str) -> str:
    scores = results.sets[0].scores[best]
    return f", at an accuracy of {scores['accuracy'].mean:.1%}" if "accuracy" in scores else ""


def _verdict(score: Score) -> str:
    """Whether a difference from the first contender is more than chance, by its paired interval."""
    assert score.difference is not None
    low, high = score.difference.low, score.difference.high
    interval = f"the paired interval of the difference is {low:+.3f} to {high:+.3f}".replace("-", "−")
    sure = "it excludes 0" if score.difference.excludes(0.0) else "it includes 0, so this may be chance"
    return f"{interval}, and {sure}"


def _under_shift(results: Results) -> str:
    if len(results.sets) < 2 or "ece" not in results.metrics:
        return ""
    first, shifted = results.sets[0], results.sets[1]
    steady = min(results.contenders, key=lambda name: shifted.scores[name]["ece"].mean)
    before, after = first.scores[steady]["ece"].mean, shifted.scores[steady]["ece"]
    sentence = (
        f"Under shift, on {shifted.name}, the best calibrated is {steady} with an ECE of {after.mean:.3f} "
        f"({after.low:.3f} to {after.high:.3f}), after {before:.3f} in domain"
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
