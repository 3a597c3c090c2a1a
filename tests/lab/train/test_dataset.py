"""A user's own file as training rows: its classes, what is held out, what is set aside, and what is an error."""

import csv
import json
from dataclasses import replace

import pytest

from uatlite.errors import ConfigurationError, DataError
from uatlite.lab.train.dataset import HELD_OUT, REJECTS, RowChoice
from uatlite.text.schema import Layout
from uatlite.values import Span

LAYOUT = Layout(text="body", label="verdict")


def file_data(path, layout, **options):
    return RowChoice(None, path, layout, **options).rows()


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("body", "verdict"), *rows])
    return path


@pytest.fixture
def reviews(tmp_path):
    """50 rows, no two alike, and two that cannot be used: on line 3 the text is missing, on line 4 the label."""
    rows = [[f"film number {place}", ("good", "bad")[place % 2]] for place in range(50)]
    return write(tmp_path / "reviews.csv", [rows[0], ["", "good"], ["no verdict", ""], *rows[1:]])


def test_a_fifth_is_held_out_and_written_with_the_columns_of_the_file(reviews, tmp_path):
    data = file_data(reviews, LAYOUT)
    assert data.train.labels == ("bad", "good")  # names in alphabetical order
    assert (len(data.train), data.train.source) == (40, "reviews.csv, 80 % of 50 rows")
    notes = data.write(tmp_path)
    held_out = [json.loads(line) for line in (tmp_path / HELD_OUT).read_text().splitlines()]
    assert len(held_out) == 10
    assert not {row["body"] for row in held_out} & set(data.train.texts)
    assert all(row["verdict"] == ("good", "bad")[int(row["body"].split()[-1]) % 2] for row in held_out)
    assert f"uatlite calibrate {tmp_path} {tmp_path / HELD_OUT} --text body --label verdict -o DIR" in notes[0]


def test_rows_that_cannot_be_used_are_listed_with_line_and_reason(reviews, tmp_path):
    notes = file_data(reviews, LAYOUT).write(tmp_path)
    rejects = [json.loads(line) for line in (tmp_path / REJECTS).read_text().splitlines()]
    assert [(row["line"], row["reason"]) for row in rejects] == [(3, "no text in column 'body'"), (4, "no label")]
    assert notes[-1] == f"2 rows rejected; line numbers and reasons are in {tmp_path / REJECTS}"
    with pytest.raises(DataError, match="line 3: no text in column 'body'"):
        file_data(reviews, LAYOUT, strict=True)


def test_label_order_names_the_classes_and_numbers_are_positions(tmp_path):
    path = write(tmp_path / "codes.csv", [[f"film {place}", place % 2] for place in range(20)])
    assert file_data(path, LAYOUT).train.labels == ("0", "1")
    named = file_data(path, LAYOUT, label_order=("negative", "positive"), held_out=0)
    assert named.train.labels == ("negative", "positive")
    assert named.held_out is None
    assert named.train.gold == [0, 1] * 10


def test_a_limit_draws_from_the_rows_that_are_not_held_out(reviews):
    whole, part = file_data(reviews, LAYOUT), file_data(reviews, LAYOUT, limit=12)
    assert len(part.train) == 12
    assert set(part.train.texts) <= set(whole.train.texts)
    assert part.held_out == whole.held_out


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], r"reviews\.csv holds no row; give a file with a text and a label"),
        ([["a", "good"], ["b", "good"]], "Column 'verdict' has only the label 'good'; a classifier needs two or more"),
        ([["a", ""], ["b", ""]], "Column 'verdict' has no label"),
        ([["", "good"], ["", "bad"]], r"has no usable row \(2 rejected; the first: line 2, no text in column 'body'\)"),
        ([*([f"a{place}", "good"] for place in range(9)), ["", "bad"]], "none of the 7 rows .* has the label 'bad'"),
    ],
    ids=["empty", "one class", "no label", "no text", "a class without rows"],
)
def test_a_file_that_no_classifier_can_be_trained_on(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        file_data(write(tmp_path / "reviews.csv", rows), LAYOUT)


def test_wrong_columns_files_and_shares_are_named(reviews, tmp_path):
    with pytest.raises(DataError, match=r"no column 'text'; the columns are: body, verdict"):
        file_data(reviews, Layout(label="verdict"))
    with pytest.raises(DataError, match=r"no column 'verdit'; .*Did you mean 'verdict'\?"):
        file_data(reviews, Layout(text="body", label="verdit"))
    with pytest.raises(DataError, match="does not exist"):
        file_data(tmp_path / "absent.csv", LAYOUT)
    with pytest.raises(ConfigurationError, match=r"--held-out 1\.5 is not allowed: a share from 0"):
        file_data(reviews, LAYOUT, held_out=1.5)
    for task, data in ((None, None), ("sst2", reviews)):
        with pytest.raises(ConfigurationError, match="Give either --task"):
            RowChoice(task, data, LAYOUT).rows()


def test_options_of_a_file_with_a_task_are_an_error():
    for layout, options in ((LAYOUT, {}), (Layout(), {"label_order": ("a", "b")})):
        with pytest.raises(ConfigurationError, match="is about --data FILE, and the rows come from the task sst2"):
            RowChoice("sst2", None, layout, **options).rows()


def lines(golds):
    """20 rows with gold of a column, in turn."""
    rows = ({"text": f"Ada {i} ", name: values[i % 2]} for i in range(20) for name, values in golds.items())
    return "".join(json.dumps(row) + "\n" for row in rows)


SEVERAL = {
    "names.conll": (
        "\n".join(f"Ada{i} B-PER\nLovelace I-PER\nof O\nRome{i} B-LOC\n" for i in range(20)) + "\nEve I-PER\n",
        ("LOC", "PER"),
        "--text tokens --label tags",
    ),
    "names.jsonl": (
        lines({"entities": [[{"start": 0, "end": 3, "label": "PER"}], []]}),
        ("PER",),
        "--text text --label entities",
    ),
    "feelings.jsonl": (lines({"labels": [["joy", "anger"], []]}), ("anger", "joy"), "--text text --label labels"),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_rows_with_several_answers_are_held_out_in_the_form_of_the_file(name, tmp_path):
    body, labels, columns = SEVERAL[name]
    (tmp_path / name).write_text(body)
    data = file_data(tmp_path / name, Layout())
    assert data.train.labels == labels
    assert (len(data.train), len(data.held_out or ())) == (16, 4)
    if name == "names.conll":
        assert data.train.examples[0].entities == (Span(0, 13, "PER"), Span(17, 22, "LOC"))
    notes = data.write(tmp_path)
    assert f"{columns} -o DIR" in notes[0]
    assert [note[:14] for note in notes[1:]] == (["1 row rejected"] if name == "names.conll" else [])
    again = file_data(tmp_path / HELD_OUT, Layout(), held_out=0)
    assert data.held_out is not None
    assert [replace(row, id="") for row in again.train.examples] == [
        replace(row, id="") for row in data.held_out.examples
    ]
    with pytest.raises(DataError, match="none of the 16 rows to train on has the label 'grief'"):
        file_data(tmp_path / name, Layout(), label_order=(*labels, "grief"))


def test_a_file_in_which_nothing_is_ever_answered(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"tokens": ["a"], "tags": ["O"]}\n')
    with pytest.raises(DataError, match="Column 'tags' has no label; a classifier needs one or more"):
        file_data(path, Layout())
