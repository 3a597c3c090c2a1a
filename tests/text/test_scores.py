"""Columns of scores are recognised in every form, rows are read by stated rules, and what is wrong is a sentence."""

import json

import numpy as np
import pytest

from uatlite.errors import DataError, InputError
from uatlite.text.scores import find_columns

P = {"p_no": 0.2, "p_yes": 0.7, "p_maybe": 0.1}
NAMED = {"no": 0.2, "yes": 0.7, "maybe": 0.1}
SORTED = ["maybe", "no", "yes"]


def columns_of(*rows, gold="gold", **asked):
    return find_columns(rows, gold=gold, **asked)


def probs_of(row, columns=None, **asked):
    """Class -> probability, as a softmax of what is read of a row; the columns are by default found in it alone."""
    columns = columns or columns_of(row, **asked)
    exponentials = np.exp(columns.read(row).logits)
    return dict(zip(columns.classes, exponentials / exponentials.sum(), strict=True))


@pytest.mark.parametrize(
    "row",
    [
        P,
        {name: str(value) for name, value in P.items()},
        {name.replace("p_", "logit_"): np.log(value) + 3.0 for name, value in P.items()},
        {name.replace("p_", "logprob_"): np.log(value) for name, value in P.items()},
        {"probs": NAMED},
        {"probs": json.dumps(NAMED)},
        {"probs": str(NAMED)},
        {"probabilities": [{"label": name, "score": value} for name, value in NAMED.items()]},
        {"top_logprobs": [{"token": name, "logprob": float(np.log(value))} for name, value in NAMED.items()]},
        {"logits": {name: np.log(value) - 5.0 for name, value in NAMED.items()}},
        {"logits": [np.log(0.2), np.log(0.7), np.log(0.1)], "order": ["no", "yes", "maybe"]},
    ],
    ids=lambda row: next(iter(row)),
)
def test_every_form_gives_the_same_probabilities(row):
    asked = {"order": row["order"]} if "order" in row else {}
    assert probs_of(row, **asked) == pytest.approx(NAMED)


def test_a_class_with_its_confidence():
    rows = [{"label": name, "confidence": "0.9", "gold": "no"} for name in ("yes", "maybe")]
    columns = columns_of(*rows)
    assert columns.classes == ("maybe", "no", "yes")  # gold that was never predicted too
    assert probs_of(rows[0], columns) == pytest.approx({"maybe": 0.05, "no": 0.05, "yes": 0.9})
    below_chance = probs_of({"label": "maybe", "confidence": 0.1}, columns)
    assert max(below_chance, key=below_chance.get) == "maybe"
    assert below_chance["maybe"] == pytest.approx(1 / 3, abs=1e-5)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"yes": 0.7, "no": 0.2}, {"yes": 0.7, "no": 0.2, "maybe": 0.05, "never": 0.05}),
        ({"yes": 0.5, "no": 0.01}, {"yes": 0.5 / 0.53, "no": 0.01 / 0.53, "maybe": 0.01 / 0.53, "never": 0.01 / 0.53}),
    ],
)
def test_what_a_truncated_row_leaves_out_shares_the_rest(given, expected):
    columns = columns_of({"probs": dict.fromkeys(expected, 0.25)})
    assert probs_of({"probs": given}, columns) == pytest.approx(expected, rel=1e-5)
    logprobs = columns_of({"logprobs": dict.fromkeys(expected, -2.0)})
    logs = {name: float(np.log(value)) for name, value in given.items()}
    assert probs_of({"logprobs": logs}, logprobs) == pytest.approx(expected, rel=1e-5)


def test_a_probability_of_zero_is_half_the_smallest():
    rows = [{"p_a": 1, "p_b": 0}, {"p_a": 0.996, "p_b": 0.004}]
    columns = columns_of(*rows)
    assert columns.read(rows[0]).logits == pytest.approx((0.0, np.log(0.002)))
    assert columns.read(rows[1]).logits == pytest.approx((np.log(0.996), np.log(0.004)))
    assert columns.read({"p_a": 0.9999, "p_b": 0.0001}).logits[1] == pytest.approx(np.log(0.0001))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"p_no": 0.2, "p_yes": 0.7, "p_maybe": 0.3}, "the probabilities sum to 1.2, not to 1"),
        ({"p_no": 0.2, "p_yes": 0.7, "p_maybe": 0.0}, "the probabilities sum to 0.9, not to 1"),
        ({"p_no": 2.2, "p_yes": -1.3, "p_maybe": 0.1}, "the probability of 'no' is 2.2: not from 0 to 1"),
        ({"p_no": float("nan"), "p_yes": 0.7, "p_maybe": 0.3}, "the score of 'no' is nan, not a finite number"),
        ({"p_no": "much", "p_yes": 0.7, "p_maybe": 0.3}, "p_no holds 'much', where a number is needed"),
        ({"p_no": None, "p_yes": "", "p_maybe": None}, "no score of 'no' in p_no, p_yes, p_maybe"),
    ],
)
def test_a_row_that_cannot_be_used(row, said):
    with pytest.raises(InputError) as raised:
        columns_of(P).read(row)
    assert str(raised.value) == said


AB, CONFIDENT = {"probs": {"a": 0.5, "b": 0.5}}, {"predicted": "a", "confidence": 1, "gold": "b"}
EMBEDDED = {**P, "embedding": [1, 2]}


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ({"logprob_a": -1, "logprob_b": -1}, {"logprob_a": 0.5, "logprob_b": -1}, "of 'a' is 0.5: above 0"),
        ({"logit_a": 4, "logit_b": 1}, {"logit_a": 4, "logit_b": ""}, "no score of 'b'"),
        (AB, {"probs": {"a": 0.5, "c": 0.5}}, "probs has the class 'c', which is none of a, b"),
        (AB, {"probs": [0.2, 0.3, 0.5]}, "probs has 3 numbers, for 2 classes"),
        (AB, {"probs": "0.5"}, "probs holds 0.5, which is neither a list nor an object"),
        (CONFIDENT, {"predicted": "c", "confidence": 1}, "predicted is 'c', which is none of a, b"),
        (CONFIDENT, {"predicted": "a", "confidence": 95}, "the probability of 'a' is 95: not from 0 to 1"),
        (EMBEDDED, {**P, "embedding": [1, 2, 3]}, "embedding has 3 numbers, and at calibration it had 2"),
        (EMBEDDED, {**P, "embedding": [1, float("nan")]}, "embedding is not a list of finite numbers"),
    ],
)
def test_a_row_that_does_not_fit_the_calibration(good, bad, said):
    with pytest.raises(InputError, match=said):
        columns_of(good).read(bad)


def test_what_is_read_is_said():
    assert columns_of({**P, "embedding": "[1, 2]"}).describe() == (
        "Scores: probabilities of 3 classes (p_no, p_yes, p_maybe), with embeddings of 2 numbers (embedding)."
    )
    assert columns_of({**P, "probs": NAMED}).columns == ("probs",)
    assert columns_of({**P, "logits": NAMED}, gold="label").form == "logit"
    for row, said in (
        ({"text": "a", "gold": "b"}, "No scores in the columns text, gold"),
        ({"probs": [0.5, 0.5]}, "name them in order: --label-order a,b"),
        ({"label": "a", "confidence": 0.3}, "No scores in the columns label, confidence"),
        ({"predicted": "a", "confidence": 0.3, "label": "a"}, "The scores are of 1 class; it takes two or more"),
    ):
        with pytest.raises(DataError, match=said):
            columns_of(row, gold="label")


def test_another_file_has_the_same_columns_or_says_why_not():
    columns = columns_of({**P, "embedding": [1.0]})
    assert columns.matched(["id", "p_yes", "p_no", "p_maybe", "embedding"]) == columns  # they are read by name
    kept = columns.matched(["id", "logits", "p_no", "p_yes", "p_maybe", "embedding"])  # as predict writes it
    assert (kept.form, kept.columns, kept.classes) == ("logit", ("logits",), columns.classes)
    for names, said in (
        (["p_no", "p_yes", "embedding"], "There is no column 'p_maybe'; the columns are: p_no, p_yes, embedding"),
        (["logit_no", "logit_yes", "logit_maybe"], "Scores of another model, or in another form, need a calibration"),
        ([*P], "There is no column 'embedding'.*embeddings are given by --embeddings"),
        ([*P, "p_never", "embedding"], "'p_never' is of a class that the calibration has never seen; it knows no, yes"),
    ):
        with pytest.raises(DataError, match=said):
            columns.matched(names)
