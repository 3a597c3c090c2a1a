"""The search that every promise is made by: hypotheses in an order that is fixed beforehand, and the test of each.

A planner (binomial.py of rows, bets.py of texts with any number of answers) says the order and the test for a target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from uatlite.trust.answers import check_texts
from uatlite.trust.rule import ranks
from uatlite.values import Floats, Integers, Marks, check_scores

RISKS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.10, 0.15, 0.20)
"""The risks on a menu; the nearest that can be promised is looked for among these and `HIGHER_RISKS`."""

HIGHER_RISKS = (0.25, 0.30, 0.40, 0.50)

POWER, MOST_ROWS = 0.8, 1_000_000
"""An estimate of the rows needed is for a promise with this probability, and is given up to this many rows."""

PILOT_SHARE = 0.1
"""The share of labelled texts that is set aside to plan with, where nothing else is known."""


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


def pilot_rows(rows: int, seed: int, most: int) -> Marks:
    """Which rows are set aside to plan with, (rows,): a tenth, at least one and at most `most`."""
    size = min(max(1, round(PILOT_SHARE * rows)), most)
    return np.asarray(np.random.default_rng(seed).permutation(rows) < size)


def two_digits(count: int) -> int:
    """A count rounded up to two digits, which are enough for an estimate."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores (answers,) of the answers of some texts, the text (answers,) of each, ascending, and how many texts.

    `wrong` (answers,) are those that are wrong, where that is known, and `chances` (answers,) the probabilities that
    each is wrong to plan with.
    """

    scores: Floats
    text: Integers
    texts: int
    wrong: Marks | None = None
    chances: Floats | None = None

    def __post_init__(self) -> None:
        check_texts(self.text, answers=len(check_scores(self.scores)), texts=self.texts)

    @cached_property
    def ranks(self) -> Integers:
        """The rank of each answer within its text, (answers,): 0 for the surest; the first of equals comes first."""
        return ranks(self.scores, self.text)

    def shown(self, threshold: float, most: int) -> Marks:
        """(answers,): which are reported."""
        return np.asarray((self.scores > threshold) & (self.ranks < most))

    def tally(self, chosen: Marks) -> Floats:
        """(texts,): how many of the chosen answers, (answers,), each text has."""
        return np.bincount(self.text[chosen], minlength=self.texts).astype(np.float64)

    @property
    def errors(self) -> Marks:
        """(answers,): which are wrong; of labelled texts."""
        assert self.wrong is not None
        return self.wrong
