"""Write files atomically: a file is complete, or it is not there.

Rows go to a hidden temporary file in the same directory, which gets the final name when everything is written. An error
removes it and leaves an existing file unchanged; a killed process leaves it behind, with a name that ends in .part.
"""

import csv
import gzip
import io
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from uatlite.errors import ConfigurationError, DataError, MissingDependency
from uatlite.text.files import format_of
from uatlite.text.rows import Reject

Write = Callable[[Mapping[str, object]], None]
PARQUET_BATCH = 4096
NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True)
class Kinds:
    """Types of columns that the first rows may not show: `numbers` are floats, `examples` are values of lists."""

    numbers: Collection[str] = ()
    examples: Mapping[str, object] = field(default_factory=dict)


@contextmanager
def row_writer(
    path: str | Path, *, numbers: Collection[str] = (), examples: Mapping[str, object] = NOTHING
) -> Iterator[Write]:
    """A function that writes one row; the file appears under `path` when the block ends without an error.

        with row_writer("predictions.csv.gz") as write:
            write({"id": "7", "label": "positive", "confidence": 0.93})

    JSONL, CSV or Parquet, by extension. The first row fixes the columns of a CSV or Parquet file. Parquet needs the
    types too: `numbers` are columns of floats that may be empty in the first rows, and `examples` are values of columns
    of lists that may be.
    """
    path = Path(path)
    name = format_of(path)
    if name not in WRITERS:
        raise ConfigurationError(f"{path.name} cannot be written: give it .jsonl, .csv (or .gz of these) or .parquet.")
    pack = _gzip if path.suffix.lower() == ".gz" else nullcontext
    with atomic_file(path) as file, pack(file) as packed, WRITERS[name](packed, Kinds(numbers, examples)) as write:
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
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        file = open(part, "xb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror} ({path.parent}).") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
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


def write_rejects(path: Path, rejects: Sequence[Reject]) -> bool:
    """List rejected rows with line and reason, and say whether there are any; without them an older file goes."""
    path.unlink(missing_ok=True)
    if rejects:
        write_rows(path, (reject.as_row() for reject in rejects))
    return bool(rejects)


@contextmanager
def _write_jsonl(file: IO[bytes], kinds: Kinds) -> Iterator[Write]:
    def write(row: Mapping[str, object]) -> None:
        file.write(_json(row).encode() + b"\n")

    yield write


@contextmanager
def _write_csv(file: IO[bytes], kinds: Kinds) -> Iterator[Write]:
    """Strings in quotes, numbers without; booleans, lists and objects as JSON."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    columns: list[str] = []

    def write(row: Mapping[str, object]) -> None:
        if not columns:
            columns.extend(row)
            writer.writerow(columns)
        _check_columns(row, columns)
        writer.writerow([_csv_value(row[column]) for column in columns])

    try:
        yield write
    finally:
        text.detach()


@contextmanager
def _write_parquet(file: IO[bytes], kinds: Kinds) -> Iterator[Write]:
    """Row groups of `PARQUET_BATCH` rows; the first group fixes the types."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency("pyarrow", "parquet") from error
    pending: list[Mapping[str, object]] = []
    writer: Any = None

    def flush() -> None:
        nonlocal writer
        if writer is None:
            writer = pq.ParquetWriter(file, _parquet_schema(pa, pending, kinds), compression="zstd")
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


def _parquet_schema(pa: Any, rows: list[Mapping[str, object]], kinds: Kinds) -> Any:
    """The types of the first rows; a column that is empty in all of them becomes one of numbers, or of text.

    Lists that are all empty are lists of text.
    """

    def known(field: Any) -> Any:
        if field.name in kinds.examples and (pa.types.is_null(field.type) or pa.types.is_list(field.type)):
            return field.with_type(pa.array([kinds.examples[field.name]]).type)
        if pa.types.is_null(field.type):
            return field.with_type(pa.float64() if field.name in kinds.numbers else pa.string())
        empty = pa.types.is_list(field.type) and pa.types.is_null(field.type.value_type)
        return field.with_type(pa.list_(pa.string())) if empty else field

    return pa.schema([known(field) for field in pa.Table.from_pylist(rows).schema])


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


def _csv_value(value: object) -> object:
    value = _plain(value)
    if isinstance(value, bool | list | tuple | dict):
        return _json(value)
    return value


WRITERS: dict[str, Callable[[IO[bytes], Kinds], AbstractContextManager[Write]]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
}
