"""From a row to an example: what is text, what is a label, and what is said of a row that has neither."""

import json

import pytest

from uatlite.errors import DataError, InputError
from uatlite.text.examples import content_key, example_of, read_examples, require_columns, text_of
from uatlite.text.labels import LabelIndex
from uatlite.text.rows import Reject, Row
from uatlite.text.schema import Layout
from uatlite.values import Choices, Example


def jsonl(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("values", "layout", "text"),
    [
        ({"text": " one \n"}, Layout(), "one"),
        ({"a": "p", "b": "h"}, Layout("a", "b"), ("p", "h")),
        ({"data": {"Question": "q"}}, Layout("data.Question"), "q"),
        ({"data.Question": "flat"}, Layout("data.Question"), "flat"),
        ({"text": "q", "context": ["one.", "two."]}, Layout(pair="context"), ("q", "one. two.")),
        ({"text": "a<br />b"}, Layout(replace=(("<br />", "\n"),)), "a\nb"),
        ({"text": "q", "o": {"B": "y", "A": "x"}}, Layout(options="o"), Choices("q", ("x", "y"))),
        ({"text": "q", "o": {"A": "x", "B": "y", "C": None}}, Layout(options="o"), Choices("q", ("x", "y"))),
        ({"text": "q", "o": '["x", "y"]'}, Layout(options="o"), Choices("q", ("x", "y"))),
    ],
)
def test_texts(values, layout, text):
    assert text_of(values, layout) == text


@pytest.mark.parametrize(
    ("values", "layout", "reason"),
    [
        ({}, Layout(), "no text in column 'text'"),
        ({"text": None}, Layout(), "no text in column 'text'"),
        ({"text": "  \n"}, Layout(), "no text in column 'text'"),
        ({"text": 7}, Layout(), "column 'text' holds a int, not text"),
        ({"text": ["a", 1]}, Layout(), "column 'text' holds a list, not text"),
        ({"text": "\ud800"}, Layout(), "column 'text' holds half a surrogate pair"),
        ({"text": "q", "pair": ""}, Layout(pair="pair"), "no text in column 'pair'"),
        ({"text": "q", "o": ["x"]}, Layout(options="o"), "column 'o' does not hold two or more options"),
        ({"text": "q", "o": "x or y"}, Layout(options="o"), "column 'o' is not a list or an object in JSON"),
        ({"text": "q", "o": ["x", 3]}, Layout(options="o"), "an option in column 'o' holds a int, not text"),
    ],
)
def test_what_is_no_text(values, layout, reason):
    with pytest.raises(InputError, match=reason):
        text_of(values, layout)


def label_of(value, layout=Layout(), labels=("negative", "positive")):  # noqa: B008 - a frozen value
    return example_of({"text": "one", "label": value}, layout, labels).label


@pytest.mark.parametrize(
    ("value", "layout", "label"),
    [
        ("Positive", Layout(), 1),
        ("neg", Layout(), 0),
        (1, Layout(codes=("negative", "positive")), 1),
        ("0", Layout(codes=("positive", "negative")), 1),  # the codes decide, not the position among the labels
        (1.0, Layout(codes=("negative", "positive")), 1),
        (["an answer"], Layout(presence=("positive", "negative")), 1),
        ([], Layout(presence=("positive", "negative")), 0),
    ],
)
def test_labels(value, layout, label):
    assert label_of(value, layout) == label


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("neutral", "unknown label 'neutral' in column 'label'"),
        (1, "unknown label '1'"),
        (None, "no label"),
        ("", "no label"),
        (0.5, r"the label is a float \(0.5\)"),
        (["a"], "the label is a list"),
    ],
)
def test_what_is_no_label(value, reason):
    with pytest.raises(InputError, match=reason):
        label_of(value)


def test_a_code_out_of_range_is_named():
    with pytest.raises(InputError, match="label 2 in column 'label', where there are 0 to 1"):
        label_of(2, Layout(codes=("no", "yes")), ("no", "yes"))


def test_true_and_false_are_names():
    assert [label_of(value, labels=("false", "true")) for value in (True, False, "TRUE")] == [1, 0, 1]


def test_labels_that_are_one_name_are_an_error():
    with pytest.raises(DataError, match="Two labels count as the same name: pos, Positive"):
        LabelIndex.of(("pos", "Positive"))


def test_a_stream_yields_examples_and_rejects_in_order(tmp_path):
    file = jsonl(
        tmp_path / "in.jsonl",
        {"id": 7, "text": "one", "label": "yes", "lang": "en"},
        {"text": 3, "label": "yes"},
        "{broken\n",
        {"text": "two", "label": "perhaps"},
        {"text": "three", "label": "no"},
    )
    got = list(read_examples(file, Layout(meta=("lang",)), ("no", "yes")))
    assert got[0] == Example("7", "one", 1, {"lang": "en"})
    assert got[4] == Example("in.jsonl:5", "three", 0)
    assert [(row.line, row.reason.split(":")[0]) for row in got[1:4]] == [
        (2, "column 'text' holds a int, not text"),
        (3, "broken JSON"),
        (4, "unknown label 'perhaps' in column 'label'"),
    ]
    assert got[3].as_row()["raw"].startswith("{'text': 'two'")


def test_without_labels_the_label_column_is_not_asked_for(tmp_path):
    file = jsonl(tmp_path / "in.jsonl", {"text": "one"})
    [example] = read_examples(file, Layout())
    assert example.label is None


def test_a_missing_column_lists_those_there_are_and_the_nearest(tmp_path):
    (tmp_path / "a.csv").write_text("body,stars\nfine,5\n")
    with pytest.raises(DataError, match=r"no column 'bodi'; the columns are: body, stars. Did you mean 'body'\?"):
        read_examples(tmp_path / "a.csv", Layout("bodi"))
    with pytest.raises(DataError, match="no column 'label'; the columns are: body, stars"):
        read_examples(tmp_path / "a.csv", Layout("body"), ("1", "5"))


def test_a_column_is_missing_only_when_no_row_of_the_first_has_it():
    late = [Row("f", i, {"other": 1}) for i in range(1, 50)] + [Row("f", 50, {"text": "x"})]
    assert list(require_columns(late, Layout(label=None))) == late
    with pytest.raises(DataError, match="no column 'text'; the columns are: other"):
        require_columns((Row("f", i, {"other": 1}) for i in range(1, 1000)), Layout(label=None))
    nothing_readable = [Reject("f", 1, "broken", "")]
    assert list(require_columns(nothing_readable, Layout())) == nothing_readable


def test_content_key_is_of_the_words_and_their_places():
    assert content_key("a  b\n") == content_key("a b") != content_key("b a")
    assert content_key(("a", "b")) != content_key("a b") != content_key(("b", "a"))
