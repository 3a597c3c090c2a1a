"""Readers: every row arrives, or is rejected with its line and the reason; nothing is lost in silence."""

import csv
import gzip
import io
import json
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError, DataError
from uatlite.text import rows as reading
from uatlite.text.rows import Reject, Row, read_rows

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values(rows):
    return [dict(row.values) for row in rows]


def place_and_reason(rows):
    return [(row.line, row.reason) for row in rows if isinstance(row, Reject)]


def test_jsonl_rows_have_their_lines_and_blank_lines_are_skipped(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"text": "one"}\n\n   \n{"text": "two", "n": 2}\n')
    assert list(read_rows(file)) == [
        Row("a.jsonl", 1, {"text": "one"}),
        Row("a.jsonl", 4, {"text": "two", "n": 2}),
    ]


def test_jsonl_rejects_what_it_cannot_read_and_goes_on(tmp_path):
    lines = [b'{"text": "ok"}', b'{"text": "caf\xe9"}', b'{"text": ', b"[1, 2]", b'"words"', b'{"text": "last"}']
    rows = list(read_rows(write(tmp_path / "a.jsonl", b"\n".join(lines))))
    assert [row.values["text"] for row in rows if isinstance(row, Row)] == ["ok", "last"]
    assert place_and_reason(rows) == [
        (2, "not UTF-8: byte 0xe9 at position 14"),
        (3, "broken JSON: Expecting value at column 10"),
        (4, "a JSON list, not an object"),
        (5, "a JSON str, not an object"),
    ]
    assert rows[1].raw == '{"text": "caf\\xe9"}'


def test_json_that_would_break_the_parser_is_only_a_reject(tmp_path):
    deep, long_number = "[" * 100_000, '{"n": ' + "9" * 5000 + "}"
    rows = list(read_rows(write(tmp_path / "a.jsonl", f'{deep}\n{long_number}\n{{"text": "ok"}}\n')))
    assert [type(row) for row in rows] == [Reject, Reject, Row]
    assert all(len(row.raw) <= reading.EXCERPT for row in rows[:2])


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 1000)
    file = write(tmp_path / "a.jsonl", '{"text": "' + "x" * 5000 + '"}\n{"text": "ok"}\n' + "y" * 2500)
    rows = list(read_rows(file))
    assert place_and_reason(rows) == [
        (1, "the line is longer than 1,000 bytes"),
        (3, "the line is longer than 1,000 bytes"),
    ]
    assert values(row for row in rows if isinstance(row, Row)) == [{"text": "ok"}]


def test_csv_keeps_line_breaks_and_quotes_inside_quotes_and_counts_lines(tmp_path):
    file = write(tmp_path / "a.csv", 'id,text\r\n1,"two\nlines, ""quoted"""\r\n\r\n2,plain\r\n')
    assert list(read_rows(file)) == [
        Row("a.csv", 2, {"id": "1", "text": 'two\nlines, "quoted"'}),
        Row("a.csv", 5, {"id": "2", "text": "plain"}),
    ]


def test_csv_rejects_only_the_row_that_is_wrong(tmp_path):
    body = b'id,text\n1,caf\xe9\n2,a,b\n3\n4,"a"b\n5,"caf\xc3\xa9"\n'
    rows = list(read_rows(write(tmp_path / "a.csv", body)))
    assert place_and_reason(rows) == [
        (2, "not UTF-8"),
        (3, "3 fields where the header has 2"),
        (4, "1 fields where the header has 2"),
        (5, "',' expected after '\"' (lines 5 to 5): is a quote left open?"),
    ]
    assert rows[-1].values == {"id": "5", "text": "café"}
    assert rows[3].raw == '4,"a"b\n'


def test_a_quote_left_open_is_one_reject_that_says_how_far_it_reaches(tmp_path):
    rows = list(read_rows(write(tmp_path / "a.csv", 'id,text\n1,fine\n2,"open\n3,swallowed\n')))
    assert values(rows[:1]) == [{"id": "1", "text": "fine"}]
    [(line, reason)] = place_and_reason(rows)
    assert line == 3
    assert "lines 3 to 4" in reason


def test_reading_goes_on_after_an_open_quote_that_meets_the_field_limit(tmp_path):
    body = 'id,text\n0,"open\n' + "".join(f"{i},{'x' * 1000}\n" for i in range(1, 200)) + "200,last\n"
    rows = list(read_rows(write(tmp_path / "a.csv", body)))
    assert len(place_and_reason(rows)) == 1
    assert rows[-1].values == {"id": "200", "text": "last"}
    assert csv.field_size_limit() == 131072


def test_tsv_has_no_quoting(tmp_path):
    file = write(tmp_path / "a.tsv", 'text\tlabel\n"open quote\t1\nsaid "so"\t0\n')
    assert values(read_rows(file)) == [{"text": '"open quote', "label": "1"}, {"text": 'said "so"', "label": "0"}]


@pytest.mark.parametrize(
    ("name", "body"), [("a.jsonl", '{"text": "x"}\n'), ("a.csv", "text\nx\n"), ("a.tsv", "text\nx\n")]
)
def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path, name, body):
    file = write(tmp_path / name, b"\xef\xbb\xbf" + body.encode())
    assert values(read_rows(file)) == [{"text": "x"}]


def test_utf16_is_named_with_the_way_out(tmp_path):
    with pytest.raises(DataError, match="UTF-16; convert it first: iconv"):
        list(read_rows(write(tmp_path / "a.csv", "text\nx\n".encode("utf-16"))))


def test_gzip_is_found_by_its_bytes_and_not_by_its_name(tmp_path):
    body = b'{"text": "x"}\n'
    packed_without_saying = write(tmp_path / "a.jsonl", gzip.compress(body))
    plain_that_says_packed = write(tmp_path / "b.jsonl.gz", body)
    assert values(read_rows(packed_without_saying)) == values(read_rows(plain_that_says_packed)) == [{"text": "x"}]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_a_broken_gzip_stream_is_an_error_after_the_rows_that_are_whole(tmp_path, name):
    lines = "".join(json.dumps({"text": str(i) * 50}) + "\n" for i in range(20_000))
    file = write(tmp_path / name, gzip.compress(lines.encode())[:-2000])
    seen = []
    with pytest.raises(DataError, match=f"{name} breaks off after line"):
        seen.extend(read_rows(file))
    assert len(seen) > 100


def test_a_header_that_repeats_a_column_is_an_error(tmp_path):
    with pytest.raises(DataError, match="repeats the column 'text'"):
        list(read_rows(write(tmp_path / "a.csv", "text,text\na,b\n")))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.jsonl.gz"])
def test_an_empty_file_has_no_rows(tmp_path, name):
    assert list(read_rows(write(tmp_path / name, ""))) == []


def test_a_directory_is_its_row_files_in_order_of_name(tmp_path):
    write(tmp_path / "b.csv", "text\ntwo\n")
    write(tmp_path / "a.jsonl", '{"text": "one"}\n')
    write(tmp_path / "README.md", "not rows")
    write(tmp_path / ".c.csv.part", "text\nhalf")
    assert [(row.file, row.values["text"]) for row in read_rows(tmp_path)] == [("a.jsonl", "one"), ("b.csv", "two")]


def test_what_cannot_be_read_at_all_is_an_error_before_the_first_row(tmp_path):
    write(tmp_path / "notes.txt", "x")
    write(tmp_path / "rows.parquet.gz", "x")
    with pytest.raises(DataError, match=r"notes.txt: unknown kind of file; expected .jsonl"):
        read_rows(tmp_path / "notes.txt")
    with pytest.raises(DataError, match="unknown kind of file"):
        read_rows(tmp_path / "rows.parquet.gz")
    with pytest.raises(DataError, match="has no file to read"):
        read_rows(tmp_path)
    with pytest.raises(ConfigurationError, match="format='xlsx' is not one of"):
        read_rows(tmp_path / "notes.txt", format="xlsx")
    write(tmp_path / "reviews.csv", "text\nx\n")
    with pytest.raises(DataError, match=r"review.csv does not exist. Beside it there are: reviews.csv"):
        read_rows(tmp_path / "review.csv")


def test_a_format_may_be_said_where_the_name_does_not(tmp_path):
    assert values(read_rows(write(tmp_path / "notes.txt", "text\nx\n"), format="csv")) == [{"text": "x"}]


@pytest.mark.parametrize(
    ("body", "format"),
    [(b'{"text": "x"}\n', None), (gzip.compress(b'{"text": "x"}\n', mtime=0), None), (b"text\nx\n", "csv")],
    ids=["jsonl", "jsonl gzip", "csv"],
)
def test_standard_input(monkeypatch, body, format):
    expected = [Row("standard input", 1 if format is None else 2, {"text": "x"})]
    stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(body)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(read_rows("-", format=format)) == expected
    assert not stdin.buffer.closed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))  # as the test runners of CLIs have it
    assert list(read_rows("-", format=format)) == expected


def test_parquet_cannot_come_from_standard_input():
    with pytest.raises(ConfigurationError, match="cannot be read from standard input"):
        read_rows("-", format="parquet")


def test_parquet_rejects_the_row_whose_bytes_are_not_text(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    raw = pa.array([b"ok", b"caf\xe9", b"also ok"])
    text = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    parquet.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    rows = list(read_rows(tmp_path / "a.parquet"))
    assert [row.line for row in rows] == [1, 2, 3]
    assert place_and_reason(rows) == [(2, "not UTF-8")]
    assert values(row for row in rows if isinstance(row, Row)) == [{"text": "ok"}, {"text": "also ok"}]


def test_a_broken_parquet_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"a.parquet cannot be read as Parquet"):
        list(read_rows(write(tmp_path / "a.parquet", b"PAR1 not really")))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6))
def test_csv_of_the_standard_library_is_read_as_it_was_written(tmp_path_factory, rows):
    file = tmp_path_factory.mktemp("csv") / "a.csv"
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, quoting=csv.QUOTE_ALL)
        writer.writerows([("a", "b"), *rows])
    assert [(row.values["a"], row.values["b"]) for row in read_rows(file)] == rows


@pytest.mark.parametrize(("name", "row"), [("a.jsonl", '{"text": "some words"}\n'), ("a.csv", "some words\n")])
def test_memory_does_not_grow_with_the_file(tmp_path, name, row):
    def peak(count):
        file = write(tmp_path / name, ("text\n" if name.endswith("csv") else "") + row * count)
        tracemalloc.start()
        assert sum(1 for _ in read_rows(file)) == count
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    small, large = peak(1_000), peak(50_000)
    assert large < small + 100_000


CONLL = (
    "-DOCSTART- -X- O\n\n"
    "# id = 7\n# text = Ada of London\nAda NNP B-PER\nof IN O\nLondon NNP B-LOC\n\n\n"
    "#hello\tO\n#\tO\nNew York\tB-LOC\n\r\n"
    "1 2\n3\n\n"
    "alone O"
)


def test_conll_has_a_row_for_each_text_with_its_first_and_last_columns(tmp_path):
    path = tmp_path / "names.conll"
    path.write_bytes(b"\xef\xbb\xbf" + CONLL.encode())
    rows = list(read_rows(path))
    assert [row.values for row in rows if isinstance(row, Row)] == [
        {"tokens": ["Ada", "of", "London"], "tags": ["B-PER", "O", "B-LOC"]},
        {"tokens": ["#hello", "#", "New York"], "tags": ["O", "O", "B-LOC"]},
        {"tokens": ["alone"], "tags": ["O"]},
    ]
    assert [row.line for row in rows] == [3, 10, 14, 17]
    assert rows[2].reason == "line 15 has a word without a tag, and line 14 has one"


def test_conll_of_one_column_has_words_alone_and_broken_texts_are_rejected(tmp_path, monkeypatch):
    path = tmp_path / "words.bio"
    path.write_bytes(b"Ada\nof\n\nbad \xff O\nof O\n\nword\nof O\n\n" + b"long\n" * 9 + b"\nend\n")
    monkeypatch.setattr("uatlite.text.rows.LONGEST_TEXT", 4)
    first, broken, mixed, long, last = read_rows(path)
    assert (first.values, last.values) == ({"tokens": ["Ada", "of"]}, {"tokens": ["end"]})
    assert broken.reason == "line 4 is not UTF-8: byte 0xff at position 5"
    assert mixed.reason == "line 7 has a word without a tag, and line 8 has one"
    assert (long.line, long.reason) == (10, "more than 4 lines without a blank one")
