"""The sentences of an explanation: each case by hand, and numbers that are those of the prediction."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reference import Build, Sample
from uatlite.classifier.explanation import Comparison, Sentences, carriers, listed
from uatlite.classifier.one_class import ClassPredictions, class_answers
from uatlite.classifier.predictions import Prediction
from uatlite.predictive import predict
from uatlite.trust.rule import Rule
from uatlite.values import Word, WordAttribution

RULE = Rule(
    kind="risk", score="logit-margin", threshold=1.5, target=0.1, confidence=0.95, texts=100,
    answers=100, reported=80, errors=3,
    risk_bound=None, coverage=0.8, coverage_interval=(0.7, 0.9), promised=True,
)  # fmt: skip


def predicted(margin: float, rule: Rule | None = RULE, p_value: float | None = None, spread: float = 0.0) -> Prediction:
    """The second of two classes by a logit margin, from two passes this far from it."""
    return ClassPredictions(
        texts=("a text",),
        classes=("bad", "good"),
        **class_answers(predict(np.array([[[0.0, margin - spread]], [[0.0, margin + spread]]]))),
        passes=np.array([4]),
        rules=() if rule is None else (rule,),
        scope=None if p_value is None else np.array([p_value]),
        out_of_scope=None if p_value is None else np.array([p_value <= 0.01]),
    )[0]


def words(**shares: float) -> tuple[WordAttribution, ...]:
    return tuple(WordAttribution(Word(text, (1,), False), 0.1, share, share, None) for text, share in shares.items())


def summarised(prediction: Prediction, **changed: Any) -> Sentences:
    given = {"words": words(not_=0.3, bad=0.4, all=0.05), "interval": (0.4, 0.9), "band": None, "calibrated": True}
    return Sentences.of(SimpleNamespace(prediction=prediction, label="good", **{**given, **changed}))


def test_what_it_says_and_how_sure() -> None:
    assert summarised(predicted(1.0)).says == "The model says good and is 73.1% sure (calibrated)."
    says = summarised(predicted(1.0), calibrated=False).says
    assert says == "The model says good and is 73.1% sure, by probabilities that were not calibrated."


@pytest.mark.parametrize(
    ("prediction", "decision"),
    [
        (predicted(2.25), "It answers: its logit margin of 2.25 is 0.75 above the threshold of 1.50."),
        (predicted(1.0), "It abstains: its logit margin of 1.00 is 0.50 below the threshold of 1.50."),
        (predicted(1.5), "It abstains: its logit margin of 1.50 is not above the threshold, which is the same."),
        (
            predicted(1.0, replace(RULE, score="confidence", threshold=0.9)),
            "It abstains: its confidence of 73.1% is 16.9 points below the threshold of 90.0%.",
        ),
        (
            predicted(1.0, replace(RULE, threshold=math.inf)),
            "It abstains, as on every text: the calibration rows can promise nothing.",
        ),
        (predicted(1.0, replace(RULE, threshold=-math.inf)), "It answers, as every text."),
        (
            predicted(0.1, spread=2.0),
            "It abstains: its logit margin of 0.10 is 1.40 below the threshold of 1.50; dropout is enough to change "
            "its label.",
        ),
        (predicted(1.0, None), "It has no rule to abstain by."),
        (
            predicted(9.0, RULE, 0.002),
            "It abstains: the text is out of scope (p-value 0.002), unlike the calibration texts, so both label and "
            "confidence mean little.",
        ),
    ],
)
def test_the_decision_has_its_reason(prediction: Prediction, decision: str) -> None:
    assert summarised(prediction).decision == decision
    if prediction.among.rule is not None:
        assert decision.startswith("It abstains" if prediction.abstain else "It answers")


@pytest.mark.parametrize(
    ("margin", "changed", "doubt"),
    [
        (
            1.0,
            {},
            "Most of the doubt comes from “bad” and “not_” (70% of the variance); the 4 passes say between 40.0% and "
            "90.0%.",
        ),
        (
            1.0,
            {"words": words(a=0.2, b=0.12, c=0.11, d=0.1), "band": "a band"},
            "43% of the doubt comes from “a”, “b” and “c”, the rest is spread over the text; under dropout the "
            "probability would be between 40.0% and 90.0%.",
        ),
        (
            1.0,
            {"words": words(a=0.09), "interval": None},
            "No word carries a tenth of the doubt: it is spread over the text or belongs to the special tokens and "
            "the head.",
        ),
        (4.0, {"interval": (0.96, 0.99)}, "There is hardly any uncertainty: the 4 passes say between 96.0% and 99.0%."),
        (
            0.4,
            {"interval": (0.58, 0.61)},
            "Dropout hardly moves it (the 4 passes say between 58.0% and 61.0%): the doubt lies in the text as a "
            "whole, not in single words.",
        ),
    ],
)
def test_whose_doubt_it_is(margin: float, changed: dict[str, Any], doubt: str) -> None:
    assert summarised(predicted(margin), **changed).doubt == doubt


def test_at_most_three_words_carry_the_doubt() -> None:
    found = carriers(words(a=0.1, b=0.3, c=0.2, d=0.25, e=0.02))
    assert [word.word.text for word in found] == ["b", "d", "c"]
    assert carriers(()) == ()


def test_many_classes_are_listed_in_short() -> None:
    probabilities = {str(i): i / 45 for i in range(10)}
    found = listed(probabilities)
    assert [name for name, _ in found] == ["9", "8", "7", "6", "5", "5 others"]
    assert sum(value for _, value in found) == pytest.approx(1)
    assert listed({"b": 0.4, "a": 0.6}) == [("a", 0.6), ("b", 0.4)]


def test_the_threshold_of_the_predicted_class_is_compared(build: Build, labelled: Sample) -> None:
    clf = build("analytic").calibrate(*labelled(300), target_risk=0.6, per_class=True)
    found = clf.explain("a1 a2 a3", occlusion=False, attention=False)
    compared = Comparison.of(found.prediction)
    rule, column = clf.calibration_.rule, clf.class_names.index(found.label)
    assert compared.threshold == rule.per_kind[column].threshold
    assert (compared.value > compared.threshold) is (not found.prediction.abstain) or found.prediction.out_of_scope
    assert found.summary.says.startswith(f"The model says {found.label} and is {found.prediction.confidence:.1%} sure")
