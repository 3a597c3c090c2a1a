"""What was answered hour by hour: shares of answered and out-of-scope rows, mean confidence, labels, with intervals.

Hours are UTC, written as 2026-11-17T04. Old hours are merged into days (2026-11-17), so that the record stays small.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Self

import numpy as np

from uatlite.errors import InputError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.trust.binomial import clopper_pearson
from uatlite.values import Floats

HOURS = 14 * 24
"""The newest hours that are kept as hours."""
DAYS = 400
"""The newest days that are kept at all, beside these hours."""
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
            file=row.file,
            line=row.line,
        )


@dataclass(frozen=True)
class Share:
    """A share, or a mean, with its interval; it holds for one hour by itself."""

    value: float
    low: float
    high: float
    rows: int


ANSWERED, OUTSIDE, SURE = "answered", "out of scope", "confidence"
_SUMMED = ("rows", "decided", "answered", "scoped", "outside", "confidence", "squares")


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
    labels: Mapping[str, int] = field(default_factory=dict)
    log_martingale: float = 0.0

    @classmethod
    def of(cls, rows: Iterable[WatchedRow], log_martingale: float = 0.0) -> Self:
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
            labels=dict(Counter(row.label for row in rows)),
            log_martingale=log_martingale,
        )

    def __add__(self, other: "HourTally") -> "HourTally":
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        return replace(other, **sums, labels=dict(Counter(self.labels) + Counter(other.labels)))

    def shares(self) -> dict[str, Share]:
        """The shares that are known, by name: answered, out of scope, confidence."""
        shares: dict[str, Share] = {}
        if self.decided:
            shares[ANSWERED] = share(self.answered, self.decided)
        if self.scoped:
            shares[OUTSIDE] = share(self.outside, self.scoped)
        if self.rows:
            mean = self.confidence / self.rows
            spread = max(self.squares / self.rows - mean**2, 0.0) ** 0.5
            reach = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2) * spread / self.rows**0.5
            shares[SURE] = Share(mean, max(mean - reach, 0.0), min(mean + reach, 1.0), self.rows)
        return shares

    def label_share(self, label: str) -> Share:
        """How often a label was predicted."""
        return share(self.labels.get(label, 0), self.rows)


def share(count: int, rows: int) -> Share:
    """A share with its exact interval (Clopper and Pearson)."""
    if not rows:
        return Share(0.0, 0.0, 1.0, 0)
    low, high = clopper_pearson(count, rows, _CONFIDENCE)
    return Share(count / rows, float(low), float(high), rows)


@dataclass(frozen=True)
class Timeline:
    """The counts of every hour, in the order of time."""

    hours: Mapping[str, HourTally] = field(default_factory=dict)

    def with_rows(self, rows: Sequence[WatchedRow], logs: Floats) -> "Timeline":
        """The time line with some more rows: each of them, and log M after it, (rows,)."""
        merged = dict(self.hours)
        by_hour: dict[str, list[int]] = {}
        for i, row in enumerate(rows):
            by_hour.setdefault(row.hour, []).append(i)
        for hour, numbers in by_hour.items():
            tally = HourTally.of((rows[i] for i in numbers), float(logs[numbers[-1]]))
            merged[hour] = merged.get(hour, HourTally()) + tally
        return Timeline(_thinned(merged))

    def total(self, hours: Iterable[str] | None = None) -> HourTally:
        """The counts over some hours, or over all."""
        return sum((self.hours[hour] for hour in (self.hours if hours is None else hours)), HourTally())


def _thinned(hours: Mapping[str, HourTally]) -> dict[str, HourTally]:
    """Sorted by time; all but the newest hours are merged into days."""
    kept: dict[str, HourTally] = {}
    recent = set(sorted(hour for hour in hours if "T" in hour)[-HOURS:])
    for hour in sorted(hours):
        name = hour if hour in recent else hour.partition("T")[0]
        kept[name] = kept.get(name, HourTally()) + hours[hour]
    return {name: kept[name] for name in sorted(kept)[-(HOURS + DAYS) :]}


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
