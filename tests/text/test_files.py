"""Files by their address: the same rows, rejects and formats as files by their path."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uatlite.errors import DataError
from uatlite.text.files import row_files
from uatlite.text.rows import read_rows

fsspec = pytest.importorskip("fsspec")

FILES = {
    "a.csv": b'text,stars\n"one, two",1\nthree,2\nonly\n',
    "b.jsonl": b'{"text": "four", "stars": 3}\n{broken\n',
    "c.jsonl.gz": gzip.compress(b'{"text": "five", "stars": null}\n'),
    ".hidden.csv": b"text\nno\n",
    "notes.txt": b"no",
}


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in memory: nothing of it is a path on this machine."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/rows", recursive=True)


def test_a_directory_elsewhere_reads_as_one_here(memory: Any, tmp_path: Path) -> None:
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


def test_what_cannot_be_read_elsewhere(memory: Any) -> None:
    memory.pipe("/rows/notes.txt", b"no")
    for source, said in [
        ("memory://rows", "has no file to read: expected"),
        ("memory://rows/notes.txt", "notes.txt: unknown kind of file"),
        ("memory://rows/absent.csv", "memory://rows/absent.csv does not exist"),
        ("nowhere://rows.csv", "nowhere://rows.csv cannot be read: Protocol not known"),
    ]:
        with pytest.raises(DataError, match=said):
            read_rows(source)
