"""The page of a watch, for a person on call: what changed, since when, how bad, what to do, and texts to look at."""

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from uatlite.lab.report.figures import MUTED, SERIES, WRONG, RenderedFigure, filled, percent, render
from uatlite.lab.report.tables import Record
from uatlite.scoring.scored_rows import INPUT_PREFIX, job_of
from uatlite.scoring.watch import Watch, changed_rows
from uatlite.scoring.watch_state import ANSWERED, EXPECTED, OUTSIDE, SHARES, SURE, HourTally, WatchState, spelt_hour
from uatlite.text.write import make_directory, write_text
from uatlite.trust.shift import Share

_LABELS = 6
"""Labels in the table: those whose share moved most."""
_DRAWN = 2
"""Labels whose share is drawn by the hour; of two labels one says it all."""
_PREDICTED = "predicted "
"""Before a label in the name of its share."""
_STRANGE = 0.05
"""Texts with a lower p-value of scope are marked."""
_NAMED = 6
"""Files that are named below a time line."""
_TEXTS = 20
_AROUND = 5
"""Rows before and after the change that are listed."""
_Shares = dict[str, Share]


@dataclass(frozen=True)
class MovedShare:
    """One share at calibration, before the change and since; None where it is not known."""

    name: str
    usual: float | None
    before: Share | None
    since: Share | None

    @property
    def label(self) -> str:
        """The name without 'predicted'."""
        return self.name.removeprefix(_PREDICTED)

    @property
    def base(self) -> float | None:
        """What it is compared with: before the change, or else at calibration."""
        return self.usual if self.before is None else self.before.value

    @property
    def moved(self) -> float:
        """How far it has moved."""
        return 0.0 if self.since is None or self.base is None else abs(self.since.value - self.base)


def usual_shares(watch: Watch) -> dict[str, float]:
    """The shares of the calibration rows that are known, by name."""
    shift, scope = watch.calibration.shift, watch.calibration.scope
    shares: dict[str, float | None] = {OUTSIDE: None if scope is None else scope.false_alarm}
    if shift is not None and (usual := shift.usual) is not None:
        labels = {f"{_PREDICTED}{label}": share for label, share in usual.labels.items()}
        shares |= {ANSWERED: usual.answered, SURE: usual.confidence, **labels}
    return {name: share for name, share in shares.items() if share is not None}


def shares_of(tally: HourTally | None, labels: Iterable[str]) -> _Shares:
    """The shares of some rows that are known, by name, and those of some labels."""
    if tally is None or not tally.rows:
        return {}
    predicted = {f"{_PREDICTED}{label}": Share.of(tally.labels.get(label, 0), tally.rows) for label in labels}
    return tally.shares() | predicted


def moved_shares(watch: Watch, before: HourTally, since: HourTally | None) -> tuple[list[MovedShare], list[MovedShare]]:
    """The shares that have a name before a change and since, and those of the labels that moved most."""
    usual, labels = usual_shares(watch), [*before.labels, *(since.labels if since else ())]
    old, new = shares_of(before, labels), shares_of(since, labels)
    every = [
        MovedShare(name, usual.get(name), old.get(name), new.get(name))
        for name in dict.fromkeys([*SHARES, *usual, *old, *new])
    ]
    named = [share for share in every if share.name in SHARES and (share.before or share.since)]
    predicted = [share for share in every if share.name not in SHARES]
    return named, sorted(predicted, key=lambda share: -share.moved)[:_LABELS]


def timeline_figure(watch: Watch, state: WatchState, labels: Sequence[str]) -> RenderedFigure:
    """For each hour log10 of the evidence, then shares with their intervals, also of some labels.

    Where rows have no time of their own and there are several files, it is for each file.
    """
    by_file = watch.time is None and len(state.batches) > 1
    unit, tallies = ("file", state.batches) if by_file else ("hour", state.timeline.hours)
    shares = {name: shares_of(tally, labels) for name, tally in tallies.items()}
    records: list[Record] = []
    for hour, of_hour in shares.items():
        evidence = tallies[hour].log_martingale / math.log(10)
        record: Record = {unit: hour, "rows": tallies[hour].rows, "log10_evidence": evidence}
        for name, share in of_hour.items():
            key = name.replace(" ", "_")
            record |= {key: share.value, f"{key}_low": share.low, f"{key}_high": share.high}
        records.append(record)
    alt = f"{len(shares)} {unit}s of {state.rows:,} rows: the evidence of a change, and the shares below it."
    title, names = f"{unit.capitalize()} by {unit}", list(dict.fromkeys(chain.from_iterable(shares.values())))
    draw, size = partial(_draw, state, tallies, shares, usual_shares(watch)), (8.6, 1.5 + 1.35 * len(names))
    return render("timeline", title, alt, records, draw, size, nrows=1 + len(names), sharex=True, squeeze=False)


def _draw(
    state: WatchState,
    tallies: Mapping[str, HourTally],
    shares: Mapping[str, _Shares],
    usual: Mapping[str, float],
    axes: Any,
) -> None:
    """Evidence above, then each share with its band; dashed is what is usual, the red line is the change.

    A point is an hour, at its time, or a file, at its number.
    """
    by_file, names = tallies is state.batches, list(dict.fromkeys(chain.from_iterable(shares.values())))
    moments: dict[str, Any] = {name: i if by_file else moment_of(name) for i, name in enumerate(shares, 1)}
    bound = -math.log10(state.monitor.bound)
    evidence, *panels = axes[:, 0]
    # Once it is overwhelming, its size says nothing more, and the alarm must stay visible.
    logs = [min(tally.log_martingale / math.log(10), 5 * bound) for tally in tallies.values()]
    evidence.plot(list(moments.values()), logs, "o-", color=SERIES[0], markersize=3.5, linewidth=1.4)
    evidence.axhline(bound, color=WRONG, linewidth=1.0, linestyle=(0, (4, 2)))
    evidence.set_title("Evidence of a change, powers of ten; dashed: alarm")
    evidence.set_ylim(min(-1.0, *logs) - 0.3, max(bound * 1.25, max(logs) * 1.08))
    for i, (name, panel) in enumerate(zip(names, panels, strict=True), 1):
        of_name = {moments[hour]: of_hour[name] for hour, of_hour in shares.items() if name in of_hour}
        at, colour = list(of_name), SERIES[i % len(SERIES)]
        low, high, middle = ([getattr(share, end) for share in of_name.values()] for end in ("low", "high", "value"))
        panel.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        panel.vlines(at, low, high, color=colour, alpha=0.35, linewidth=1.0)
        panel.plot(at, middle, "o-", color=colour, markersize=3.5, linewidth=1.4)
        if name in usual:
            panel.axhline(usual[name], color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
        panel.set_title(f"{name[0].upper()}{name[1:]}")
        percent(panel, "y")
    if state.alarm is not None:
        stretch = state.stretch_of(state.alarm.change)
        since = moments.get("" if stretch is None else stretch.file) if by_file else moment_of(state.alarm.since)
        for panel in axes[:, 0] if since is not None else ():
            panel.axvline(since, color=WRONG, linewidth=1.2)
    axes[-1, 0].tick_params(axis="x", rotation=0, labelsize=7.5)
    if by_file:
        step = -(-len(moments) // _NAMED)
        axes[-1, 0].set_xticks(list(moments.values())[::step], [name[-24:] for name in moments][::step])
    elif len(moments) == 1:  # else the axis would span years
        (moment,) = moments.values()
        evidence.set_xlim(moment - timedelta(hours=6), moment + timedelta(hours=6))


def moment_of(hour: str) -> datetime:
    """An hour or a day of a time line as a time."""
    return datetime.fromisoformat(hour).replace(tzinfo=UTC)


def write_watch(watch: Watch, state: WatchState, source: str | None, page: Path, *, classifier: str = "DIR") -> Path:
    """Write the page of a watch and return its path.

    The scored files are read again from the change on. Without a `source` a service counts the rows.
    """
    alarm, hours = state.alarm, state.timeline.hours
    first = state.rows if alarm is None else alarm.change
    changed = changed_rows(watch, state, source, first, most=_TEXTS, around=_AROUND)
    before, since = state.timeline.total(hour for hour in hours if alarm is None or hour < alarm.since), None
    if alarm is not None:  # where no file has its rows, what is known is by the hour
        since = changed.tally
        since = since if since.rows else state.timeline.total(hour for hour in hours if hour >= alarm.since)
    shares, labels = moved_shares(watch, before, since)
    drawn = [share.label for share in labels[: 1 if len(labels) == 2 else _DRAWN]]
    column, last = watch.text or watch.usual, Path(source or "")
    last = last / (list(state.batches) or [""])[-1] if last.is_dir() else last
    shown = any({column, f"{INPUT_PREFIX}{column}"} & row.row.values.keys() for row in changed.strangest)
    html = filled(
        "watch.html.j2",
        title="No change was found" if alarm is None else f"Alarm: {alarm.what}",
        state=state,
        alarm=alarm,
        source=source,
        classifier=classifier,
        report=state.report(watch.calibration),
        files=[(row, [row[name] for name in (ANSWERED, OUTSIDE, EXPECTED)]) for row in state.by_file()],
        command=shlex.join(filter(None, ["uatlite", "watch", classifier, source, "-o", str(watch.path)])),
        quoted=shlex.quote,
        timeline=timeline_figure(watch, state, drawn) if hours else None,
        shares=shares,
        labels=labels,
        changed=changed,
        strange=_STRANGE,
        column=column,
        rescored=None if source is None or shown else job_of(last).get("input", "texts.jsonl"),
        past=[past for past in state.alarms if past.answer is not None],
        hour=spelt_hour,
    )
    make_directory(page.parent)
    write_text(page, html)
    return page
