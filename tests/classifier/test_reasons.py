"""Why a row is answered or not, against rules applied by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from uatlite.classifier.reasons import REASONS, above_threshold, passes_disagree, reasons, sentence
from uatlite.predictive import Predictive, predict
from uatlite.trust.rule import AbstentionRule, ClassPromise, fixed_threshold

PASSES = 4


def predictive_of(rows: list[list[float]]) -> Predictive:
    """Two classes; each row gives the first class's logit in every pass, the second's is 0."""
    logits = np.array([[[value, 0.0] for value in row] for row in rows])
    return predict(logits.transpose(1, 0, 2))


def rule_at(threshold: float, score: str = "logit-margin") -> AbstentionRule:
    rule = fixed_threshold([1.0, 2.0], np.array([True, False]), 1.5, score=score)
    return replace(rule, threshold=threshold)


STEADY, SHAKY = [0.5] * PASSES, [2.5, -1.5, 2.5, -1.5]  # both have a mean of 0.5
ROWS = predictive_of([[3.0] * PASSES, [3.0] * PASSES, STEADY, SHAKY, SHAKY, [3.0] * PASSES])


def test_one_reason_for_each_row() -> None:
    cut = np.array([0, 7, 7, 0, 0, 7])
    outside = np.array([False, False, False, False, True, True])
    found = reasons(ROWS, rule_at(1.0), out_of_scope=outside, cut=cut)
    assert found == [
        "answered", "cut", "below the threshold", "passes disagree", "out of scope", "out of scope"
    ]  # fmt: skip
    assert set(found) <= set(REASONS)
    assert all(type(reason) is str for reason in found)


def test_without_a_rule_nothing_is_answered() -> None:
    outside = np.array([True, False, False, False, False, False])
    found = reasons(ROWS, None, out_of_scope=outside, cut=np.array([5, 5, 0, 0, 0, 0]))
    assert found == ["out of scope", "cut", *["no rule"] * 4]
    assert reasons(ROWS, None, out_of_scope=None, cut=np.zeros(6, dtype=np.int64)) == ["no rule"] * 6


def test_a_rule_that_promises_nothing_is_its_own_reason() -> None:
    none = np.zeros(6, dtype=np.int64)
    assert reasons(ROWS, rule_at(math.inf), out_of_scope=None, cut=none) == ["no promise"] * 6
    assert reasons(ROWS, rule_at(-math.inf), out_of_scope=None, cut=none) == ["answered"] * 6


def test_a_rule_by_the_passes_abstains_because_they_disagree() -> None:
    none = np.zeros(6, dtype=np.int64)
    found = reasons(ROWS, rule_at(-1e-6, "variance"), out_of_scope=None, cut=none)
    assert found == ["answered", "answered", "answered", "passes disagree", "passes disagree", "answered"]


def test_thresholds_of_classes() -> None:
    """The rows are of class 0, but for the last: its class is never answered."""
    rows = predictive_of([[3.0], [0.5], [-3.0]])
    common = {"asked": True, "rows": 9, "answered": 5, "errors": 0}
    classes = (
        ClassPromise(name="yes", threshold=1.0, promised=True, **common),
        ClassPromise(name="no", threshold=math.inf, promised=False, **common),
    )
    rule = replace(rule_at(1.0), per_class=classes)
    assert above_threshold(rule, rows).tolist() == [2.0, -0.5, -math.inf]
    found = reasons(rows, rule, out_of_scope=None, cut=np.zeros(3, dtype=np.int64))
    assert found == ["answered", "below the threshold", "no promise"]


def test_passes_disagree_where_one_standard_deviation_turns_the_label() -> None:
    """By hand: p = sigmoid of the logit; the label turns below 1/2."""
    sigmoid = 1 / (1 + np.exp(-np.array(SHAKY)))
    assert ROWS.confidence[3] - sigmoid.std(ddof=1) < 0.5
    assert passes_disagree(ROWS).tolist() == [False, False, False, True, True, False]
    assert not passes_disagree(predictive_of([[0.0]])).any()  # one pass cannot disagree


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"reason": "answered", "above_threshold": 0.834}, "answered, 0.83 above the threshold"),
        ({"reason": "answered", "above_threshold": None}, "answered"),
        ({"reason": "answered", "above_threshold": 0.834, "labels": ["joy"]}, "answered, 0.83 above the threshold"),
        (
            {"reason": "answered", "above_threshold": -0.874, "labels": []},
            "no label is likely enough, the highest score is 0.87 below the threshold",
        ),
        ({"reason": "answered", "above_threshold": None, "labels": []}, "no label is likely enough"),
        ({"reason": "below the threshold", "above_threshold": -0.416}, "0.42 below the threshold"),
        ({"reason": "passes disagree", "above_threshold": -1.2}, "passes disagree, 1.2 below the threshold"),
        ({"reason": "out of scope", "scope": 0.0011, "above_threshold": 2.0}, "out of scope, p = 0.0011"),
        ({"reason": "cut", "cut_tokens": 1212}, "1,212 tokens were cut off"),
        ({"reason": "no promise", "above_threshold": None}, "no risk can be promised"),
        ({"reason": "no rule"}, "no rule to abstain by"),
    ],
)
def test_the_reason_in_a_sentence(row: dict[str, object], expected: str) -> None:
    assert sentence(row) == expected
