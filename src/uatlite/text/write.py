"""Write files atomically: a file is complete, or it is not there. And resumable work, as a directory of such files.

Bytes go to a hidden temporary file in the same directory, which gets the final name when all is written. An error
removes it and leaves an existing file unchanged; a killed process leaves it behind, with a name that ends in .part.
"""

import csv
import gzip
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from zipfile import BadZipFile

from uatlite.errors import ConfigurationError, DataError, StoreError
from uatlite.text.files import arrow, format_of
from uatlite.text.rows import Reject
from uatlite.values import counted

_T = TypeVar("_T")
Write = Callable[[Mapping[str, object]], None]
PARQUET_BATCH = 4096
NOTHING: Mapping[str, object] = {}
BROKEN = (StoreError, OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile)
"""What reading a damaged piece or record may raise."""


@contextmanager
def row_writer(path: str | Path, *, examples: Mapping[str, object] = NOTHING) -> Iterator[Write]:
    """A function that writes one row; the file appears under `path` when the block ends without an error.

        with row_writer("predictions.csv.gz") as write:
            write({"id": "7", "label": "positive", "confidence": 0.93})

    JSONL, CSV or Parquet, by extension. The first row fixes the columns of a CSV or Parquet file. Parquet needs the
    types too: `examples` are values of columns that may be empty in the first rows, or hold empty lists.
    """
    path = Path(path)
    name = format_of(path)
    if name not in WRITERS:
        raise ConfigurationError(f"{path.name} cannot be written: give it .jsonl, .csv (or .gz of these) or .parquet.")
    pack = _gzip if path.suffix.lower() == ".gz" else nullcontext
    with atomic_file(path) as file, pack(file) as packed, WRITERS[name](packed, examples) as write:
        yield write


def _gzip(file: IO[bytes]) -> IO[bytes]:
    """A gzip stream without a name or a time in its header, so that the same rows give the same bytes."""
    return cast(IO[bytes], gzip.GzipFile("", "wb", fileobj=file, mtime=0))


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A binary file that gets the name `path` when the block ends, and is removed if the block raises."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path} is a directory; give the name of a file.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        file = open(temporary, "xb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror} ({path.parent}).") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file as UTF-8, atomically."""
    with atomic_file(path) as file:
        file.write(text.encode())


def make_directory(directory: Path) -> None:
    """Create a directory and its parents, unless it exists."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be created: {error.strerror}.") from error


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write rows as JSONL, CSV or Parquet, by extension."""
    with row_writer(path) as write:
        for row in rows:
            write(row)


def write_rejects(path: Path, rejects: Sequence[Reject]) -> list[str]:
    """List rejected rows with line and reason; without any an older file goes. Returns `rejected_line`."""
    path.unlink(missing_ok=True)
    if rejects:
        write_rows(path, (reject.as_row() for reject in rejects))
    return rejected_line(len(rejects), path)


def rejected_line(rows: int, path: object) -> list[str]:
    """What to say of rejected rows; nothing where there are none."""
    return [f"{counted(rows)} rejected; line numbers and reasons are in {path}"] if rows else []


@contextmanager
def _write_jsonl(file: IO[bytes], examples: Mapping[str, object]) -> Iterator[Write]:
    def write(row: Mapping[str, object]) -> None:
        file.write(_json(row).encode() + b"\n")

    yield write


@contextmanager
def _write_csv(file: IO[bytes], examples: Mapping[str, object]) -> Iterator[Write]:
    """Strings in quotes, numbers without; booleans, lists and objects as JSON."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    columns: list[str] = []

    def write(row: Mapping[str, object]) -> None:
        if not columns:
            columns.extend(row)
            writer.writerow(columns)
        _check_columns(row, columns)
        cells = [_plain(row[column]) for column in columns]
        writer.writerow([_json(cell) if isinstance(cell, bool | list | tuple | dict) else cell for cell in cells])

    try:
        yield write
    finally:
        text.detach()


@contextmanager
def _write_parquet(file: IO[bytes], examples: Mapping[str, object]) -> Iterator[Write]:
    """Row groups of `PARQUET_BATCH` rows; the first group fixes the types."""
    pa, pq = arrow()
    pending: list[Mapping[str, object]] = []
    writer: Any = None

    def flush() -> None:
        nonlocal writer
        if writer is None:
            writer = pq.ParquetWriter(file, _parquet_schema(pa, pending, examples), compression="zstd")
        try:
            writer.write_table(pa.Table.from_pylist(pending, schema=writer.schema))
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(f"A row does not fit the types of the first rows ({writer.schema}): {error}") from error
        pending.clear()

    def write(row: Mapping[str, object]) -> None:
        if pending or writer is not None:
            _check_columns(row, list(pending[0]) if pending else writer.schema.names)
        pending.append({column: _plain(value) for column, value in row.items()})
        if len(pending) == PARQUET_BATCH:
            flush()

    try:
        yield write
        if pending or writer is None:
            flush()
    finally:
        if writer is not None:
            writer.close()


def _parquet_schema(pa: Any, rows: list[Mapping[str, object]], examples: Mapping[str, object]) -> Any:
    """The types of the first rows; a column that is empty there has that of its example, or else text."""

    def typed(field: Any) -> Any:
        listed, empty = pa.types.is_list(field.type), pa.types.is_null(field.type)
        if field.name in examples and (listed or empty):
            return field.with_type(pa.array([examples[field.name]]).type)
        if listed and pa.types.is_null(field.type.value_type):
            return field.with_type(pa.list_(pa.string()))
        return field.with_type(pa.string()) if empty else field

    return pa.schema([typed(field) for field in pa.Table.from_pylist(rows).schema])


def _check_columns(row: Mapping[str, object], columns: list[str]) -> None:
    if set(row) != set(columns):
        raise DataError(f"A row has the columns {', '.join(row)}; the first row had {', '.join(columns)}.")


def _plain(value: object) -> object:
    """NumPy scalars and arrays as Python numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain_or_raise)
    except ValueError as error:
        raise DataError(f"A value cannot be written as JSON: {error}.") from error


def _plain_or_raise(value: object) -> object:
    plain = _plain(value)
    if plain is value:
        raise DataError(f"A {type(value).__name__} cannot be written; give text, numbers, lists or objects.")
    return plain


WRITERS: dict[str, Callable[[IO[bytes], Mapping[str, object]], AbstractContextManager[Write]]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON, atomically."""
    write_text(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_record(path: Path) -> dict[str, Any] | None:
    """A record, or None where the file is missing, broken or not a JSON object."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


@dataclass(frozen=True)
class Pieces:
    """Resumable work on disk: a directory of pieces and a record of what decides their content.

        DIR/record.json     written first; work of another record is not continued
            PIECE …         one file each, which appears under its name when it is complete
            complete.json   written last, where a reader must know that no piece is missing

    A killed process leaves complete pieces only. `record` and `complete` are the names of the files written first and
    last; those of pieces, and their formats, are the caller's choice.
    """

    directory: Path
    record: str = "record.json"
    complete: str = "complete.json"

    @property
    def begun(self) -> bool:
        """Whether the record is there."""
        return self.path(self.record).is_file()

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self.path(self.complete).is_file()

    def begin(self, record: Mapping[str, Any]) -> None:
        """Create the directory and write its record; an existing record is replaced."""
        make_directory(self.directory)
        write_record(self.path(self.record), record)

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """The fields in which `record` differs from the one on disk; all of them where that is missing or broken."""
        before = read_record(self.path(self.record)) or {}
        plain = json.loads(json.dumps(record))  # tuples as lists, as they are on disk
        return [name for name, value in plain.items() if name not in before or before[name] != value]

    def path(self, name: str) -> Path:
        """Where the piece of this name is, or will be."""
        return self.directory / name

    def names(self, pattern: str) -> list[str]:
        """The names of the pieces that match a glob pattern, sorted."""
        return sorted(path.name for path in self.directory.glob(pattern))

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A binary file that becomes the piece when the block ends without an error."""
        return atomic_file(self.path(name))

    def read(self, name: str, reader: Callable[[Path], _T]) -> _T | None:
        """What `reader` makes of a piece; None where the piece is missing or broken, so that it is written again."""
        try:
            return reader(self.path(name))
        except BROKEN:
            return None

    def finish(self, note: Mapping[str, Any]) -> None:
        """Write the last file: every piece is there."""
        write_record(self.path(self.complete), note)

    def remove(self) -> None:
        """Remove the directory. It is renamed first, so that a kill does not leave half of it under its name."""
        if self.directory.exists():
            aside = self.directory.with_name(f"{self.directory.name}.{secrets.token_hex(4)}.removed")
            self.directory.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
