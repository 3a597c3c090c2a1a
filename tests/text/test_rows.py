"""Readers: every row arrives, or is rejected with its line and the reason; nothing is lost in silence."""

import csv
import gzip
import io
import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError, DataError
from uatlite.text import rows as reading
from uatlite.text.files import row_files
from uatlite.text.rows import Reject, Row, read_rows

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values(rows):
    return [dict(row.values) for row in rows if isinstance(row, Row)]


def read(rows):
    """The line of every row, with its values or the reason why it is rejected."""
    return [(row.line, row.values if isinstance(row, Row) else row.reason) for row in rows]


BOM, X = b"\xef\xbb\xbf", {"text": "x"}
JSONL = b'{"text": "x"}\n'
READ = {
    "JSONL skips blank lines": (
        "a.jsonl",
        b'{"text": "x"}\n\n   \n{"text": "two", "n": 2}\n',
        [(1, X), (4, {"text": "two", "n": 2})],
    ),
    "JSONL rejects what it cannot read and goes on": (
        "a.jsonl",
        b'{"text": "x"}\n{"text": "caf\xe9"}\n{"text": \n[1, 2]\n"words"\n{"text": "last"}',
        [
            (1, X),
            (2, "not UTF-8: byte 0xe9 at position 14"),
            (3, "broken JSON: Expecting value at column 10"),
            (4, "a JSON list, not an object"),
            (5, "a JSON str, not an object"),
            (6, {"text": "last"}),
        ],
    ),
    "CSV keeps line breaks and quotes inside quotes": (
        "a.csv",
        b'id,text\r\n1,"two\nlines, ""quoted"""\r\n\r\n2,plain\r\n',
        [(2, {"id": "1", "text": 'two\nlines, "quoted"'}), (5, {"id": "2", "text": "plain"})],
    ),
    "CSV rejects only the row that is wrong": (
        "a.csv",
        b'id,text\n1,caf\xe9\n2,a,b\n3\n4,"a"b\n5,"caf\xc3\xa9"\n',
        [
            (2, "not UTF-8"),
            (3, "3 fields where the header has 2"),
            (4, "1 field where the header has 2"),
            (5, "',' expected after '\"' (lines 5 to 5): is a quote left open?"),
            (6, {"id": "5", "text": "café"}),
        ],
    ),
    "a quote left open is one reject that says how far it reaches": (
        "a.csv",
        b'id,text\n1,fine\n2,"open\n3,swallowed\n',
        [(2, {"id": "1", "text": "fine"}), (3, "unexpected end of data (lines 3 to 4): is a quote left open?")],
    ),
    "TSV has no quoting": (
        "a.tsv",
        b'text\tlabel\n"open quote\t1\nsaid "so"\t0\n',
        [(2, {"text": '"open quote', "label": "1"}), (3, {"text": 'said "so"', "label": "0"})],
    ),
    "a byte order mark is no part of JSONL": ("a.jsonl", BOM + JSONL, [(1, X)]),
    "nor of the first column of CSV": ("a.csv", BOM + b"text\nx\n", [(2, X)]),
    "nor of that of TSV": ("a.tsv", BOM + b"text\nx\n", [(2, X)]),
    "gzip is found by its bytes": ("a.jsonl", gzip.compress(JSONL), [(1, X)]),
    "and not by its name": ("a.jsonl.gz", JSONL, [(1, X)]),
    **{f"an empty {name} has no rows": (name, b"", []) for name in ("a.jsonl", "a.csv", "a.tsv", "a.jsonl.gz")},
}


@pytest.mark.parametrize(("name", "body", "expected"), READ.values(), ids=READ)
def test_what_a_file_says(tmp_path, name, body, expected):
    rows = list(read_rows(write(tmp_path / name, body)))
    assert read(rows) == expected
    assert {row.file for row in rows} <= {name}


def test_the_beginning_of_a_rejected_row_is_kept(tmp_path):
    rows = list(read_rows(write(tmp_path / "a.jsonl", b'{"text": "caf\xe9"}')))
    rows += read_rows(write(tmp_path / "a.csv", 'id,text\n4,"a"b\n'))
    assert [row.raw for row in rows] == ['{"text": "caf\\xe9"}', '4,"a"b\n']


def test_json_that_would_break_the_parser_is_only_a_reject(tmp_path):
    deep, long_number = "[" * 100_000, '{"n": ' + "9" * 5000 + "}"
    rows = list(read_rows(write(tmp_path / "a.jsonl", f'{deep}\n{long_number}\n{{"text": "ok"}}\n')))
    assert [type(row) for row in rows] == [Reject, Reject, Row]
    assert all(len(row.raw) <= reading.EXCERPT for row in rows[:2])


def test_a_line_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_LINE", 1000)
    file = write(tmp_path / "a.jsonl", '{"text": "' + "x" * 5000 + '"}\n{"text": "ok"}\n' + "y" * 2500)
    rows = list(read_rows(file))
    too_long = "the line is longer than 1,000 bytes"
    assert read(rows) == [(1, too_long), (2, {"text": "ok"}), (3, too_long)]


def test_reading_goes_on_after_an_open_quote_that_meets_the_field_limit(tmp_path):
    body = 'id,text\n0,"open\n' + "".join(f"{i},{'x' * 1000}\n" for i in range(1, 200)) + "200,last\n"
    rows = list(read_rows(write(tmp_path / "a.csv", body)))
    assert sum(isinstance(row, Reject) for row in rows) == 1
    assert rows[-1].values == {"id": "200", "text": "last"}
    assert csv.field_size_limit() == 131072


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz"])
def test_a_broken_gzip_stream_is_an_error_after_the_rows_that_are_whole(tmp_path, name):
    lines = "".join(json.dumps({"text": str(i) * 50}) + "\n" for i in range(20_000))
    file = write(tmp_path / name, gzip.compress(lines.encode())[:-2000])
    seen = []
    with pytest.raises(DataError, match=f"{name} breaks off after line"):
        seen.extend(read_rows(file))
    assert len(seen) > 100


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("a.csv", "text,text\na,b\n", "repeats the column 'text'"),
        ("a.csv", "text\nx\n".encode("utf-16"), "UTF-16; convert it first: iconv"),
        ("a.csv", b"PK\x03\x04 a workbook", "a.csv is an Excel workbook or an archive; save the sheet as CSV"),
        ("a.xlsx", b"PK\x03\x04 a workbook", "a.xlsx is an Excel workbook or an archive; save the sheet as CSV"),
        ("a.jsonl", b"PAR1", "a.jsonl is a Parquet file; name it .parquet"),
        ("a.tsv", b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "a.tsv is a binary file, not lines of text; expected .jsonl"),
        ("a.bin", b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "a.bin is a binary file, not lines of text; expected .jsonl"),
        ("a.parquet", b"PAR1 not really", "a.parquet: it cannot be read as Parquet"),
    ],
)
def test_a_fault_of_the_whole_file_is_an_error(tmp_path, name, body, message):
    with pytest.raises(DataError, match=message):
        list(read_rows(write(tmp_path / name, body)))


@pytest.mark.parametrize(
    ("source", "format", "message"),
    [
        ("notes.txt", None, "notes.txt: unknown kind of file; expected .jsonl"),
        ("rows.parquet.gz", None, "unknown kind of file"),
        ("", None, "has no file to read"),
        ("notes.txt", "xlsx", "format='xlsx' is not one of"),
        ("beside/review.csv", None, "review.csv does not exist. Beside it there are: reviews.csv"),
    ],
)
def test_what_cannot_be_read_at_all_is_an_error_before_the_first_row(tmp_path, source, format, message):
    (tmp_path / "beside").mkdir()
    for name in ("notes.txt", "rows.parquet.gz", "beside/reviews.csv"):
        write(tmp_path / name, "text\nx\n")
    with pytest.raises(ConfigurationError if format else DataError, match=message):
        read_rows(tmp_path / source, format=format)


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
    assert read(rows) == [(1, {"text": "ok"}), (2, "not UTF-8"), (3, {"text": "also ok"})]


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
    assert read(read_rows(write(tmp_path / "names.conll", BOM + CONLL.encode()))) == [
        (3, {"tokens": ["Ada", "of", "London"], "tags": ["B-PER", "O", "B-LOC"]}),
        (10, {"tokens": ["#hello", "#", "New York"], "tags": ["O", "O", "B-LOC"]}),
        (14, "line 15 has a word without a tag, and line 14 has one"),
        (17, {"tokens": ["alone"], "tags": ["O"]}),
    ]


def test_conll_of_one_column_has_words_alone_and_broken_texts_are_rejected(tmp_path, monkeypatch):
    body = b"Ada\nof\n\nbad \xff O\nof O\n\nword\nof O\n\n" + b"long\n" * 9 + b"\nend\n"
    monkeypatch.setattr("uatlite.text.conll.LONGEST_TEXT", 4)
    assert read(read_rows(write(tmp_path / "words.bio", body))) == [
        (1, {"tokens": ["Ada", "of"]}),
        (4, "line 4 is not UTF-8: byte 0xff at position 5"),
        (7, "line 7 has a word without a tag, and line 8 has one"),
        (10, "more than 4 lines without a blank one"),
        (20, {"tokens": ["end"]}),
    ]


# ── files by their address: the same rows, rejects and formats as files by their path ──

FILES = {
    "a.csv": b'text,stars\n"one, two",1\nthree,2\nonly\n',
    "b.jsonl": b'{"text": "four", "stars": 3}\n{broken\n',
    "c.jsonl.gz": gzip.compress(b'{"text": "five", "stars": null}\n'),
    ".hidden.csv": b"text\nno\n",
    "notes.txt": b"no",
}


@pytest.fixture
def memory():
    """fsspec's file system in memory: nothing of it is a path on this machine."""
    system = pytest.importorskip("fsspec").filesystem("memory")
    yield system
    system.rm("/rows", recursive=True)


def test_a_directory_elsewhere_reads_as_one_here(memory, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    pq.write_table(pa.table({"text": ["six", "seven"], "stars": [4, 5]}), tmp_path / "d.parquet")
    for path in tmp_path.iterdir():
        memory.pipe(f"/rows/{path.name}", path.read_bytes())
    here = list(read_rows(tmp_path))
    assert len(here) == 8
    assert list(read_rows("memory://rows")) == here
    assert list(read_rows(tmp_path.as_uri())) == here
    assert [(Path(file).name, format) for file, format in row_files("memory://rows")] == [
        ("a.csv", "csv"),
        ("b.jsonl", "jsonl"),
        ("c.jsonl.gz", "jsonl"),
        ("d.parquet", "parquet"),
    ]
    for name in ("a.csv", "c.jsonl.gz", "d.parquet"):
        assert list(read_rows(f"memory://rows/{name}")) == list(read_rows(tmp_path / name))
    memory.pipe("/rows/unnamed", FILES["a.csv"])
    assert [row.line for row in read_rows("memory://rows/unnamed", format="csv")] == [2, 3, 4]


def test_what_cannot_be_read_elsewhere(memory):
    memory.pipe("/rows/notes.txt", b"no")
    for source, said in [
        ("memory://rows", "has no file to read: expected"),
        ("memory://rows/notes.txt", "notes.txt: unknown kind of file"),
        ("memory://rows/absent.csv", "memory://rows/absent.csv does not exist"),
        ("nowhere://rows.csv", "nowhere://rows.csv cannot be read: Protocol not known"),
    ]:
        with pytest.raises(DataError, match=said):
            read_rows(source)
