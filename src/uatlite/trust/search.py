"""The search that every promise is made by: hypotheses in an order that is fixed beforehand, and the test of each.

A planner (planners.py) says the order, the test and the rule for a target. The promise and the menu of risks are then
made in one way, with the reason why others cannot be promised and how many texts it would take.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from uatlite.trust.rule import Menu, RiskLine, Rule, Wanted
from uatlite.values import Floats, Integers, Marks

RISKS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.10, 0.15, 0.20)
"""The risks on a menu; the nearest that can be promised is looked for among these and `HIGHER_RISKS`."""

HIGHER_RISKS = (0.25, 0.30, 0.40, 0.50)


@dataclass(frozen=True, eq=False)
class Plan:
    """The hypotheses "the risk is above the target" in the order of their tests, all from texts that do not decide.

    starts: the place where a search begins, ascending, and its part of the level; none where nothing can be promised.
    most (hypotheses,): how many answers a text may report. planned (hypotheses, 2): mean and mean square of the answers
    of a text that has any. Both are None where each text has one.
    """

    thresholds: Floats
    """(hypotheses,), in falling order"""
    starts: Sequence[tuple[int, float]]
    most: Integers | None = None
    planned: Floats | None = None


Test = Callable[[slice, Floats], Marks]
"""Some hypotheses of a plan and levels, ascending -> whether each is rejected at each level, (hypotheses, levels)."""


def search(plan: Plan, test: Test) -> int | None:
    """The last place of the plan at which "the risk is above the target" was rejected; None if it was nowhere.

    Each search goes from its start to the next start: if it gets there, it passes its level on, else the level is lost
    (the fallback procedure of Wiens, 2003). So a search has one of several levels, which are all tested.
    """
    last, handed_on = None, 0.0
    ends = [*(begin for begin, _ in plan.starts[1:]), len(plan.thresholds) - 1]
    for number, ((begin, level), end) in enumerate(zip(plan.starts, ends, strict=False)):
        levels = np.cumsum([part for _, part in plan.starts[: number + 1]][::-1])  # its own, and those before it
        at_level = int(np.argmin(np.abs(levels - level - handed_on)))
        rejected = test(slice(begin, end + 1), levels)[:, at_level]
        passed = len(rejected) if rejected.all() else int(np.argmin(rejected))
        last = begin + passed - 1 if passed else last
        handed_on = handed_on + level if rejected.all() else 0.0
    return last


@dataclass(frozen=True, eq=False)
class Planner(ABC):
    """Labelled texts, what is wanted of them, and texts that plan."""

    wanted: Wanted

    @abstractmethod
    def plan(self, target: float) -> Plan:
        """The hypotheses and where to begin."""

    @abstractmethod
    def test(self, plan: Plan, target: float) -> Test:
        """How the hypotheses of a plan are tested."""

    @abstractmethod
    def rule(self, plan: Plan, target: float, place: int | None) -> Rule:
        """The rule of the hypothesis at a place; without one that which reports nothing."""

    @abstractmethod
    def why_not(self, target: float) -> str:
        """Why the target cannot be promised, and a way out."""

    def needed(self, target: float) -> int | None:
        """The fewest labelled texts with which the target is promised with probability 0.8; None if more will not do.

        To two digits, which are enough for an estimate.
        """
        return None

    def searched(self, target: float) -> Rule:
        """The rule of the search."""
        plan = self.plan(target)
        return self.rule(plan, target, search(plan, self.test(plan, target)))

    def promise(self, target: float) -> Rule:
        """The rule of the search; where nothing is promised, with the reason."""
        rule = self.searched(target)
        return rule if rule.promised else replace(rule, reason=self.why_not(target))

    def nearest(self, target: float) -> float | None:
        """The lowest of the usual risks above the target that these texts promise."""
        return next((risk for risk in RISKS + HIGHER_RISKS if risk > target and self.searched(risk).promised), None)

    def menu(self) -> Menu:
        """What the labelled texts promise for each of `RISKS`."""
        rules = [self.searched(target) for target in RISKS]
        lines = tuple(
            RiskLine(target=target, rule=rule, texts_needed=None)
            if rule.promised
            else RiskLine(target=target, rule=None, texts_needed=self.needed(target))
            for target, rule in zip(RISKS, rules, strict=True)
        )
        wanted, texts = self.wanted, rules[0].texts
        return Menu(score=wanted.score, confidence=wanted.confidence, texts=texts, lines=lines)
