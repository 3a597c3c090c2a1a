"""Predictions as a value: reading, printing, and why a row is answered or not, against rules applied by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from reference import rule_of
from uatlite.classifier.display import REASONS, sentence
from uatlite.classifier.one_class import ClassPredictions, class_answers
from uatlite.classifier.predictions import Prediction
from uatlite.predictive import predict
from uatlite.trust.rule import KindPromise


@pytest.fixture
def pred(calibrated, made_texts):
    return calibrated.predict([*made_texts(13), ("a1 <b>a2</b>", "a3")])


def test_one_row_agrees_with_the_columns(pred):
    assert len(pred) == 14
    plural = {"label": "labels", "label_set": "label_sets", "reason": "reasons", "text": "texts"}
    measures = ("abstain", "confidence", "entropy", "expected_entropy", "mutual_information", "margin", "variance")
    for row, one in enumerate(pred):
        assert isinstance(one, Prediction)
        assert one.probabilities == dict(zip(pred.classes, pred.probabilities[row], strict=True))
        for name, of_all in {**plural, **dict(zip(measures, measures, strict=True))}.items():
            assert getattr(one, name) == getattr(pred, of_all)[row]
        below = one.above_threshold is not None and one.above_threshold <= 0
        assert one.abstain == (below or one.out_of_scope)
        assert (one.reason in ("below the threshold", "unstable under dropout")) == (below and not one.out_of_scope)
    assert pred[-1].text == ("a1 <b>a2</b>", "a3")
    with pytest.raises(IndexError):
        pred[14]


def test_as_an_array_it_is_its_labels(pred):
    assert np.asarray(pred).tolist() == pred.labels.tolist()
    assert np.asarray(pred, dtype=object).dtype == object


def test_it_prints_what_matters_in_few_lines(pred):
    lines = repr(pred).splitlines()
    assert lines[0].startswith("14 predictions of 3 classes, ")
    assert "%)" in lines[0]
    assert " ".join(lines[1].split()) == (
        "label abstain reason label set confidence entropy mutual information scope text"
    )
    assert lines[12] == "… and 4 more"
    assert len(lines) == 13
    assert "p_good" in repr(pred[0])
    assert "\n" not in repr(pred[0]).splitlines()[0]


def test_html_escapes_what_the_user_wrote(pred):
    html = pred[-1:]._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_rows_cost_the_same_however_many_there_are(pred):
    """A table of many rows must not compute all labels anew for each of them."""
    many = pred[np.zeros(200_000, dtype=np.int64)]
    rows = many.rows()
    assert next(rows)["label"] == many[199_999].label
    assert sum(1 for _, row in zip(range(2000), rows, strict=False) if row["abstain"] == many[0].abstain) == 2000


PASSES = 4


def said_about(rows, **fields):
    """Two classes; each row gives the first class's logit in every pass, the second's is 0."""
    logits = np.array([[[value, 0.0] for value in row] for row in rows]).transpose(1, 0, 2)
    texts = tuple(map(str, range(len(rows))))
    passes = np.full(len(rows), PASSES)
    return ClassPredictions(
        texts=texts, classes=("yes", "no"), passes=passes, **class_answers(predict(logits)), **fields
    )


def rule_at(threshold, score="logit-margin"):
    rule = rule_of([1.0, 2.0], np.array([True, False]), 1.5, "threshold", score=score)
    return replace(rule, threshold=threshold)


STEADY, SHAKY = [0.5] * PASSES, [2.5, -1.5, 2.5, -1.5]  # both have a mean of 0.5
ROWS = [[3.0] * PASSES, [3.0] * PASSES, STEADY, SHAKY, SHAKY, [3.0] * PASSES]


OUTSIDE = np.array([False, False, False, False, True, True])
CUT = np.array([0, 7, 7, 0, 0, 7])


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        (
            {"rules": (rule_at(1.0),), "out_of_scope": OUTSIDE, "cut": CUT},
            ["answered", "cut", "below the threshold", "unstable under dropout", "out of scope", "out of scope"],
        ),
        ({"out_of_scope": OUTSIDE[::-1], "cut": CUT}, [*["out of scope"] * 2, "cut", *["no rule"] * 2, "cut"]),
        ({}, ["no rule"] * 6),
        ({"rules": (rule_at(math.inf),)}, ["no promise"] * 6),
        ({"rules": (rule_at(-math.inf),)}, ["answered"] * 6),
        ({"rules": (rule_at(-1e-6, "variance"),)}, [*["answered"] * 3, *["unstable under dropout"] * 2, "answered"]),
    ],
)
def test_one_reason_for_each_row(fields, reasons):
    said = said_about(ROWS, **fields)
    assert said.reasons == reasons
    assert set(reasons) <= set(REASONS)
    assert all(type(reason) is str for reason in said.reasons)
    if said.rules:
        assert said.abstain.tolist() == [reason not in ("answered", "cut") for reason in reasons]


def test_thresholds_of_classes():
    """The rows are of class 0, but for the last: its class is never answered."""
    common = {"asked": True, "answers": 9, "reported": 5, "errors": 0}
    classes = (
        KindPromise(name="yes", threshold=1.0, promised=True, **common),
        KindPromise(name="no", threshold=math.inf, promised=False, **common),
    )
    said = said_about([[3.0], [0.5], [-3.0]], rules=(replace(rule_at(1.0), per_kind=classes),))
    np.testing.assert_array_equal(said.above_threshold, [2.0, -0.5, math.nan])
    assert said.reasons == ["answered", "below the threshold", "no promise"]


def test_unstable_where_one_standard_deviation_turns_the_label():
    """By hand: p = sigmoid of the logit; the label turns below 1/2."""
    said, chances = said_about(ROWS), 1 / (1 + np.exp(-np.array(SHAKY)))
    assert said.confidence[3] - chances.std(ddof=1) < 0.5
    assert said.unstable.tolist() == [False, False, False, True, True, False]
    assert not said_about([[0.0]]).unstable.any()  # one pass says nothing of others


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
        (
            {"reason": "unstable under dropout", "above_threshold": -1.2},
            "unstable under dropout, 1.2 below the threshold",
        ),
        ({"reason": "out of scope", "scope": 0.0011, "above_threshold": 2.0}, "out of scope, p = 0.0011"),
        ({"reason": "cut", "cut_tokens": 1212}, "1,212 tokens were cut off"),
        ({"reason": "no promise", "above_threshold": None}, "no risk can be promised"),
        ({"reason": "no rule"}, "no rule to abstain by"),
    ],
)
def test_the_reason_in_a_sentence(row, expected):
    assert sentence(row) == expected
