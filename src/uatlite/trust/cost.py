"""Costs: what an answer costs by the true class, what a review costs, and the rule that takes the cheaper of the two.

A text gets the answer, or the review, whose expected cost by the calibrated probabilities is the lowest. The threshold
follows from the costs, so that nothing is searched, and labelled rows say what the rule costs a text.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from uatlite.errors import CalibrationError, ConfigurationError, check_choice
from uatlite.values import Floats, Integers, Marks

if TYPE_CHECKING:
    from uatlite.trust.risk_interval import RiskInterval
    from uatlite.trust.rule import Rule, Wanted

SAVING = "saving"
"""The score of a rule of costs: what the cheapest answer of a text is expected to save over a review."""
REVIEW_PRICE = "review"
"""The column of a table of costs that has the price of a review."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a wrong answer and a review cost; or a table with a row for each true class: each answer, then a review."""

    wrong: float = 1.0
    review: float = 1.0
    table: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        for cost in (self.wrong, self.review):
            _checked(cost, "a wrong answer or a review")
        if not self.highest:
            raise ConfigurationError("all costs are 0, so that nothing is cheaper; give the cost of a wrong answer.")

    @classmethod
    def of(cls, given: Mapping[str, Mapping[str, object]], classes: tuple[str, ...]) -> Self:
        """From a table by names: true class -> answer, or "review" -> cost. 'review' is then no class."""
        columns = (*classes, REVIEW_PRICE)
        for name in (*given, *(column for row in given.values() for column in row)):
            check_choice("class in the table of costs", name, columns)
        table = [
            [_checked(given.get(true, {}).get(name), f"{name!r} where {true!r} is true") for name in columns]
            for true in classes
        ]
        return cls(table=tuple(map(tuple, table)))

    @property
    def highest(self) -> float:
        """The most that a text may cost."""
        return max([self.wrong, self.review] if not self.table else [cost for row in self.table for cost in row])

    def expected(self, probs: Floats) -> Floats:
        """The expected cost of each answer, then that of a review, (rows, classes + 1), by probabilities."""
        if self.table:  # summed by row, so that a text has the same cost in any batch
            return np.asarray(np.einsum("rt,ta->ra", probs, np.array(self.table)))
        return np.column_stack([self.wrong * (1.0 - probs), np.full(len(probs), self.review)])

    def cheapest(self, probs: Floats) -> Integers:
        """(rows,): the column of the answer with the lowest expected cost."""
        return np.asarray(self.expected(probs)[:, :-1].argmin(axis=1))

    def saving(self, probs: Floats) -> Floats:
        """(rows,): the expected cost of a review minus that of the cheapest answer."""
        costs = self.expected(probs)
        return np.asarray(costs[:, -1] - costs[:, :-1].min(axis=1))

    def paid(self, gold: Integers, answers: Integers) -> Floats:
        """(rows, 2): what each answer costs by its true class, and what a review would."""
        if self.table:
            table = np.array(self.table)
            return np.column_stack([table[gold, answers], table[gold, -1]])
        return np.column_stack([self.wrong * (gold != answers), np.full(len(gold), self.review)])

    def share(self, paid: Floats, confidence: float, inclusion: Floats | None = None) -> "RiskInterval":
        """The mean of what was paid, (rows,), as a share of the highest cost; the interval holds for any costs."""
        from uatlite.trust.risk_interval import risk_interval

        return risk_interval(paid / self.highest, inclusion, counts=np.ones(len(paid)), confidence=confidence)


def _checked(value: object, of: str) -> float:
    with suppress(ValueError):
        if math.isfinite(cost := float(str(value))) and cost >= 0.0:
            return cost
    said = "missing" if value in (None, "") else repr(value)
    raise ConfigurationError(f"the cost of {of} is {said}; give a number, 0 or more.")


def best_in_hindsight(saving: Floats, paid: Floats) -> float:
    """The lowest mean cost of any threshold on the savings (rows,), by what was paid, (rows, 2); ties come together."""
    order = np.argsort(-saving, kind="stable")
    further = np.cumsum(np.append(0.0, paid[order, 0] - paid[order, 1]))
    apart = np.concatenate([[True], np.diff(saving[order]) != 0, [True]])  # no threshold parts equals
    return float((paid[:, 1].sum() + further[apart].min()) / len(saving))


@dataclass(frozen=True, kw_only=True)
class CostFigures:
    """What a text costs on average by the rule and otherwise, (estimate, low, high) each."""

    rule: tuple[float, float, float]
    answer_all: tuple[float, float, float]
    review_all: tuple[float, float, float]
    hindsight: float
    """by the threshold that turns out best on these very rows, which nobody knows beforehand"""

    def describe(self) -> str:
        """The costs in a few words."""
        ours, answers, reviews = (
            f"{mean:.4g}" if low == high else f"{mean:.4g} ({low:.4g} to {high:.4g})"
            for mean, low, high in (self.rule, self.answer_all, self.review_all)
        )
        others = f"answering all costs {answers}, reviewing all {reviews}"
        return f"that costs {ours} a text; {others}, the threshold that is best in hindsight {self.hindsight:.4g}"


def cost_rule(saving: Floats, paid: Floats, wrong: Marks, inside: Marks, wanted: "Wanted") -> "Rule":
    """The rule by costs, and what it costs: texts that are not `inside` the scope are reviewed; all (rows,).

    `paid` (rows, 2) is what the cheapest answer of each row costs by its true class, and what a review does.
    """
    from uatlite.trust.binomial import rule_at

    if not len(saving) or wanted.costs is None:
        raise CalibrationError("there are no calibration rows; give labelled rows that the model was not trained on.")
    saving = np.where(inside, saving, np.minimum(saving, 0.0))
    means = (
        wanted.costs.share(costs, wanted.confidence).times(wanted.costs.highest)
        for costs in (np.where(saving > 0.0, paid[:, 0], paid[:, 1]), paid[:, 0], paid[:, 1])
    )
    ours, answers, reviews = ((cost.risk, cost.low, cost.high) for cost in means)
    if len({row[-1] for row in wanted.costs.table}) < 2:  # the price of a review is known
        reviews = (float(paid[0, 1]),) * 3
    best = best_in_hindsight(saving, np.where(inside[:, None], paid, paid[:, 1:]))
    rule = rule_at(0.0, saving, wrong, wanted, ours[2])
    cost = CostFigures(rule=ours, answer_all=answers, review_all=reviews, hindsight=best)
    return replace(rule, promised=True, costs=wanted.costs, cost=cost)
