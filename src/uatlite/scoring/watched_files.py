"""The scored files that a watch counts: which are new or have grown, and their rows that are not counted yet.

A file is known by its name and the hash of the bytes that were counted: it may grow, and a file that was rewritten or
has got another name is an error. A line without a line end is still being written, and waits.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from uatlite.errors import DataError
from uatlite.text.files import is_remote, row_files
from uatlite.text.rows import Reject, Row, read_rows

BESIDE = (".rejects.jsonl", ".review.csv")
"""How the names of files end that `predict` writes beside its rows."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class CountedFile:
    """A file whose first `size` bytes are known; its rows up to `line` are counted."""

    name: str
    size: int
    digest: str
    modified: int
    """when it was written, in nanoseconds since 1970"""
    line: int = 0
    done: bool = False
    """whether all complete rows of these bytes are counted"""


@dataclass(frozen=True)
class GrownFile:
    """A file to read on, from the row after `known.line`; `lines` are complete, None where all are."""

    path: Path
    known: CountedFile
    lines: int | None

    def rows(self) -> Iterator[Row | Reject]:
        """The complete rows that are not counted yet."""
        waiting: Row | Reject | None = None
        for row in read_rows(self.path):
            if row.line <= self.known.line:
                continue
            if self.lines is None:
                yield row
                continue
            if waiting is not None and row.line <= self.lines + 1:
                yield waiting
            waiting = row if row.line <= self.lines else None
            if waiting is None:
                return
        # The last row of a file is complete with its line end; an open quote at the end is still being written.
        if waiting is not None and not (isinstance(waiting, Reject) and "quote" in waiting.reason):
            yield waiting


def grown_files(source: str, counted: Sequence[CountedFile]) -> list[GrownFile]:
    """The files with rows that are not counted, in the order of their names."""
    if is_remote(source):
        raise DataError(f"{source} is remote: watching takes files on this machine, whose bytes it can compare.")
    return [file for path in _files(source) if (file := _look(path, counted)) is not None]


def first_row(source: str) -> Row | None:
    """The first row of the files, counted or not; None where there is none yet."""
    return next((row for path in _files(source) for row in read_rows(path) if isinstance(row, Row)), None)


def _files(source: str) -> list[Path]:
    empty = Path(source).is_dir() and not any(Path(source).iterdir())
    files = [] if empty else [Path(str(path)) for path, _ in row_files(source)]
    return [path for path in files if not path.name.endswith(BESIDE)]


def _look(path: Path, counted: Sequence[CountedFile]) -> GrownFile | None:
    """The file as it is now; None where nothing is new. Raises where counted rows changed, or their file's name."""
    before = next((file for file in counted if file.name == path.name), None)
    stat = path.stat()
    if before is not None and before.done and (stat.st_size, stat.st_mtime_ns) == (before.size, before.modified):
        return None
    line = 0 if before is None else before.line
    sizes = {stat.st_size} if before is None else {stat.st_size, before.size}
    digests, lines = _digests(path, sizes)
    if before is not None and line and digests[before.size] != before.digest:
        raise DataError(
            f"{path} was counted up to line {line:,} and has other rows there now. A counted file may grow, but not be "
            "rewritten: give new rows a new file."
        )
    same = [file.name for file in counted if file.line and file.digest == digests[stat.st_size]]
    if before is None and same:
        raise DataError(
            f"{path} has the rows of {same[0]}, which are counted. A counted file keeps its name: rename it back, or "
            "take the copy away."
        )
    known = CountedFile(path.name, stat.st_size, digests[stat.st_size], stat.st_mtime_ns, line)
    packed = path.suffix.lower() in (".parquet", ".gz")
    return GrownFile(path, known, None if packed else lines)


def _digests(path: Path, sizes: set[int]) -> tuple[dict[int, str], int]:
    """SHA-256 of the first bytes of a file, for each number of bytes; and the line ends in the longest of them."""
    digest, read, lines = hashlib.sha256(), 0, 0
    digests: dict[int, str] = {}
    with path.open("rb") as file:
        for size in sorted(sizes):
            while read < size and (chunk := file.read(min(_CHUNK, size - read))):
                digest.update(chunk)
                read, lines = read + len(chunk), lines + chunk.count(b"\n")
            digests[size] = digest.hexdigest()
    return digests, lines
