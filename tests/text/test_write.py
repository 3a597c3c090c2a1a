"""What was written is read back, a file is there whole or not at all, and so is a piece of resumable work."""

import csv
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError, DataError
from uatlite.text.rows import read_rows
from uatlite.text.write import Pieces, atomic_file, read_record, row_writer, write_record

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXT,
            "n": st.integers(-(2**63), 2**63 - 1),
            "p": st.floats(allow_nan=False, allow_infinity=False),
            "maybe": st.none() | TEXT,
        }
    ),
    min_size=1,
    max_size=5,
)


def write_all(path, rows):
    with row_writer(path) as write:
        for row in rows:
            write(row)
    return path


def read_all(path):
    return [dict(row.values) for row in read_rows(path)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "a.csv", "a.csv.gz"])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_what_is_written_is_read_back(tmp_path_factory, name, rows):
    """CSV has no types: it gives back the same words."""
    file = write_all(tmp_path_factory.mktemp("rows") / name, rows)
    words = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
    assert read_all(file) == (words if "csv" in name else rows)


def test_numpy_is_written_as_numbers_and_lists_in_csv_as_json(tmp_path):
    row = {"id": "7", "sure": True, "p": np.float64(0.25), "probabilities": np.array([0.25, 0.75])}
    file = write_all(tmp_path / "a.csv", [row])
    assert file.read_text() == '"id","sure","p","probabilities"\n"7","true",0.25,"[0.25, 0.75]"\n'
    for name in ("a.jsonl", "a.parquet"):
        expected = {"id": "7", "sure": True, "p": 0.25, "probabilities": [0.25, 0.75]}
        assert read_all(write_all(tmp_path / name, [row])) == [expected]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.csv.gz", "a.parquet"])
def test_nothing_is_under_the_name_before_the_end_or_after_an_error(tmp_path, name):
    path = tmp_path / name
    with row_writer(path) as write:
        write({"text": "new"})
        assert not path.exists()
    whole = path.read_bytes()

    class Stop(BaseException):
        """As Ctrl-C is: not an Exception."""

    def rows_and_then_ctrl_c():
        yield {"text": "half"}
        raise Stop

    with pytest.raises(Stop):
        write_all(path, rows_and_then_ctrl_c())
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == [name]


def test_the_same_rows_give_the_same_packed_bytes(tmp_path):
    one, two = (write_all(tmp_path / name, [{"a": 1}]) for name in ("one.jsonl.gz", "two.jsonl.gz"))
    assert one.read_bytes() == two.read_bytes()
    assert gzip.decompress(one.read_bytes()) == b'{"a": 1}\n'


def test_a_new_file_has_the_rights_that_any_new_file_has(tmp_path):
    (tmp_path / "plain").touch()
    assert write_all(tmp_path / "a.csv", [{"a": 1}]).stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_row_of_other_columns_is_an_error(tmp_path, name):
    with pytest.raises(DataError, match="A row has the columns a, c; the first row had a, b"):
        write_all(tmp_path / name, [{"a": 1, "b": 2}, {"a": 1, "c": 2}])


def test_columns_may_come_in_another_order(tmp_path):
    file = write_all(tmp_path / "a.csv", [{"a": 1, "b": 2}, {"b": 4, "a": 3}])
    assert list(csv.reader(file.read_text().splitlines())) == [["a", "b"], ["1", "2"], ["3", "4"]]


def test_parquet_goes_out_in_groups_and_names_a_row_that_does_not_fit(tmp_path):
    rows = [{"n": i, "note": None} for i in range(5000)]
    late_note = [*rows, {"n": 5000, "note": "first note"}]
    assert read_all(write_all(tmp_path / "a.parquet", late_note)) == late_note
    with pytest.raises(DataError, match="does not fit the types of the first rows"):
        write_all(tmp_path / "b.parquet", [*rows, {"n": "five", "note": None}])
    assert not (tmp_path / "b.parquet").exists()


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("a.jsonl", float("nan"), DataError, "cannot be written as JSON"),
        ("a.jsonl", object(), DataError, "A object cannot be written"),
        ("a.xlsx", 1, ConfigurationError, r"a\.xlsx cannot be written: give it \.jsonl"),
        ("a.tsv", 1, ConfigurationError, r"a\.tsv cannot be written"),
        ("nowhere/a.csv", 1, DataError, "No such file or directory"),
        ("folder.csv", 1, DataError, "is a directory"),
    ],
)
def test_what_cannot_be_written(tmp_path, name, value, error, message):
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(error, match=message):
        write_all(tmp_path / name, [{"p": value}])


def test_atomic_file_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError, match="bytes-like"), atomic_file(tmp_path / "x.bin") as file:
        file.writelines([b"half", "and then text"])
    assert os.listdir(tmp_path) == []


@pytest.fixture
def pieces(tmp_path):
    found = Pieces(tmp_path / "work")
    found.begin({"model": "a", "shape": (1, 2)})
    return found


def test_a_record_says_which_fields_differ(pieces):
    assert pieces.differences({"model": "a", "shape": (1, 2)}) == []
    assert pieces.differences({"shape": [1, 2]}) == []  # a field that is not asked for is of no concern
    assert pieces.differences({"model": "b", "shape": [1, 2], "seed": None}) == ["model", "seed"]


@pytest.mark.parametrize("content", [None, "", "{", "[1]"])
def test_a_record_that_is_missing_or_broken_agrees_with_nothing(pieces, content):
    path = pieces.path(pieces.record)
    path.unlink() if content is None else path.write_text(content)
    assert read_record(path) is None
    assert pieces.differences({"model": "a"}) == ["model"]
    assert pieces.begun == (content is not None)


def test_a_piece_is_whole_or_not_there(pieces):
    def interrupt():
        with pieces.write("one") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert not pieces.path("one").exists()
    assert pieces.names("*") == ["record.json"]
    with pieces.write("one") as file:
        file.write(b"whole")
    assert pieces.path("one").exists()
    assert pieces.read("one", Path.read_bytes) == b"whole"
    assert pieces.names("o*") == ["one"]


@pytest.mark.parametrize("damage", [b"", b"PK broken", None])
def test_a_broken_or_missing_piece_reads_as_none(pieces, damage):
    with pieces.write("arrays.npz") as file:
        np.savez(file, a=np.arange(3))
    assert pieces.read("arrays.npz", lambda path: dict(np.load(path))) is not None
    path = pieces.path("arrays.npz")
    path.unlink() if damage is None else path.write_bytes(damage)
    assert pieces.read("arrays.npz", lambda path: dict(np.load(path))) is None


def test_other_errors_of_a_reader_are_raised(pieces):
    with pytest.raises(ZeroDivisionError):
        pieces.read("one", lambda path: 1 / 0)


def test_finished_work_says_so_and_removed_work_leaves_nothing(pieces):
    assert (pieces.begun, pieces.finished) == (True, False)
    pieces.finish({"pieces": 0})
    assert pieces.finished
    assert json.loads(pieces.path("complete.json").read_text()) == {"pieces": 0}
    pieces.remove()
    assert list(pieces.directory.parent.iterdir()) == []
    pieces.remove()  # again is no error


def test_a_directory_that_cannot_be_created_is_one_sentence(tmp_path):
    write_record(tmp_path / "file", {})
    with pytest.raises(DataError, match="cannot be created"):
        Pieces(tmp_path / "file" / "work").begin({})
