"""Watching scored files: each look counts the rows that are new, and replaces one small file with all that is known.

The file is replaced whole after every block of rows: a kill at any point leaves the state of a moment before, and the
next look counts the rows since then. A lock keeps two processes apart.
"""

import fcntl
import heapq
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from uatlite.classifier.record import Calibration
from uatlite.classifier.saving import read
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, DataError, InputError, StoreError
from uatlite.scoring.scored_rows import ScoredRow, check_columns, column_of_score
from uatlite.scoring.timeline import HourTally, WatchedRow, hour_of
from uatlite.scoring.watch_state import Place, WatchState
from uatlite.scoring.watched_files import GrownFile, first_row, grown_files
from uatlite.text.rows import Reject, Row, read_rows
from uatlite.text.write import make_directory, write_text
from uatlite.trust.monitor import BOUND, SCOPE, Reference

_BLOCK = 4096
"""Rows between two writings of the state."""
PATIENCE = 60.0
"""Seconds to wait for another process that holds the state."""


@dataclass(frozen=True)
class NumberedRow:
    """A counted row: its number among all that were counted, the row of the file, and what was read of it."""

    number: int
    row: Row
    watched: WatchedRow


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
    """the column of the text, for a page; by default the column `text`, if there is one"""
    patience: float = PATIENCE

    @classmethod
    def of(
        cls,
        directory: str | Path,
        path: Path,
        *,
        bound: float | None = None,
        time: str | None = None,
        text: str | None = None,
    ) -> "Watch":
        """The watch of a calibrated classifier; no model is loaded."""
        calibration = read(directory).calibration
        if calibration is None:
            raise CalibrationError(
                f"{directory} is not calibrated, so there are no rows to compare with. Run: uatlite calibrate "
                f"{directory} DATA -o DIR"
            )
        return cls(calibration, path, bound, time, text)

    @cached_property
    def reference(self) -> Reference:
        """The calibration rows as the monitor sees them."""
        return Reference.of(self.calibration.shift, self.calibration.scope)

    def check(self, row: Row) -> None:
        """Raise where the first row of a file lacks a column."""
        named = [name for name in (self.time, self.text) if name is not None]
        needed = ["confidence", column_of_score(self.reference.score), *(["scope"] if self._scoped else []), *named]
        check_columns(ScoredRow(row.values, row.file, row.line), list(dict.fromkeys(needed)))

    def watched(self, row: Row, hour: str) -> WatchedRow | None:
        """What is watched of a row; None where a value cannot be used. `hour` is that of the file."""
        try:
            hour = hour if self.time is None else hour_of(row.values.get(self.time))
            scored = ScoredRow(row.values, row.file, row.line)
            return WatchedRow.of(scored, self.reference.score, hour, scoped=self._scoped)
        except (InputError, DataError):
            return None

    @property
    def _scoped(self) -> bool:
        return SCOPE in self.reference.cells

    def read(self) -> WatchState:
        """The state on disk; a new one where there is none."""
        reference = self.reference
        if not self.path.exists():
            return WatchState.begin(reference, bound=BOUND if self.bound is None else self.bound)
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.path} cannot be read ({error}); begin a new state file.") from error
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
        """Replace the state on disk."""
        write_text(self.path, json.dumps(dump(state), ensure_ascii=False) + "\n")

    def look(self, source: str, on_rows: Callable[[int], None] = lambda rows: None) -> WatchState:
        """Count every new row of the scored files; `on_rows` is called with the number of each block."""
        with self.locked():
            state = self.read()
            files = grown_files(source, state.files)
            if (row := first_row(source)) is not None:  # a wrong name is an error even where nothing is new
                self.check(row)
            for file in files:
                line = file.known.line
                for block in blocks(file, self):
                    line = block.line
                    state = state.after(self.reference, block.rows, block.places)
                    state = state.counting(replace(file.known, line=line), block.rejected)
                    self.write(state)
                    on_rows(len(block.rows))
                state = state.counting(replace(file.known, line=line, done=True))
            self.write(state)
        return state

    def count(self, rows: Sequence[WatchedRow], place: str) -> WatchState:
        """Count rows that are in no file, such as those of a service; `place` says where they are from."""
        with self.locked():
            state = self.read().after(self.reference, rows, [(place, 0)] * len(rows))
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
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror} ({self.path.parent}).") from error
        try:
            self._wait(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        until = time.monotonic() + self.patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreError(
                        f"{self.path} is in use by another process, for {self.patience:g} seconds now; one at a time "
                        "may watch with it."
                    ) from None
                time.sleep(0.05)


@dataclass(frozen=True)
class WatchedBlock:
    """Some rows of a file: those that can be used with their places, and how far they reach."""

    rows: list[WatchedRow]
    places: list[Place]
    rejected: int
    line: int


def blocks(file: GrownFile, watch: Watch, most: int = _BLOCK) -> Iterator[WatchedBlock]:
    """The rows of a file that are not counted yet, block by block; a row with a value that is no number is rejected."""
    hour, rows = hour_of(file.known.modified / 1e9), file.rows()
    checked = False
    while block := list(islice(rows, most)):
        usable: list[WatchedRow] = []
        places: list[Place] = []
        for row in block:
            if isinstance(row, Reject):
                continue
            if not checked:
                watch.check(row)
                checked = True
            if (watched := watch.watched(row, hour)) is not None:
                usable.append(watched)
                places.append((file.path.name, row.line))
        yield WatchedBlock(usable, places, len(block) - len(usable), block[-1].line)


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
        number = stretch.row
        for row in read_rows(path):
            if number == end:
                break
            if isinstance(row, Reject) or row.line < stretch.line:
                continue
            if (watched := watch.watched(row, stretch.hour)) is None:
                continue
            if number >= first:
                yield NumberedRow(number, row, watched)
            number += 1


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
    tally, strangest, near = HourTally(), list[NumberedRow](), list[NumberedRow]()
    rows = rows_since(watch, state, source, max(change - around, 0))
    while block := list(islice(rows, _BLOCK)):
        near += [row for row in block if row.number < change + around]
        since = [row for row in block if row.number >= change]
        tally = tally + HourTally.of(row.watched for row in since)
        strangest = heapq.nsmallest(most, [*strangest, *since], key=_trust)
    return ChangedRows(tally, strangest, near)


def _trust(row: NumberedRow) -> tuple[float, float]:
    scope = row.watched.scope
    return 1.0 if scope is None else scope, row.watched.score
