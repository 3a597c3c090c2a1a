"""The verdict of an evaluation: which contender to use at each cost, which ones are level with it, which ones it beats.

One contender beats another on a set if the paired interval of their difference in one proper score excludes 0; else
the two are level. At a cost, the contender to use is the cheapest one that no other contender within that cost beats;
of equally cheap ones, the one with the better mean. Each pair is tested by itself, at the confidence of the intervals.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from uatlite.lab.evaluate.comparison import Relation, Score, Scores, relation
from uatlite.lab.evaluate.outcomes import DIRECTIONS

COSTS = (1.0, 2.0, 5.0, 10.0)
"""Passes of a text; the dearest contender's own are added where it takes more."""
METRIC = "nll"
"""The proper score that the verdict is by; the first scored metric with a better direction where it was not scored."""


@dataclass(frozen=True)
class Choice:
    """The contender to use where a text may cost so many passes; the others are those within this cost."""

    passes: float
    contender: str
    level: tuple[str, ...]
    """others that it can not be told from"""
    beaten: tuple[str, ...]
    """others that it beats"""


@dataclass(frozen=True)
class Verdict:
    """What to use, by one metric on the first set; and who beats it on the other sets."""

    metric: str
    set: str
    choices: tuple[Choice, ...]
    """from the lowest cost to the highest"""
    beaten_by: Mapping[str, Mapping[str, tuple[str, ...]]]
    """shifted set -> contender to use -> those within its cost or beyond that beat it there"""

    @property
    def recommended(self) -> str:
        """The contender to use where cost is no matter: the cheapest that none beats."""
        return self.choices[-1].contender

    @property
    def distinct(self) -> tuple[str, ...]:
        """The contenders to use, each once, from cheap to dear."""
        return tuple(dict.fromkeys(choice.contender for choice in self.choices))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "recommended": self.recommended}


def verdict_metric(metrics: Sequence[str]) -> str | None:
    """The metric that the verdict is by; None where no scored metric has a better direction."""
    return METRIC if METRIC in metrics else next((name for name in metrics if DIRECTIONS[name] is not None), None)


def verdict_of(
    sets: Iterable[tuple[str, Scores]], costs: Mapping[str, float], metrics: Sequence[str]
) -> Verdict | None:
    """The verdict from the name and the scores of each set, and what a text costs each contender, in passes.

    None where there is nothing to choose: a single contender, or no metric with a better direction.
    """
    metric = verdict_metric(metrics)
    if metric is None or len(costs) < 2:
        return None
    (name, scores), *shifted = ((name, {one: of[metric] for one, of in scores.items()}) for name, scores in sets)
    dearest = max(costs.values())
    budgets = (*COSTS, *([dearest] if dearest > COSTS[-1] else []))
    choices = (_choice(scores, metric, budget, costs) for budget in budgets)
    found = tuple(choice for choice in choices if choice is not None)
    used = dict.fromkeys(choice.contender for choice in found)
    return Verdict(
        metric=metric,
        set=name,
        choices=found,
        beaten_by={other: {one: beaten_by(one, of, metric) for one in used} for other, of in shifted},
    )


def beaten_by(contender: str, scores: Mapping[str, Score], metric: str) -> tuple[str, ...]:
    """The contenders that beat this one on a set: contender -> score of the metric."""
    return tuple(
        other for other in scores if other != contender and _stands(scores, contender, other, metric) == "worse"
    )


def _choice(scores: Mapping[str, Score], metric: str, budget: float, costs: Mapping[str, float]) -> Choice | None:
    within = {name: score for name, score in scores.items() if costs[name] <= budget}
    if not within:
        return None
    sign = 1 if DIRECTIONS[metric] == "lower" else -1
    unbeaten = [name for name in within if not beaten_by(name, within, metric)]
    chosen = min(unbeaten, key=lambda name: (costs[name], sign * within[name].mean))
    stands = {other: _stands(scores, chosen, other, metric) for other in within if other != chosen}
    return Choice(
        passes=budget,
        contender=chosen,
        level=tuple(other for other, how in stands.items() if how == "level"),
        beaten=tuple(other for other, how in stands.items() if how == "better"),
    )


def _stands(scores: Mapping[str, Score], one: str, other: str, metric: str) -> Relation:
    better = DIRECTIONS[metric]
    assert better is not None  # `verdict_metric` chose it so
    return relation(scores[one].differences[other], better)
