"""The input: what it holds is found from its first rows, and what cannot be used is rejected."""

import io
import json
import sys

import pytest

from uatlite.classifier.product import KINDS
from uatlite.errors import DataError
from uatlite.scoring.source import Source
from uatlite.text.examples import find_layout
from uatlite.text.rows import Row
from uatlite.text.schema import TAGS, Layout
from uatlite.values import Example, Span, Words


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labelled(path, classes, *, strict=False):
    return Source(str(path)).labelled(TAGS, classes, strict=strict)


@pytest.mark.parametrize(
    ("row", "named", "gold"),
    [
        ({"tokens": ["a"], "tags": ["O"]}, {}, "tags"),
        ({"text": "a", "entities": []}, {}, "entities"),
        ({"text": "a", "labels": "x; y"}, {}, "labels"),
        ({"text": "a", "label": "x", "labels": ["y"]}, {}, "class"),
        ({"text": "a", "label": ["x"]}, {}, "labels"),
        ({"words": ["a"], "ner": ["O"]}, {"text": "words", "label": "ner"}, "tags"),
        ({"body": "a", "spans": '[{"start": 0}]'}, {"text": "body", "label": "spans"}, "entities"),
        ({"body": "a", "topics": ["x"]}, {"text": "body", "label": "topics"}, "labels"),
        ({"body": "[a]", "topic": "[x]"}, {"text": "body", "label": "topic"}, "class"),
        ({"other": 1}, {}, "class"),
    ],
)
def test_what_a_file_holds(row, named, gold):
    found = find_layout([Row("rows.jsonl", 1, row)], Layout(**named))
    assert vars(found) | {"gold": gold} | named == vars(found)


def test_words_with_tags(tmp_path):
    words, tags = (["Ada", "Lovelace"], ["Ada"], ["nobody"]), (["B-PER", "I-PER"], ["O", "O"], ["O"])
    path = write(tmp_path / "rows.jsonl", [{"tokens": w, "tags": t} for w, t in zip(words, tags, strict=True)])
    rows = labelled(path, ("LOC", "PER"))
    assert rows.texts == [Words(("Ada", "Lovelace")), Words(("nobody",))]
    assert rows.gold == [(Span(0, 12, "PER"),), ()]
    assert [(reject.line, reject.reason) for reject in rows.rejects] == [(2, "2 tags for 1 word")]
    with pytest.raises(DataError, match=r"line 2: 2 tags for 1 word\. Without --strict such rows are listed"):
        labelled(path, ("LOC", "PER"), strict=True)


def test_rows_without_labels_are_called_so(tmp_path):
    """No advice about the names of labels where there are none."""
    layout, classes = Layout(label="stars"), ("bad", "good")
    unfilled = write(tmp_path / "unfilled.jsonl", [{"text": f"a{i}", "stars": "", "date": i} for i in range(3)])
    for filled in (False, True):
        with pytest.raises(DataError) as raised:
            Source(str(unfilled)).labelled(layout, classes, filled=filled)
        told = "unfilled.jsonl has no labels: its column 'stars' is empty; the other columns are: text, date. Fill it"
        assert told in str(raised.value)
        assert "--label-order" not in str(raised.value)
    with pytest.raises(DataError, match=r"There is no column 'stars'; the columns are: text"):
        Source(str(write(tmp_path / "none.jsonl", [{"text": "a"}]))).labelled(layout, classes)
    foreign = write(tmp_path / "foreign.jsonl", [{"text": "a", "stars": "five"}])
    with pytest.raises(DataError, match="--label-order"):
        Source(str(foreign)).labelled(layout, classes)


def test_files_without_a_usable_row(tmp_path):
    empty = tmp_path / "empty.conll"
    empty.write_text("\n\n")
    with pytest.raises(DataError, match="is empty"):
        labelled(empty, ("PER",))
    path = write(tmp_path / "rows.jsonl", [{"tokens": ["Ada"], "tags": ["B-PER", "O"]}])
    with pytest.raises(DataError, match=r"no usable row \(1 rejected; the first: line 1, 2 tags for 1 word\)"):
        labelled(path, ("PER",))


@pytest.mark.parametrize(
    ("columns", "text", "label"),
    [
        (["body", "stars", "text"], "body", "stars"),
        (["text", "stars"], "text", "stars"),
        (["text", "label"], "text", "label"),
    ],
)
def test_the_first_rows_say_which_remembered_columns_there_are(columns, text, label, tmp_path, monkeypatch):
    """Of a file and of standard input alike, without losing a row."""
    path = write(tmp_path / "rows.jsonl", [{"other": 1}, *[dict.fromkeys(columns, f"a{n}") for n in range(150)]])
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(path.read_bytes())))
    monkeypatch.setattr(sys, "stdin", stdin)
    for source in (Source(str(path)), Source("-")):
        layout = source.layout(Layout(), {"text": None, "label": None}, {"text": "body", "label": "stars"})
        assert (layout.text, layout.label) == (text, label)
        assert source.layout(Layout(), {"text": "other"}, {"text": "body"}).text == "other"
        assert len(list(source.items(layout))) == 151


def test_what_pick_writes_stands_in_for_remembered_columns_and_none_is_dropped(tmp_path):
    remembered = {"text": "premise", "pair": "hypothesis", "label": "verdict"}
    asked = dict.fromkeys(("text", "pair", "label"))
    picked = Source(str(write(tmp_path / "picked.jsonl", [{"text": "a", "text_pair": "b", "label": "yes"}])))
    layout = picked.layout(Layout(), asked, remembered)
    assert (layout.text, layout.pair, layout.label) == ("text", "text_pair", "label")
    single = Source(str(write(tmp_path / "single.jsonl", [{"premise": "a"}])))
    with pytest.raises(DataError, match="There is no column 'hypothesis'"):  # a pair is not read as one text
        single.check(single.layout(Layout(), asked, remembered))


@pytest.mark.parametrize(("name", "content"), [("a.csv", ""), ("b.csv", "text\n"), ("c.jsonl", "\n")])
def test_an_input_without_a_row_says_so(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=rf"{name} is empty: it has no row"):
        Source(str(tmp_path / name))


def test_words_are_for_models_of_entities(tmp_path):
    source = Source(str(write(tmp_path / "rows.jsonl", [{"tokens": ["Ada"]}])))
    assert source.text_layout(Layout(), "labels") == Layout()
    found = source.text_layout(Layout(), "entities")
    assert (found.text, found.gold) == ("tokens", "tags")
    assert source.text_layout(Layout(text="body"), "entities").text == "body"
    with pytest.raises(DataError, match=r"has no gold entities; give rows with tokens and tags, or text and entities"):
        source.gold_layout(Layout(), "entities")
    assert source.gold_layout(Layout(label=None), "labels").label == "labels"


def test_the_first_question_says_how_many_options_there_are(tmp_path):
    questions = [{"q": "a", "o": options} for options in (["x"], ["x", "y"], ["x", "y", "z"])]
    path = write(tmp_path / "rows.jsonl", questions)
    layout = Layout(text="q", options="o", label=None)
    rejected, read, other = Source(str(path)).items(layout, kind=KINDS["choice"])
    assert isinstance(read, Example)
    assert "does not hold two or more options" in rejected.reason
    assert "3 options, where the other questions have 2" in other.reason
