"""Read rows from files, one at a time, so that memory does not grow with the file.

A row that cannot be read becomes a `Reject` with its line and the reason, and reading continues with the next row.
Only a fault of the whole file (it is missing, its gzip stream is cut off, its header repeats a column) is an error.

    JSONL    one object per line, UTF-8; blank lines are skipped
    CSV      RFC 4180: quotes, doubled quotes, line breaks inside quotes; a header; UTF-8
    TSV      a header and no quoting: a quotation mark is an ordinary character, as in GLUE's files
    Parquet  the line number is the row number
    CoNLL    one word a line: see conll.py
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal

from uatlite.errors import ConfigurationError, DataError, InputError, check_choice
from uatlite.text.conll import texts_of, values_of
from uatlite.text.files import (
    FORMATS,
    STDIN,
    UNPACK_ERRORS,
    Line,
    arrow,
    decoded,
    is_remote,
    open_bytes,
    open_file,
    row_files,
)
from uatlite.values import counted

LONGEST_LINE = 16 * 2**20  # bytes of one JSONL line; a file without line ends must not fill the memory
EXCERPT = 200  # characters of a rejected row that are kept
_PARQUET_BATCH = 1024
_NOT_UTF8 = re.compile(r"[\udc80-\udcff]")  # what the error handler 'surrogateescape' puts for such bytes

_Parsed = tuple[int, Mapping[str, object] | str, object]
"""The first line of a row, its values or the reason why it has none, and what a Reject keeps of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row and its place: `line` is the first line of the row, from 1, counting the header."""

    file: str
    line: int
    values: Mapping[str, object]

    def rejected(self, error: Exception) -> "Reject":
        """The row as one that cannot be used, with the reason that the error gives."""
        return Reject(self.file, self.line, str(error), _excerpt(self.values))


@dataclass(frozen=True, slots=True)
class Reject:
    """One row that cannot be used: its place, the reason, and the beginning of its text."""

    file: str
    line: int
    reason: str
    raw: str

    def as_row(self) -> dict[str, object]:
        return asdict(self)

    def as_error(self) -> DataError:
        """What a reader raises that allows no such row."""
        return DataError(f"{self.file}, line {self.line}: {self.reason}.")


def read_rows(source: str | Path, *, format: str | None = None) -> Iterator[Row | Reject]:
    """The rows of a file, of all row files of a directory (by path or address), or of standard input ('-').

    A path that does not exist or has an unknown format is an error at once, not at the first row.
    """
    if str(source) == STDIN:
        format = format or "jsonl"
        check_choice("format", format, FORMATS)
        if format == "parquet":  # it needs a file that can seek
            raise ConfigurationError("format='parquet' cannot be read from standard input; give the file's path.")
        return _rows(STDIN, "standard input", format)
    files = row_files(source, format)
    return (row for path, name in files for row in _rows(path, Path(path).name, name))


def _rows(source: str, name: str, format: str) -> Iterator[Row | Reject]:
    line = 0
    try:
        for line, values, raw in READERS[format](source):
            yield Reject(name, line, values, _excerpt(raw)) if isinstance(values, str) else Row(name, line, values)
    except InputError as error:
        raise DataError(f"{name}: {error}.") from error
    except UNPACK_ERRORS as error:
        raise DataError(
            f"{name} breaks off after line {line} ({error}); the file is incomplete: copy or create it again."
        ) from error


def _excerpt(raw: object) -> str:
    """The start of a rejected row; bytes that are not UTF-8 are escaped."""
    if isinstance(raw, bytes):
        raw = raw[: 4 * EXCERPT].decode("utf-8", "backslashreplace")
    return str(raw)[:EXCERPT].encode("utf-8", "backslashreplace").decode()


def _read_lines(
    source: str,
    *,
    cut: Callable[[Iterable[Line]], Iterable[list[Line]]],
    parse: Callable[[list[Line]], Mapping[str, object] | None],
) -> Iterator[_Parsed]:
    """JSONL and CoNLL: `cut` gives the lines of each row, and `parse` its values, None where there are none."""
    with open_bytes(source) as file:
        for lines in cut(_lines(file)):
            line, raw = lines[0]
            try:
                values: Mapping[str, object] | str | None = parse(lines)
            except InputError as error:
                values = str(error)
            if values is not None:
                yield line, values, raw


def _lines(file: IO[bytes]) -> Iterator[Line]:
    """Numbered lines without their line ends; a line that is too long is cut one byte over the limit."""
    line = 0
    while raw := file.readline(LONGEST_LINE + 1):
        line += 1
        rest = raw
        while len(rest) > LONGEST_LINE and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE + 1)
        yield line, raw.rstrip(b"\r\n") if len(raw) <= LONGEST_LINE else raw


def _json_values(lines: list[Line]) -> dict[str, object] | None:
    """The object of a line; None if it is blank."""
    [(line, raw)] = lines
    if len(raw) > LONGEST_LINE:
        raise InputError(f"the line is longer than {LONGEST_LINE:,} bytes")
    text = decoded(line, raw)
    if not text.strip():
        return None
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"broken JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"broken JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"a JSON {type(values).__name__}, not an object")
    return values


def _read_delimited(source: str, *, delimiter: str, quoting: Literal[0, 3]) -> Iterator[_Parsed]:
    """CSV and TSV. Bytes that are not UTF-8 pass the parser as surrogates, so that only their own row is rejected."""
    with open_bytes(source) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        begins: list[str] = []  # the start of the row that is being parsed, for its Reject
        reader = csv.reader(_noting_start(text, begins), delimiter=delimiter, quoting=quoting, strict=True)
        try:
            header = _header(reader)
            while True:
                line = reader.line_num + 1
                begins.clear()
                try:
                    fields = next(reader)
                except csv.Error as error:
                    reason = f"{error} (lines {line} to {reader.line_num}): is a quote left open?"
                    yield line, reason, "".join(begins)
                    continue
                if fields:
                    yield line, _delimited_values(header, fields), ",".join(fields)
        except StopIteration:
            return
        finally:
            text.detach()  # standard input stays open


def _noting_start(lines: Iterable[str], begins: list[str]) -> Iterator[str]:
    """The same lines; the start of a line is kept in `begins` if that is empty."""
    for line in lines:
        if not begins:
            begins.append(line[:EXCERPT])
        yield line


def _header(reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader)
    except csv.Error as error:
        raise InputError(f"the header cannot be read: {error}") from error
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise InputError(f"the header repeats the column {repeated[0]!r}; columns: {', '.join(header)}")
    if _NOT_UTF8.search("".join(header)):
        raise InputError("the header is not UTF-8; convert the file first: iconv -t UTF-8")
    return header


def _delimited_values(header: list[str], fields: list[str]) -> dict[str, object] | str:
    if _NOT_UTF8.search("".join(fields)):
        return "not UTF-8"
    if len(fields) != len(header):
        return f"{counted(len(fields), 'field')} where the header has {len(header)}"
    return dict(zip(header, fields, strict=True))


def _read_parquet(source: str) -> Iterator[_Parsed]:
    pa, pq = arrow()
    line = 0
    try:
        with (
            open_file(source) if is_remote(source) else nullcontext(source) as seekable,
            pq.ParquetFile(seekable) as file,
        ):
            rows = chain.from_iterable(map(_parquet_values, file.iter_batches(batch_size=_PARQUET_BATCH)))
            for line, (values, raw) in enumerate(rows, start=1):
                yield line, values, raw
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"it cannot be read as Parquet after row {line}: {error}") from error


def _parquet_values(batch: Any) -> Iterator[tuple[dict[str, object] | str, object]]:
    """The rows of a batch, and the bytes of one that are not UTF-8."""
    try:
        yield from ((values, None) for values in batch.to_pylist())
        return
    except UnicodeDecodeError:
        pass
    for index in range(batch.num_rows):
        try:
            yield batch.slice(index, 1).to_pylist()[0], None
        except UnicodeDecodeError as error:
            yield "not UTF-8", error.object


READERS: dict[str, Callable[[str], Iterator[_Parsed]]] = {
    "jsonl": partial(_read_lines, cut=lambda lines: ([line] for line in lines), parse=_json_values),
    "csv": partial(_read_delimited, delimiter=",", quoting=csv.QUOTE_MINIMAL),
    "tsv": partial(_read_delimited, delimiter="\t", quoting=csv.QUOTE_NONE),
    "parquet": _read_parquet,
    "conll": partial(_read_lines, cut=texts_of, parse=values_of),
}
