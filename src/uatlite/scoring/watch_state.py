"""The state of a watch, a value: the monitor, the time line, which rows were counted, and the alarms.

The monitor and what was counted are stored together, so that no row can be in one and not in the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from uatlite.scoring.timeline import Timeline, WatchedRow, spelt_hour
from uatlite.trust.monitor import BOUND, Monitor, Reference

STRETCHES, FILES = 4000, 4000
"""The latest stretches and files that are remembered."""


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
class Stretch:
    """Consecutive rows of one file and one hour, from row number `row` on; where to find rows again."""

    row: int
    file: str
    line: int
    hour: str


@dataclass(frozen=True)
class PastAlarm:
    """An alarm in numbers of all rows, with the hours of the change and of the alarm; `answer` once acknowledged."""

    row: int
    change: int
    since: str
    raised: str
    what: str
    answer: str | None = None


@dataclass(frozen=True, eq=False)
class WatchState:
    """All that is known after some rows: the monitor, the time line, the files, and the alarms."""

    reference: str
    """the digest of the calibration rows"""
    monitor: Monitor
    rows: int = 0
    """all rows that were counted"""
    rejected: int = 0
    begun: int = 0
    """rows before the last reset"""
    timeline: Timeline = field(default_factory=Timeline)
    files: tuple[CountedFile, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    alarms: tuple[PastAlarm, ...] = ()

    @property
    def alarm(self) -> PastAlarm | None:
        """The alarm that is not acknowledged."""
        return self.alarms[-1] if self.monitor.alarm is not None and self.alarms else None

    @property
    def evidence(self) -> float:
        """M, cut where it is overwhelming; an alarm is raised at 1 / bound."""
        return math.exp(min(self.monitor.log_martingale, 700.0))

    @classmethod
    def begin(cls, reference: Reference, *, bound: float = BOUND, seed: int = 0) -> Self:
        """Before the first row."""
        return cls(reference.digest, Monitor.begin(reference, bound=bound, seed=seed))

    def after(self, reference: Reference, rows: Sequence[WatchedRow]) -> "WatchState":
        """The state after some more rows."""
        if not rows:
            return self
        scope = [row.scope for row in rows if row.scope is not None]
        monitor, logs = self.monitor.after(reference, [row.score for row in rows], scope or None)
        stretches = list(self.stretches)
        for i, row in enumerate(rows, self.rows):
            if not stretches or (stretches[-1].file, stretches[-1].hour) != (row.file, row.hour):
                stretches.append(Stretch(i, row.file, row.line, row.hour))
        grown = replace(
            self,
            monitor=monitor,
            timeline=self.timeline.with_rows(rows, logs),
            rows=self.rows + len(rows),
            stretches=tuple(stretches[-STRETCHES:]),
        )
        if self.monitor.alarm is not None or monitor.alarm is None:
            return grown
        at, change = self.begun + monitor.alarm.row, self.begun + monitor.alarm.change
        raised, since = rows[at - 1 - self.rows].hour, grown.stretch_of(change)
        past = PastAlarm(at, change, since.hour if since else raised, raised, monitor.alarm.describe())
        return replace(grown, alarms=(*self.alarms, past))

    def counting(self, file: CountedFile, rejected: int = 0) -> "WatchState":
        """The state with a file counted up to a line, and some rows that could not be used."""
        others = [counted for counted in self.files if counted.name != file.name]
        return replace(self, files=(*others, file)[-FILES:], rejected=self.rejected + rejected)

    def stretch_of(self, row: int) -> Stretch | None:
        """The stretch that holds a row; None where it was forgotten."""
        return next((stretch for stretch in reversed(self.stretches) if stretch.row <= row), None)

    def acknowledged(self, reference: Reference, *, fresh: bool) -> "WatchState":
        """After an alarm: begin again. With `fresh` the rows from now on are the new normal."""
        monitor = self.monitor.acknowledged(reference, fresh=fresh)
        answer = "the new normal" if fresh else "over"
        alarms = (*self.alarms[:-1], replace(self.alarms[-1], answer=answer))
        return replace(self, monitor=monitor, begun=self.rows, alarms=alarms)

    def describe(self, new: int | None = None) -> list[str]:
        """Lines for a terminal; `new` is how many rows the last look counted."""
        counted = f"{self.rows:,} rows watched" + ("" if new is None else f", {new:,} of them new")
        rejected = f"; {self.rejected:,} could not be used" if self.rejected else ""
        return [
            f"{counted}{rejected}. Evidence of a change {self.evidence:.3g}, alarm at {1.0 / self.monitor.bound:.4g}.",
            *self.verdict(),
        ]

    def verdict(self) -> list[str]:
        """Whether something has changed, what and since when."""
        alarm = self.alarm
        if alarm is not None:
            stretch = self.stretch_of(alarm.change)
            found = (
                f"ALARM: {alarm.what}, since about row {alarm.change + 1:,} ({spelt_hour(alarm.since)}). Raised after "
                f"row {alarm.row:,}. The promises hold for rows like the calibration rows, not for these.",
                self.latest(),
                stretch and f"The change is in {stretch.file}. --report PAGE shows it, --acknowledge resets the alarm.",
            )
            return [line for line in found if line]
        if self.monitor.fresh and self.alarms:
            return [f"Compared with the rows since row {self.begun + 1:,}, which are the new normal."]
        if not self.rows:
            return ["No rows yet."]
        return [f"No change was found; false alarms are bounded by {self.monitor.bound:g} over the whole life."]

    def latest(self) -> str | None:
        """The change by all rows so far, where that says more than the alarm did."""
        alarm, now = self.monitor.alarm, self.monitor.latest
        if alarm is None or now is None or (alarm.stream, alarm.bet) == (now.stream, now.bet):
            return None
        change = self.begun + now.change
        stretch = self.stretch_of(change)
        hour = "" if stretch is None else f" ({spelt_hour(stretch.hour)})"
        return f"By all {self.rows:,} rows: {now.describe()}, since about row {change + 1:,}{hour}."
