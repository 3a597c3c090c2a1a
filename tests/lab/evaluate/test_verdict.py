"""The verdict: the cheapest contender that none within its cost beats, against a slow reading of the same words."""

from itertools import product

import numpy as np
import pytest

from uatlite.lab.evaluate.compare import Score
from uatlite.lab.evaluate.verdict import COSTS, Verdict, relation, verdict_metric, verdict_of
from uatlite.metrics.bootstrap import Interval

Values = dict[str, float]


def scores_of(values: Values, width: float, metric: str = "nll") -> dict[str, dict[str, Score]]:
    """Contenders with these means; every paired interval reaches `width` to both sides of the difference."""
    return {
        name: {
            metric: Score(
                (value,),
                value - width,
                value + width,
                {
                    other: Interval(value - than, value - than - width, value - than + width)
                    for other, than in values.items()
                    if other != name
                },
            )
        }
        for name, value in values.items()
    }


def verdict(values: Values, costs: Values, width: float = 0.05, shifted: Values | None = None) -> Verdict:
    sets = [("in/test", scores_of(values, width))] + ([("out/test", scores_of(shifted, width))] if shifted else [])
    found = verdict_of(sets, costs, ["accuracy", "nll"])
    assert found is not None
    return found


def test_one_that_nothing_beats_is_used_at_every_cost() -> None:
    found = verdict({"base": 0.4, "base+ts": 0.3, "uat": 0.29}, {"base": 1, "base+ts": 1, "uat": 10})
    assert [choice.passes for choice in found.choices] == list(COSTS)
    assert found.distinct == ("base+ts",)
    assert (found.choices[0].level, found.choices[0].beaten) == ((), ("base",))
    assert (found.choices[-1].level, found.choices[-1].beaten) == (("uat",), ("base",))
    assert found.recommended == "base+ts"


def test_a_dearer_one_is_used_from_the_cost_on_at_which_it_beats_the_cheap_one() -> None:
    costs = {"base": 1, "analytic": 2, "fast": 2.8, "uat": 10, "more": 20}
    found = verdict({"base": 0.4, "analytic": 0.34, "fast": 0.33, "uat": 0.3, "more": 0.31}, costs, width=0.035)
    assert {choice.passes: choice.contender for choice in found.choices} == {
        1: "base", 2: "analytic", 5: "analytic", 10: "fast", 20: "fast"
    }  # fmt: skip
    assert found.choices[2].level == ("fast",)
    assert found.distinct == ("base", "analytic", "fast")


def test_a_cost_that_none_meets_has_no_choice() -> None:
    found = verdict({"mc": 0.4, "uat": 0.3}, {"mc": 10, "uat": 10})
    assert [(choice.passes, choice.contender) for choice in found.choices] == [(10, "uat")]


def test_of_equal_cost_the_better_mean_is_used_and_the_other_is_level() -> None:
    found = verdict({"a": 0.31, "b": 0.3}, {"a": 1, "b": 1})
    assert (found.recommended, found.choices[0].level) == ("b", ("a",))


def test_those_that_beat_it_under_shift_are_named() -> None:
    found = verdict({"a": 0.3, "b": 0.4}, {"a": 1, "b": 1}, shifted={"a": 0.5, "b": 0.4})
    assert found.beaten_by == {"out/test": {"a": ("b",)}}
    assert verdict({"a": 0.3, "b": 0.4}, {"a": 1, "b": 1}, shifted={"a": 0.4, "b": 0.4}).beaten_by["out/test"] == {
        "a": ()
    }


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_words_say(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = {f"m{place}": float(value) for place, value in enumerate(generator.uniform(0.2, 0.5, size=6))}
    costs = {name: float(generator.choice([1, 1, 2, 2.5, 5, 10])) for name in values}
    found = verdict(values, costs)
    for choice in found.choices:
        within = [name for name in values if costs[name] <= choice.passes]
        beaten = {b for a, b in product(within, within) if values[a] + 0.05 < values[b]}
        cheapest = min(costs[name] for name in within if name not in beaten)
        candidates = [name for name in within if name not in beaten and costs[name] == cheapest]
        assert values[choice.contender] == min(values[name] for name in candidates)
        others = set(within) - {choice.contender}
        assert set(choice.level) == {name for name in others if abs(values[name] - values[choice.contender]) <= 0.05}
        assert set(choice.beaten) == {name for name in others if values[name] > values[choice.contender] + 0.05}


def test_relations_follow_the_direction_of_the_metric() -> None:
    below, across, unknown = Interval(-1, -2, -0.5), Interval(-1, -2, 0.5), Interval(np.nan, np.nan, np.nan)
    assert [relation(below, "lower"), relation(below, "higher")] == ["better", "worse"]
    assert relation(across, "lower") == relation(unknown, "lower") == "level"


def test_the_metric_is_nll_or_the_first_with_a_direction() -> None:
    assert verdict_metric(["accuracy", "nll"]) == "nll"
    assert verdict_metric(["coverage@0.9", "aurc", "ece"]) == "aurc"
    assert verdict_metric(["coverage@0.9"]) is None
    higher = verdict_of([("a", scores_of({"x": 0.9, "y": 0.8}, 0.05, "accuracy"))], {"x": 1, "y": 1}, ["accuracy"])
    assert higher is not None
    assert higher.recommended == "x"


def test_without_a_choice_there_is_no_verdict() -> None:
    assert verdict_of([("a", scores_of({"x": 0.3}, 0.05))], {"x": 1}, ["nll"]) is None
    assert (
        verdict_of([("a", scores_of({"x": 1, "y": 1}, 0.05, "coverage@0.9"))], {"x": 1, "y": 1}, ["coverage@0.9"])
        is None
    )
