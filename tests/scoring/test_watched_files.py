"""The files that a watch counts: every complete row once, however they grow."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from uatlite.errors import DataError
from uatlite.scoring.watch import grown_files
from uatlite.scoring.watch_state import CountedFile
from uatlite.text.rows import Row
from uatlite.text.write import row_writer


def line(number: int) -> str:
    return json.dumps({"id": number, "label": "a"}) + "\n"


def taken(source: Path, counted: list[CountedFile]) -> tuple[list[object], list[CountedFile]]:
    """The ids of the new rows, and the files as they are counted afterwards."""
    ids: list[object] = []
    known = {one.name: one for one in counted}
    for file in grown_files(str(source), counted):
        last = file.counted.line
        for row in file.rows():
            ids.append(row.values["id"] if isinstance(row, Row) else "reject")
            last = row.line
        known[file.counted.name] = replace(file.counted, line=last, done=True)
    return ids, list(known.values())


def test_a_file_that_grows_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    counted: list[CountedFile] = []
    seen: list[object] = []
    content = ""
    for number in range(6):
        content += line(number)
        # Half of the next line has been written: it is not a row yet.
        file.write_text(content + line(number + 1)[: number + 3])
        ids, counted = taken(tmp_path, counted)
        seen += ids
    assert seen == list(range(6))
    assert taken(tmp_path, counted)[0] == []


def test_a_csv_row_with_a_line_break_is_whole_or_not_there(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text('id,text\n1,"one\ntwo"\n2,"three\nfo')
    ids, counted = taken(tmp_path, [])
    assert ids == ["1"]
    file.write_text('id,text\n1,"one\ntwo"\n2,"three\nfour"\n3,five\n')
    ids, counted = taken(tmp_path, counted)
    assert ids == ["2", "3"]
    assert taken(tmp_path, counted)[0] == []


def test_a_file_with_another_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(line(1) + line(2))
    _, counted = taken(tmp_path, [])
    (tmp_path / "log.jsonl").rename(tmp_path / "log.1.jsonl")
    with pytest.raises(DataError, match=r"log\.1\.jsonl has the rows of log\.jsonl, which are counted"):
        taken(tmp_path, counted)
    (tmp_path / "log.1.jsonl").unlink()
    (tmp_path / "other.jsonl").write_text(line(3))
    assert taken(tmp_path, counted)[0] == [3]


def test_a_rewritten_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(line(1) + line(2))
    _, counted = taken(tmp_path, [])
    (tmp_path / "log.jsonl").write_text(line(9) + line(2))
    with pytest.raises(DataError, match="counted up to line 2 and has other rows there now"):
        taken(tmp_path, counted)


def test_parquet_gzip_and_what_predict_writes_beside(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.jsonl.gz", "c.csv"):
        with row_writer(tmp_path / name) as write:
            for number in range(3):
                write({"id": f"{name}{number}", "label": "x"})
    (tmp_path / "a.parquet.rejects.jsonl").write_text(line(7))
    (tmp_path / "a.parquet.summary.json").write_text("{}")
    (tmp_path / "a.parquet.review.csv").write_text("id,why\n7,cut\n")
    ids, counted = taken(tmp_path, [])
    assert ids == [f"{name}{number}" for name in ("a.parquet", "b.jsonl.gz", "c.csv") for number in range(3)]
    assert taken(tmp_path, counted)[0] == []


def test_an_empty_directory_has_no_rows_yet(tmp_path: Path) -> None:
    assert grown_files(str(tmp_path), []) == []
    (tmp_path / "new.jsonl").write_text("")
    assert taken(tmp_path, []) == ([], [CountedFile(**vars(_only(tmp_path)))])


def _only(source: Path) -> CountedFile:
    (file,) = grown_files(str(source), [])
    return replace(file.counted, done=True)


def test_addresses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="remote"):
        grown_files("s3://bucket/rows", [])
    with pytest.raises(DataError, match="does not exist"):
        grown_files(str(tmp_path / "nothing"), [])
