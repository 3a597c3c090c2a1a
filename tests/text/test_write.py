"""Writers: what was written is read back, and a file is there whole or not at all."""

import csv
import gzip
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError, DataError
from uatlite.text.rows import read_rows
from uatlite.text.write import atomic_file, row_writer

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


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_typed_formats_give_back_what_was_written(tmp_path_factory, name, rows):
    file = write_all(tmp_path_factory.mktemp("rows") / name, rows)
    assert read_all(file) == rows


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
def test_csv_gives_back_the_same_words(tmp_path_factory, name, rows):
    file = write_all(tmp_path_factory.mktemp("rows") / name, rows)
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows]
    assert read_all(file) == expected


def test_csv_writes_lists_as_json_numbers_bare_and_numpy_as_its_own(tmp_path):
    row = {"id": "7", "sure": True, "p": np.float64(0.25), "probabilities": np.array([0.25, 0.75])}
    file = write_all(tmp_path / "a.csv", [row])
    assert file.read_text() == '"id","sure","p","probabilities"\n"7","true",0.25,"[0.25, 0.75]"\n'


def test_numpy_goes_into_jsonl_and_parquet_as_numbers(tmp_path):
    row = {"label": np.int64(1), "probabilities": np.array([0.25, 0.75])}
    expected = [{"label": 1, "probabilities": [0.25, 0.75]}]
    assert read_all(write_all(tmp_path / "a.jsonl", [row])) == expected
    assert read_all(write_all(tmp_path / "a.parquet", [row])) == expected


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


def test_what_json_does_not_know_is_an_error(tmp_path):
    with pytest.raises(DataError, match="cannot be written as JSON"):
        write_all(tmp_path / "a.jsonl", [{"p": float("nan")}])
    with pytest.raises(DataError, match="A object cannot be written"):
        write_all(tmp_path / "a.jsonl", [{"p": object()}])


def test_errors_of_the_path_name_the_way_out(tmp_path):
    with pytest.raises(ConfigurationError, match=r"a\.xlsx cannot be written: give it \.jsonl"):
        write_all(tmp_path / "a.xlsx", [])
    with pytest.raises(ConfigurationError, match=r"a\.tsv cannot be written"):
        write_all(tmp_path / "a.tsv", [])
    with pytest.raises(DataError, match="No such file or directory"):
        write_all(tmp_path / "nowhere" / "a.csv", [])
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a directory"):
        write_all(tmp_path / "folder.csv", [])


def test_atomic_file_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError, match="bytes-like"), atomic_file(tmp_path / "x.bin") as file:
        file.writelines([b"half", "and then text"])
    assert os.listdir(tmp_path) == []
