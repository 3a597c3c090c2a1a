"""The state of a watch, a value: the monitor, the time line, which rows were counted, and the alarms.

The monitor and what was counted are stored together, so that no row can be in one and not in the other. The time line
says what was answered hour by hour: shares of answered and out-of-scope rows, mean confidence and labels, with their
intervals. Hours are UTC, written as 2026-11-17T04. Old ones are merged into days (2026-11-17), so that it stays small.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any, Self

import numpy as np

from uatlite.classifier.record import Calibration
from uatlite.errors import InputError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.trust.monitor import BOUND, Monitor, Reference
from uatlite.trust.shift import Share, ShiftReport
from uatlite.values import Floats, counted

STRETCHES, FILES, BATCHES = 4000, 4000, 200
"""The latest stretches and files that are remembered, and the files whose counts are."""
HOURS = 14 * 24
"""The newest hours that are kept as hours."""
DAYS = 400
"""The newest days that are kept at all, beside these hours."""
NEAR = 20
"""Rows within which a change is dated."""
_LISTED = 20
"""Files that are listed on a terminal."""
_CONFIDENCE = 0.95
MILLISECONDS = 1e11
"""A number of seconds this large would lie beyond the year 5000: it counts milliseconds."""


@dataclass(frozen=True)
class WatchedRow:
    """What the monitor and the time line read of a scored row; `score` is higher where it is more trustworthy."""

    hour: str
    label: str
    confidence: float
    score: float
    scope: float | None = None
    abstain: bool | None = None
    out_of_scope: bool | None = None
    wrong: tuple[float, ...] = ()
    """of its reported answers the chances of being wrong"""
    file: str = ""
    line: int = 0

    @classmethod
    def of(cls, row: ScoredRow, score: str, hour: str, *, scoped: bool = True) -> Self:
        """A row by the name of its score; without `scoped` its scope is left aside. A broken value is a DataError."""
        return cls(
            hour=hour,
            label=row.counted_label,
            confidence=row.number("confidence"),
            score=row.score(score),
            scope=row.number("scope") if scoped else None,
            abstain=row.truth("abstain"),
            out_of_scope=row.truth("out_of_scope"),
            wrong=tuple(row.wrong),
            file=row.file,
            line=row.line,
        )


ANSWERED, OUTSIDE, SURE, EXPECTED = SHARES = "answered", "out of scope", "mean confidence", "expected wrong"


@dataclass(frozen=True)
class HourTally:
    """Counts over some rows. Sums of two are the counts over both; `log_martingale` is that of the later one."""

    rows: int = 0
    decided: int = 0
    """rows with an abstention rule"""
    answered: int = 0
    scoped: int = 0
    """rows whose scope is known"""
    outside: int = 0
    confidence: float = 0.0
    """the sum"""
    squares: float = 0.0
    """the sum of the squared confidences"""
    answers: int = 0
    """answers that are reported"""
    wrong: float = 0.0
    """the sum of their chances of being wrong"""
    growth: float = 0.0
    """of log M over these rows"""
    labels: Mapping[str, int] = field(default_factory=dict)
    log_martingale: float = 0.0

    @classmethod
    def of(cls, rows: Iterable[WatchedRow], log_martingale: float = 0.0, growth: float = 0.0) -> Self:
        """The counts over some rows."""
        rows = list(rows)
        sure = np.array([row.confidence for row in rows])
        return cls(
            rows=len(rows),
            decided=sum(row.abstain is not None for row in rows),
            answered=sum(row.abstain is False for row in rows),
            scoped=sum(row.out_of_scope is not None for row in rows),
            outside=sum(row.out_of_scope is True for row in rows),
            confidence=float(sure.sum()),
            squares=float((sure**2).sum()),
            answers=sum(len(row.wrong) for row in rows),
            wrong=sum(wrong for row in rows for wrong in row.wrong),
            growth=growth,
            labels=dict(Counter(row.label for row in rows)),
            log_martingale=log_martingale,
        )

    def __add__(self, other: "HourTally") -> "HourTally":
        labels = dict(Counter(self.labels) + Counter(other.labels))
        sums = {field: value + getattr(other, field) for field, value in vars(self).items() if field != "labels"}
        return HourTally(**sums | {"labels": labels, "log_martingale": other.log_martingale})

    def shares(self) -> dict[str, Share]:
        """The shares that are known, by their names in `SHARES`."""
        shares: dict[str, Share] = {}
        if self.decided:
            shares[ANSWERED] = Share.of(self.answered, self.decided)
        if self.scoped:
            shares[OUTSIDE] = Share.of(self.outside, self.scoped)
        if self.rows:
            mean = self.confidence / self.rows
            spread = max(self.squares / self.rows - mean**2, 0.0) ** 0.5
            reach = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2) * spread / self.rows**0.5
            shares[SURE] = Share(mean, max(mean - reach, 0.0), min(mean + reach, 1.0), self.rows)
        if self.answers:
            shares[EXPECTED] = Share.expected(self.wrong, self.answers)
        return shares


def added(
    tallies: Mapping[str, HourTally], keys: Iterable[str], rows: Sequence[WatchedRow], logs: Floats, start: float
) -> dict[str, HourTally]:
    """The counts by hour or by file, with some more rows: log M was `start`, and is `logs` (rows,) after each."""
    steps, merged, places = np.diff(logs, prepend=start), dict(tallies), dict[str, list[int]]()
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    for key, some in places.items():
        tally = HourTally.of((rows[i] for i in some), float(logs[some[-1]]), float(steps[some].sum()))
        merged[key] = merged.get(key, HourTally()) + tally
    return merged


@dataclass(frozen=True)
class Timeline:
    """The counts of every hour, in the order of time."""

    hours: Mapping[str, HourTally] = field(default_factory=dict)

    def with_rows(self, rows: Sequence[WatchedRow], logs: Floats, start: float = 0.0) -> "Timeline":
        """The time line with some more rows: each of them, and log M after it, (rows,), which was `start` before."""
        merged = added(self.hours, (row.hour for row in rows), rows, logs, start)
        recent, kept = set(sorted(hour for hour in merged if "T" in hour)[-HOURS:]), dict[str, HourTally]()
        for hour in sorted(merged):  # all but the newest hours are merged into days
            name = hour if hour in recent else hour.partition("T")[0]
            kept[name] = kept.get(name, HourTally()) + merged[hour]
        return Timeline({name: kept[name] for name in sorted(kept)[-(HOURS + DAYS) :]})

    def total(self, hours: Iterable[str] | None = None) -> HourTally:
        """The counts over some hours, or over all."""
        return sum((self.hours[hour] for hour in (self.hours if hours is None else hours)), HourTally())


def spelt_hour(hour: str) -> str:
    """An hour or a day for a reader: 2026-11-17 04:00 UTC."""
    day, _, time = hour.partition("T")
    return f"{day} {time}:00 UTC" if time else day


def hour_of(moment: object) -> str:
    """The hour of a time: a datetime, ISO 8601 (UTC where it names no zone), or seconds or milliseconds since 1970."""
    try:
        if isinstance(moment, str) and not moment.strip().replace(".", "", 1).isdigit():
            moment = datetime.fromisoformat(moment.strip())
        elif not isinstance(moment, datetime):
            seconds = float(str(moment))
            moment = datetime.fromtimestamp(seconds / 1000 if seconds > MILLISECONDS else seconds, UTC)
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{moment!r} is no time; allowed are ISO 8601 and seconds since 1970") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H")


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
    batches: Mapping[str, HourTally] = field(default_factory=dict)
    """file -> its counts, in the order in which files were read; those of the latest files"""

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
        start = self.monitor.log_martingale
        batches = added(self.batches, (row.file for row in rows), rows, logs, start)
        stretches = list(self.stretches)
        for i, row in enumerate(rows, self.rows):
            if not stretches or (stretches[-1].file, stretches[-1].hour) != (row.file, row.hour):
                stretches.append(Stretch(i, row.file, row.line, row.hour))
        grown = replace(
            self,
            monitor=monitor,
            timeline=self.timeline.with_rows(rows, logs, start),
            batches=dict(list(batches.items())[-BATCHES:]),
            rows=self.rows + len(rows),
            stretches=tuple(stretches[-STRETCHES:]),
        )
        if self.monitor.alarm is not None or monitor.alarm is None:
            return grown
        at, dated = self.begun + monitor.alarm.row, self.begun + monitor.alarm.change
        # A change that is dated a few rows before a file or an hour begins with it.
        change = next((entry.row for entry in grown.stretches if dated <= entry.row <= min(dated + NEAR, at)), dated)
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

    def seen(self, new: int | None = None) -> str:
        """How many rows were counted, `new` of them by the last look."""
        rejected = f"; {self.rejected:,} could not be used" if self.rejected else ""
        return f"{counted(self.rows)} watched{'' if new is None else f', {new:,} of them new'}{rejected}."

    def report(self, calibration: Calibration) -> ShiftReport:
        """The verdict over the whole life, and what it means for the answers since the change."""
        alarm, bound, over = self.alarm, self.monitor.bound, f"the whole life, {counted(self.rows)}"
        tally, verdict = self.timeline.total(), "No change was found" if self.rows else "No rows yet"
        if self.monitor.fresh:
            verdict += f" since row {self.begun + 1:,}, where the new normal begins"
        if alarm is not None:
            verdict = f"ALARM: {alarm.what}, since about row {alarm.change + 1:,} ({spelt_hour(alarm.since)})"
            tally, since = self.since(alarm)
            over += f", and the answers from {since} on" if tally.rows < self.rows else ""
        outside = tally.outside / tally.scoped if tally.scoped else None
        shifted = alarm is not None if self.rows else None
        evidence = f"evidence of a change {self.evidence:.3g}, alarm at {1.0 / bound:.4g}"
        report = ShiftReport(
            self.rows, shifted, None, bound, None, out_of_scope=outside, found=verdict, evidence=evidence
        )
        return calibration.judged(report, over, tally.rows, tally.answers, tally.wrong)

    def since(self, alarm: PastAlarm) -> tuple[HourTally, str]:
        """The counts from the hour of a change on, or from its file on if these are fewer; and what that is called."""
        hours = self.timeline.total(hour for hour in self.timeline.hours if hour >= alarm.since)
        names, stretch = list(self.batches), self.stretch_of(alarm.change)
        if stretch is not None and stretch.file in names:
            files = sum((self.batches[name] for name in names[names.index(stretch.file) :]), HourTally())
            if files.rows <= hours.rows:
                return files, stretch.file
        return hours, spelt_hour(alarm.since)

    def by_file(self) -> list[dict[str, Any]]:
        """What is known of each of the latest files: its rows, its shares, and how often the evidence grew over it."""
        return [
            {"file": name, "rows": tally.rows, "evidence": math.exp(min(tally.growth, 700.0))}
            | {share: tally.shares().get(share) for share in (ANSWERED, OUTSIDE, EXPECTED)}
            for name, tally in self.batches.items()
        ]

    def details(self) -> list[str]:
        """Lines for a terminal below the verdict: a line a file; after an alarm the file to look at, and what to do."""
        files, lines = self.by_file(), list[str]()
        width = max((len(row["file"]) for row in files), default=0)
        for row in files[-_LISTED:]:
            shares = [f"{name} {'–' if row[name] is None else row[name]}" for name in (ANSWERED, OUTSIDE, EXPECTED)]
            figures = "; ".join([counted(row["rows"]), *shares, f"evidence ×{row['evidence']:.2g}"])
            lines.append(f"  {row['file']:<{width}}  {figures}")
        if self.alarm is not None:
            most = max(files, key=lambda row: float(row["evidence"]), default={"file": "no file that is known"})
            told = "--report PAGE shows more, --acknowledge resets the alarm."
            lines.append(f"The evidence grew most in {most['file']}. {told}")
        return lines
