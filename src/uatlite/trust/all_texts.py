"""Promises about all texts: what share of them is answered wrongly, and what share is left to a person.

Both shares only rise as the threshold falls. So the share of wrong answers is tested at every score from the highest
down at the whole level, nothing has to be planned, and all labelled rows decide (proof: docs/reference/decision.md).
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from uatlite.errors import CalibrationError
from uatlite.trust import binomial
from uatlite.trust.binomial import Test
from uatlite.trust.distribution import conformal_rank
from uatlite.trust.planners import Plan, RowsPlanner
from uatlite.trust.rule import RowsNeeded, Rule, Wanted
from uatlite.values import Floats, Marks

REVIEW_SHARES = (0.05, 0.10, 0.20, 0.30, 0.50)
"""The shares of texts to review on a menu."""
REVIEW_SHARE = 0.20
"""The one that is shown where a target cannot be promised."""


@dataclass(frozen=True, eq=False)
class ErrorsPlanner(RowsPlanner):
    """Labelled rows of which at most a share may be answered wrongly: P(wrong and score > t) ≤ target.

    Rows that are wrong and answered are counted among all rows, so that the test needs no plan.
    """

    others: Floats = field(default_factory=lambda: np.empty(0))

    def plan(self, target: float) -> Plan:
        thresholds = self.below[self.counts[1:]]
        ones = np.ones((len(thresholds), 2))
        starts = [(0, 1.0 - self.wanted.confidence)]
        return Plan(thresholds, starts, ones[:, 0].astype(np.int64), ones)

    def test(self, plan: Plan, target: float) -> Test:
        return binomial.exact_test(self.errors[self.counts[1:]], len(self.scores), target)

    def enough(self, target: float, high: bool) -> int | None:
        """The fewest with which the surest of these rows can be answered."""
        return binomial.least_answers(int(self.errors[self.counts[1]]), target, 1.0 - self.wanted.confidence)

    def needed(self, target: float) -> RowsNeeded:
        return replace(super().needed(target), exact=True)

    def why_not(self, target: float) -> str:
        asked = (
            f"that at most {target:.2%} of all texts are answered wrongly with confidence {self.wanted.confidence:g}"
        )
        least = binomial.least_answers(0, target, 1.0 - self.wanted.confidence)
        if len(self.scores) < least:
            why = f"even without an error it takes {least} {self.unit}"
        else:
            tied = self.counts[1]
            why = f"of the {tied} that are surest {self.errors[tied]} are wrong"
        out = self.way_out(target, can="allow more: they do promise {:.2%}", asked=f"{target:.2%}")
        return f"{len(self.scores)} {self.unit} cannot promise {asked}: {why}; {out}"


def check_enough(texts: int, wanted: Wanted) -> None:
    """Raise where so few texts could not promise a share of wrong answers even if all answers were right."""
    level = 1.0 - wanted.confidence
    least = binomial.least_answers(0, wanted.target, level)
    if texts < least:
        can = math.ceil(1000.0 * (1.0 - level ** (1.0 / max(texts, 1)))) / 1000.0
        raise CalibrationError(
            f"to promise that at most {wanted.target:.2%} of all texts are answered wrongly takes {least} labelled "
            f"texts without an error, and {texts} can decide; label {least - texts} more, or allow {can:.1%}."
        )


def reviews_rule(scores: Floats, wrong: Marks, texts: int, wanted: Wanted) -> Rule:
    """The rule that answers a new text with probability `target` or more and leaves the others to a person.

    Of n texts (`texts`) those in scope have scores and errors (rows,). A new score is at least the j-th largest of n
    with probability j/(n+1) or more, by exchangeability. So j is ceil(target·(n+1)), and where there are fewer in scope
    all of them are answered. Given the j-th largest score, the rows above it are a sample of all texts above it: their
    errors bound the risk without a search. That row itself counts only if it is wrong.
    """
    rank = conformal_rank(wanted.target, texts)
    # "> the number next below it" is "≥ it": rows that tie with the j-th are answered too.
    threshold = -math.inf if rank > len(scores) else float(np.nextafter(np.sort(scores)[-rank], -math.inf))
    rule = binomial.rule_at(threshold, scores, wrong, wanted, wanted.target)
    sample = rule.reported - (threshold > -math.inf)
    bound = binomial.risk_upper_bound(rule.errors, sample, wanted.confidence)
    return replace(rule, risk_bound=float(bound) if sample else None)


@dataclass(frozen=True, eq=False)
class LabelledScores:
    """The scores of labelled rows in scope, (rows,), fitted on no label, and which rows are wrong, (rows,).

    For a threshold that they did not choose they give an exact bound of the risk.
    """

    score: str
    confidence: float
    scores: Floats
    wrong: Marks

    def at(self, threshold: float) -> Rule:
        """The rule at a threshold that was chosen without these rows, with the bound of its risk."""
        wanted = Wanted(kind="threshold", target=threshold, score=self.score, confidence=self.confidence)
        return binomial.rule_at(threshold, self.scores, self.wrong, wanted, None)
