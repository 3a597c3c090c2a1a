"""A user's own file is a task like any other."""

import pytest

from uatlite.errors import DataError
from uatlite.text.tasks import MOST_LABELS, load, task_from_file


def reviews(folder, labels, header="body,stars"):
    path = folder / "reviews.csv"
    path.write_text(header + "\n" + "".join(f"review {i},{label}\n" for i, label in enumerate(labels)))
    return path


def test_whole_numbers_are_labels_in_their_order(tmp_path):
    task = task_from_file(reviews(tmp_path, [10, 2, 1, 2]), text="body", label="stars")
    assert (task.name, task.labels, task.kind) == ("reviews", ("1", "2", "10"), "text")
    data = load(task, "all")
    assert data.gold == [2, 1, 0, 1]
    assert data.source == str(tmp_path / "reviews.csv")


def test_names_are_labels_in_alphabetical_order_and_halves_cover_the_file(tmp_path):
    task = task_from_file(reviews(tmp_path, ["pos", "neg"] * 5), text="body", label="stars")
    assert task.labels == ("neg", "pos")
    calibration, test = load(task, "calibration"), load(task, "test")
    assert (len(calibration), len(test)) == (5, 5)
    assert not set(calibration.ids) & set(test.ids)


def test_given_labels_name_the_integers_by_position(tmp_path):
    path = reviews(tmp_path, [0, 1, 1])
    task = task_from_file(path, text="body", label="stars", labels=("positive", "negative"))
    assert task.labels == ("positive", "negative")
    assert load(task, "all").gold == [0, 1, 1]


def test_given_labels_that_are_numbers_are_names(tmp_path):
    task = task_from_file(reviews(tmp_path, [1, 2, 1]), text="body", label="stars", labels=("2", "1"))
    assert load(task, "all").gold == [1, 0, 1]


def test_pairs_choices_and_groups(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"a": "p", "b": "h", "y": true, "g": 1}\n{"a": "q", "b": "i", "y": false, "g": 1}\n')
    task = task_from_file(path, text="a", text_pair="b", label="y", group="g")
    assert (task.kind, task.labels) == ("pair", ("false", "true"))
    assert len(load(task, "test")) == 2  # one group: it cannot be cut
    with pytest.raises(DataError, match=r"pairs/calibration: none of the 2 rows .* falls into this split"):
        load(task, "calibration")
    path.write_text('{"q": "?", "o": ["x", "y"], "y": 0}\n{"q": "!", "o": ["x", "y"], "y": 1}\n')
    assert task_from_file(path, text="q", options="o", label="y").kind == "choice"


def test_a_missing_column_lists_the_columns(tmp_path):
    path = reviews(tmp_path, [1, 2])
    with pytest.raises(DataError, match=r"no column 'text'; the columns are: body, stars"):
        task_from_file(path, label="stars")
    with pytest.raises(DataError, match=r"no column 'star'; .*Did you mean 'stars'\?"):
        task_from_file(path, text="body", label="star")


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["1", ""], "line 3, column 'stars': no label"),
        (["1", "1"], "has only the label '1'; a classifier needs two or more"),
        ([], "has no label; a classifier needs two or more"),
        (range(MOST_LABELS + 1), "more than 1000 different values: is it the label"),
        (["1", "2,3"], "line 3: 3 fields where the header has 2"),
    ],
)
def test_what_cannot_be_a_label_column(tmp_path, labels, problem):
    with pytest.raises(DataError, match=problem):
        task_from_file(reviews(tmp_path, labels), text="body", label="stars")


def test_a_file_that_is_not_there_is_an_error_at_once(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        task_from_file(tmp_path / "none.csv")
