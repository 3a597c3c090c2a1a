"""Scored rows read back: every complete row once, however files grow."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from uatlite.errors import DataError, InputError
from uatlite.scoring.scored import Columns, CountedFile, scored_files
from uatlite.text.rows import Row
from uatlite.text.write import row_writer

COLUMNS = Columns("logit-margin", scope=True)


def line(number: int) -> str:
    return json.dumps({"id": number, "label": "a"}) + "\n"


def taken(source: Path, counted: list[CountedFile]) -> tuple[list[object], list[CountedFile]]:
    """The ids of the new rows, and the files as they are counted afterwards."""
    ids: list[object] = []
    known = {one.name: one for one in counted}
    for file in scored_files(str(source), counted):
        last = file.known.line
        for row in file.rows():
            ids.append(row.values["id"] if isinstance(row, Row) else "reject")
            last = row.line
        known[file.known.name] = replace(file.known, line=last, done=True)
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
    ids, counted = taken(tmp_path, [])
    assert ids == [f"{name}{number}" for name in ("a.parquet", "b.jsonl.gz", "c.csv") for number in range(3)]
    assert taken(tmp_path, counted)[0] == []


def test_an_empty_directory_has_no_rows_yet(tmp_path: Path) -> None:
    assert scored_files(str(tmp_path), []) == []
    (tmp_path / "new.jsonl").write_text("")
    assert taken(tmp_path, []) == ([], [CountedFile(**vars(_only(tmp_path)))])


def _only(source: Path) -> CountedFile:
    (file,) = scored_files(str(source), [])
    return replace(file.known, done=True)


def test_addresses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="remote"):
        scored_files("s3://bucket/rows", [])
    with pytest.raises(DataError, match="does not exist"):
        scored_files(str(tmp_path / "nothing"), [])


def test_outcomes_of_every_format(tmp_path: Path) -> None:
    row: dict[str, object] = {
        "label": "a", "confidence": 0.9, "logit_margin": 2.5, "scope": 0.25, "abstain": True, "out_of_scope": False,
    }  # fmt: skip
    found = []
    for name in ("a.parquet", "b.jsonl", "c.csv"):
        with row_writer(tmp_path / name) as write:
            write(row)
        (file,) = scored_files(str(tmp_path / name), [])
        (read,) = file.rows()
        assert isinstance(read, Row)
        COLUMNS.check(read)
        found.append(COLUMNS.outcome(read, "2026-11-17T04"))
    assert found[0] == found[1] == found[2]
    assert (found[0].score, found[0].scope, found[0].abstain, found[0].out_of_scope) == (2.5, 0.25, True, False)


def test_a_score_is_higher_where_it_is_more_trustworthy() -> None:
    values = {"label": "a", "confidence": 0.9, "entropy": 0.3, "time": "2026-11-17 06:30:00+02:00"}
    columns = Columns("entropy", scope=False, time="time")
    outcome = columns.outcome(Row("f", 1, values), "1970-01-01T00")
    assert (outcome.score, outcome.hour, outcome.scope, outcome.abstain) == (-0.3, "2026-11-17T04", None, None)
    for bad in ({**values, "entropy": "high"}, {**values, "entropy": "nan"}, {**values, "time": "soon"}):
        with pytest.raises(InputError):
            columns.outcome(Row("f", 1, bad), "1970-01-01T00")


def test_a_missing_column_says_which_are_needed() -> None:
    row = Row("rows.csv", 2, {"label": "a", "confidence": "0.5"})
    with pytest.raises(DataError) as caught:
        COLUMNS.check(row)
    assert "no column 'logit_margin'" in str(caught.value)
    assert "label, confidence, logit_margin, scope" in str(caught.value)
