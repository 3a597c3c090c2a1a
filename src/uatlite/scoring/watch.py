"""Watching scored files: each look counts the rows that are new, and replaces one small file with all that is known.

The file is replaced whole after every block of rows: a kill at any point leaves the state of a moment before, and the
next look counts the rows since then. A lock keeps two processes apart.

A scored file is known by its name and the hash of the bytes that were counted: it may grow, and a file that was
rewritten or has got another name is an error. A line without a line end is still being written, and waits.
"""

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path

from filelock import FileLock, Timeout

from uatlite.classifier.record import Calibration
from uatlite.classifier.saving import read
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, DataError, InputError, StoreError
from uatlite.scoring.scored_rows import ScoredRow, check_columns, scored_files
from uatlite.scoring.watch_state import CountedFile, HourTally, WatchedRow, WatchState, hour_of
from uatlite.text.files import is_remote
from uatlite.text.rows import Reject, Row, read_rows
from uatlite.text.write import make_directory, write_text
from uatlite.trust.monitor import BOUND, SCOPE, Reference
from uatlite.trust.rule import column_of_score

BLOCK = 4096
"""Rows between two writings of the state."""
PATIENCE = 60.0
"""Seconds to wait for another process that holds the state."""
TOLD = "told"
"""Where the file of a state tells a reader what follows from it."""
_CHUNK = 1 << 20


def watched_calibration(directory: str | Path) -> Calibration:
    """What a watch compares with, of a calibrated classifier; no model is loaded."""
    calibration = read(directory).calibration
    if calibration is None:
        raise CalibrationError(
            f"{directory} is not calibrated, so there are no rows to compare with. Run: uatlite calibrate {directory} "
            "DATA -o DIR"
        )
    return calibration


@dataclass(frozen=True, eq=False)
class Watch:
    """A classifier's calibration, and the file that holds the state."""

    calibration: Calibration
    path: Path
    bound: float | None = None
    """of false alarms over the whole life; None for that of the state, and 0.01 for a new one"""
    time: str | None = None
    """the column of the time of a row; by default the time of its file"""
    text: str | None = None
    """the column of the text, for a page; by default `usual`, if there is one"""
    usual: str = "text"
    """the column of the text where none is named: that of calibration"""
    patience: float = PATIENCE
    block: int = BLOCK

    @cached_property
    def reference(self) -> Reference:
        """The calibration rows as the monitor sees them."""
        return Reference.of(self.calibration.shift, self.calibration.scope)

    def check(self, row: Row | None) -> None:
        """Raise where the first row of a file lacks a column; there may be none yet."""
        if row is None:
            return
        scope = "scope" if SCOPE in self.reference.cells else None
        needed = ["confidence", column_of_score(self.reference.score), scope, self.time, self.text]
        check_columns(ScoredRow.of(row), list(dict.fromkeys(name for name in needed if name is not None)))

    def watched(self, row: Row | Reject, hour: str) -> WatchedRow | None:
        """What is watched of a row; None where it cannot be used. `hour` is that of the file."""
        try:
            scored = ScoredRow.of(row)
            hour = hour if self.time is None else hour_of(scored.values.get(self.time))
            return WatchedRow.of(scored, self.reference.score, hour, scoped=SCOPE in self.reference.cells)
        except (InputError, DataError):
            return None

    def read(self) -> WatchState:
        """The state on disk; a new one where there is none."""
        reference = self.reference
        if not self.path.exists():
            return WatchState.begin(reference, bound=BOUND if self.bound is None else self.bound)
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.path} cannot be read ({error}); begin a new state file.") from error
        if isinstance(stored, dict):
            stored.pop(TOLD, None)
        state = load(WatchState, stored, advice="begin a new state file.")
        if state.reference != reference.digest:
            raise StoreError(
                f"{self.path} belongs to another calibration of the classifier; its evidence does not carry over. "
                "Give another state file."
            )
        if self.bound is not None and state.monitor.bound != self.bound:
            raise StoreError(
                f"{self.path} was begun with the bound {state.monitor.bound:g}, not {self.bound:g}; a bound holds for "
                "a whole life. Give no --bound, or another state file."
            )
        return state

    def write(self, state: WatchState) -> None:
        """Replace the state on disk, with the verdict and what is known of each file, for a reader."""
        told = {"verdict": state.report(self.calibration).as_row(), "files": dump(state.by_file())}
        write_text(self.path, json.dumps({TOLD: told, **dump(state)}, ensure_ascii=False) + "\n")

    def look(self, source: str, on_rows: Callable[[int], None] = lambda rows: None) -> WatchState:
        """Count every new row of the scored files; `on_rows` is called with the number of each block."""
        with self.locked():
            state = self.read()
            files = grown_files(source, state.files)
            self.check(first_row(source))  # a wrong name is an error even where nothing is new
            for file in files:
                self.check(first_row(file.path))
                counted, rows = file.counted, file.rows()
                hour = hour_of(counted.modified / 1e9)
                while block := list(islice(rows, self.block)):
                    usable = [watched for row in block if (watched := self.watched(row, hour)) is not None]
                    counted = replace(counted, line=block[-1].line)
                    state = state.after(self.reference, usable).counting(counted, len(block) - len(usable))
                    self.write(state)
                    on_rows(len(usable))
                state = state.counting(replace(counted, done=True))
            self.write(state)
        return state

    def count(self, rows: Sequence[WatchedRow]) -> WatchState:
        """Count rows that are in no file, such as those of a service; their `file` says where they are from."""
        with self.locked():
            state = self.read().after(self.reference, rows)
            if rows:
                self.write(state)
        return state

    def acknowledge(self, *, fresh: bool = False) -> WatchState:
        """Reset after an alarm; with `fresh` the rows from now on are the new normal."""
        with self.locked():
            state = self.read().acknowledged(self.reference, fresh=fresh)
            self.write(state)
        return state

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the state alone; wait for another process, but not for ever."""
        make_directory(self.path.parent)
        try:
            held = FileLock(self.path.with_name(f".{self.path.name}.lock")).acquire(self.patience)
        except Timeout as error:
            raise StoreError(
                f"{self.path} is in use by another process, for {self.patience:g} seconds now; one at a time may watch "
                "with it."
            ) from error
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror} ({self.path.parent}).") from error
        with held:
            yield


@dataclass(frozen=True)
class GrownFile:
    """A file to read on, from the row after `counted.line`; `lines` are complete, None where all are."""

    path: Path
    counted: CountedFile
    lines: int | None

    def rows(self) -> Iterator[Row | Reject]:
        """The complete rows that are not counted yet."""
        for row, after in pairwise(chain(read_rows(self.path), [None])):
            if row is None or not self._complete(row, after):
                return
            if row.line > self.counted.line:
                yield row

    def _complete(self, row: Row | Reject, after: Row | Reject | None) -> bool:
        """Whether a row ends in a complete line. An open quote at the end of a file is still being written."""
        if self.lines is None:
            return True
        if after is None:
            return row.line <= self.lines and not (isinstance(row, Reject) and "quote" in row.reason)
        return row.line <= self.lines and after.line <= self.lines + 1


def grown_files(source: str, counted: Sequence[CountedFile]) -> list[GrownFile]:
    """The files with rows that are not counted, in the order of their names."""
    if is_remote(source):
        raise DataError(f"{source} is remote: watching takes files on this machine, whose bytes it can compare.")
    return [file for path in _files(source) if (file := _grown(path, counted)) is not None]


def first_row(source: str | Path) -> Row | None:
    """The first row of the files, counted or not; None where there is none yet."""
    return next((row for path in _files(source) for row in read_rows(path) if isinstance(row, Row)), None)


def _files(source: str | Path) -> list[Path]:
    empty = Path(source).is_dir() and not any(Path(source).iterdir())
    return [] if empty else [Path(path) for path in scored_files(source)]


def _grown(path: Path, counted: Sequence[CountedFile]) -> GrownFile | None:
    """The file as it is now; None where nothing is new. Raises where counted rows changed, or their file's name."""
    before = next((file for file in counted if file.name == path.name), None)
    stat = path.stat()
    size, modified, line = stat.st_size, stat.st_mtime_ns, 0 if before is None else before.line
    if before is not None and before.done and (size, modified) == (before.size, before.modified):
        return None
    digests, lines = _digests(path, {size} if before is None else {size, before.size})
    if before is not None and line and digests[before.size] != before.digest:
        raise DataError(
            f"{path} was counted up to line {line:,} and has other rows there now. A counted file may grow, but not be "
            "rewritten: give new rows a new file."
        )
    same = [file.name for file in counted if file.line and file.digest == digests[size]]
    if before is None and same:
        raise DataError(
            f"{path} has the rows of {same[0]}, which are counted. A counted file keeps its name: rename it back, or "
            "take the copy away."
        )
    packed = path.suffix.lower() in (".parquet", ".gz")
    return GrownFile(path, CountedFile(path.name, size, digests[size], modified, line), None if packed else lines)


def _digests(path: Path, sizes: set[int]) -> tuple[dict[int, str], int]:
    """SHA-256 of the first bytes of a file, for each number of bytes; and the line ends in the longest of them."""
    digest, done, lines = hashlib.sha256(), 0, 0
    digests: dict[int, str] = {}
    with path.open("rb") as file:
        for size in sorted(sizes):
            while done < size and (chunk := file.read(min(_CHUNK, size - done))):
                digest.update(chunk)
                done, lines = done + len(chunk), lines + chunk.count(b"\n")
            digests[size] = digest.hexdigest()
    return digests, lines


@dataclass(frozen=True)
class NumberedRow:
    """A counted row: its number among all that were counted, the row of the file, and what was read of it."""

    number: int
    row: Row
    watched: WatchedRow


def rows_since(watch: Watch, state: WatchState, source: str | None, first: int) -> Iterator[NumberedRow]:
    """The counted rows from a number on, read again; those whose file is gone are left out."""
    if source is None:
        return
    home = Path(source) if Path(source).is_dir() else Path(source).parent
    ends = [*(stretch.row for stretch in state.stretches), state.rows][1:]
    for stretch, end in zip(state.stretches, ends, strict=True):
        path = home / stretch.file
        if end <= first or not path.exists():
            continue
        rows = (row for row in read_rows(path) if isinstance(row, Row) and row.line >= stretch.line)
        usable = ((row, watched) for row in rows if (watched := watch.watched(row, stretch.hour)) is not None)
        for number, (row, watched) in enumerate(islice(usable, end - stretch.row), stretch.row):
            if number >= first:
                yield NumberedRow(number, row, watched)


@dataclass(frozen=True)
class ChangedRows:
    """The rows since a change: their counts, the strangest of them, and the rows around the change."""

    tally: HourTally
    strangest: list[NumberedRow]
    around: list[NumberedRow]


def changed_rows(
    watch: Watch, state: WatchState, source: str | None, change: int, *, most: int = 20, around: int = 5
) -> ChangedRows:
    """The rows from number `change` on, in one reading. Strangest are the lowest p-values of scope, then of scores."""

    def trust(row: NumberedRow) -> tuple[float, float]:
        return 1.0 if row.watched.scope is None else row.watched.scope, row.watched.score

    tally, strangest, near = HourTally(), list[NumberedRow](), list[NumberedRow]()
    rows = rows_since(watch, state, source, max(change - around, 0))
    while block := list(islice(rows, BLOCK)):
        near += [row for row in block if row.number < change + around]
        since = [row for row in block if row.number >= change]
        tally = tally + HourTally.of(row.watched for row in since)
        strangest = heapq.nsmallest(most, [*strangest, *since], key=trust)
    return ChangedRows(tally, strangest, near)
