"""The page of a watch, for a person on call: what changed, since when, how bad, what to do, and texts to look at."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from uatlite.lab.report.figures import MUTED, SERIES, WRONG, RenderedFigure, figure_of, percent, render
from uatlite.lab.report.page import Card, Drawn, Page, Part, Section, Tag, Together
from uatlite.lab.report.tables import Column, Entry, Record, Row, Table, shares
from uatlite.scoring.timeline import ANSWERED, OUTSIDE, SURE, HourTally, Share, spelt_hour
from uatlite.scoring.watch import ChangedRows, NumberedRow, Watch, changed_rows
from uatlite.scoring.watch_state import PastAlarm, WatchState

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = 6
"""Labels in the table: those whose share moved most."""
DRAWN = 2
"""Labels whose share is drawn by the hour."""
_LABELLED = "predicted {}"
STRANGE = 0.05
"""Texts with a lower p-value of scope are marked."""
_TEXTS = 20
AROUND = 5
"""Rows before and after the change that are listed."""
_NAMES = {ANSWERED: "answered", OUTSIDE: "out of scope", SURE: "mean confidence"}


@dataclass(frozen=True)
class _Comparison:
    """One share at calibration, before the change and since; None where it is not known."""

    name: str
    usual: float | None
    before: Share | None
    since: Share | None

    @property
    def moved(self) -> float:
        """How far it has moved."""
        base = self.before.value if self.before is not None else self.usual
        return 0.0 if self.since is None or base is None else abs(self.since.value - base)

    @property
    def sentence(self) -> str:
        """'Answered 66.7%, before 97.8%.'; empty where there is nothing to compare."""
        known = self.before is not None and self.before.rows
        base = self.before.value if self.before is not None and known else self.usual
        if self.since is None or base is None:
            return ""
        when = "before" if known else "at calibration"
        return f"{self.name[0].upper()}{self.name[1:]} {self.since.value:.1%}, {when} {base:.1%}."


def usual_shares(watch: Watch) -> dict[str, float]:
    """The shares of the calibration rows that are known, by name."""
    shift, scope = watch.calibration.shift, watch.calibration.scope
    usual = {} if scope is None else {_NAMES[OUTSIDE]: scope.false_alarm}
    if shift is None or shift.usual is None:
        return usual
    answered = {} if shift.usual.answered is None else {_NAMES[ANSWERED]: shift.usual.answered}
    labels = {_LABELLED.format(label): share for label, share in shift.usual.labels.items()}
    return usual | answered | {_NAMES[SURE]: shift.usual.confidence} | labels


def shares_of(tally: HourTally | None, labels: Iterable[str] = ()) -> dict[str, Share]:
    """The shares of some rows that are known, by name, and those of some labels."""
    if tally is None or not tally.rows:
        return {}
    named = {_NAMES[name]: share for name, share in tally.shares().items()}
    return named | {_LABELLED.format(label): tally.label_share(label) for label in labels}


def compare_shares(watch: Watch, before: HourTally, since: HourTally | None) -> list[_Comparison]:
    """Every share before a change and since; of the labels those that moved most."""
    usual = usual_shares(watch)
    labels = {**before.labels, **({} if since is None else since.labels)}
    old, new = shares_of(before, labels), shares_of(since, labels)
    names = dict.fromkeys([*_NAMES.values(), *usual, *old, *new])
    every = [_Comparison(name, usual.get(name), old.get(name), new.get(name)) for name in names]
    shown = [share for share in every if share.name in _NAMES.values() and (share.before or share.since)]
    of_labels = [share for share in every if share.name not in _NAMES.values()]
    return shown + sorted(of_labels, key=lambda share: -share.moved)[:_LABELS]


@dataclass(frozen=True)
class TimelineDisplay:
    """The numbers of the time line: for each hour log10 of the evidence, and shares with their intervals."""

    state: WatchState
    usual: dict[str, float]
    """the share of each line at calibration"""
    labels: tuple[str, ...] = ()
    """those whose shares are drawn"""

    @property
    def hours(self) -> list[tuple[str, float, dict[str, Share]]]:
        """Each hour, its evidence, and its shares by the name of their line."""
        hours = self.state.timeline.hours.items()
        return [(hour, tally.log_martingale / math.log(10), shares_of(tally, self.labels)) for hour, tally in hours]

    def records(self) -> Iterator[Record]:
        for hour, evidence, of_hour in self.hours:
            record: Record = {"hour": hour, "rows": self.state.timeline.hours[hour].rows, "log10_evidence": evidence}
            for name, share in of_hour.items():
                key = name.replace(" ", "_")
                record |= {key: share.value, f"{key}_low": share.low, f"{key}_high": share.high}
            yield record

    def draw(self) -> "Figure":
        """Evidence above, then each share with its band; dashed is what is usual, the red line is the change."""
        hours, alarm, bound = self.hours, self.state.alarm, -math.log10(self.state.monitor.bound)
        moments = [moment_of(hour) for hour, *_ in hours]
        shares = list(dict.fromkeys(name for *_, of_hour in hours for name in of_hour))
        figure, axes = figure_of(8.6, 1.5 + 1.35 * len(shares), nrows=1 + len(shares), sharex=True)
        evidence = axes[0] if shares else axes
        # Once it is overwhelming, its size says nothing more, and the alarm must stay visible.
        logs = [min(value, 5 * bound) for _, value, _ in hours]
        evidence.plot(moments, logs, "o-", color=SERIES[0], markersize=3.5, linewidth=1.4)
        evidence.axhline(bound, color=WRONG, linewidth=1.0, linestyle=(0, (4, 2)))
        evidence.set_title("Evidence of a change, powers of ten; dashed: alarm")
        evidence.set_ylim(min(-1.0, *logs) - 0.3, max(bound * 1.25, max(logs) * 1.08))
        for i, name in enumerate(shares, 1):
            known = [(at, of_hour[name]) for at, (*_, of_hour) in zip(moments, hours, strict=True) if name in of_hour]
            at, colour, panel = [moment for moment, _ in known], SERIES[i % len(SERIES)], axes[i]
            low, high, middle = ([getattr(share, end) for _, share in known] for end in ("low", "high", "value"))
            panel.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
            panel.vlines(at, low, high, color=colour, alpha=0.35, linewidth=1.0)
            panel.plot(at, middle, "o-", color=colour, markersize=3.5, linewidth=1.4)
            if name in self.usual:
                panel.axhline(self.usual[name], color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
            panel.set_title(f"{name[0].upper()}{name[1:]}")
            percent(panel, "y")
        for panel in axes if shares else [axes]:
            if alarm is not None:
                panel.axvline(moment_of(alarm.since), color=WRONG, linewidth=1.2)
        (axes[-1] if shares else axes).tick_params(axis="x", rotation=0, labelsize=7.5)
        if len(moments) == 1:  # else the axis would span years
            evidence.set_xlim(moments[0] - timedelta(hours=6), moments[0] + timedelta(hours=6))
        return figure


def moment_of(hour: str) -> datetime:
    """An hour or a day of a time line as a time."""
    return datetime.fromisoformat(hour if "T" not in hour else f"{hour}:00").replace(tzinfo=UTC)


def timeline_figure(watch: Watch, state: WatchState, labels: Sequence[str] = ()) -> RenderedFigure:
    """The time line as a figure of a page, with the shares of some labels."""
    display = TimelineDisplay(state, usual_shares(watch), tuple(labels))
    hours = len(state.timeline.hours)
    alt = f"{hours} hours of {state.rows:,} rows: the evidence of a change, and the shares below it."
    return render("timeline", "Hour by hour", alt, display)


def write_watch(watch: Watch, state: WatchState, source: str | None, page: Path, *, classifier: str = "DIR") -> Path:
    """Write the page of a watch and return its path."""
    return watch_page(watch, state, source, classifier).write(page)


def watch_page(watch: Watch, state: WatchState, source: str | None, classifier: str) -> Page:
    """The page; the scored files are read again from the change on. Without a `source` a service counts the rows."""
    alarm, hours = state.alarm, list(state.timeline.hours)
    changed = changed_rows(
        watch, state, source, state.rows if alarm is None else alarm.change, most=_TEXTS, around=AROUND
    )
    before = state.timeline.total([hour for hour in hours if alarm is None or hour < alarm.since])
    since = None if alarm is None else changed.tally
    if alarm is not None and not changed.tally.rows:  # no file has these rows: what is known is by the hour
        since = state.timeline.total([hour for hour in hours if hour >= alarm.since])
    compared = compare_shares(watch, before, since)
    sections = [
        Section("In short", (_listed(_in_short(state, compared)),)),
        Section("What to do", (_numbered(steps(classifier, source, watch.path, alarm=alarm is not None)),)),
    ]
    labels = [share for share in compared if share.name not in _NAMES.values()]
    if hours:
        told = (
            "Bands hold the share of one hour with 95 %. Grey dashes are the calibration rows; a red line marks the "
            "hour of the change."
        )
        most = 1 if len(labels) == 2 else DRAWN  # of two labels one says it all
        drawn = [share.name.removeprefix(_LABELLED.format("")) for share in labels[:most]]
        sections.append(Section("Hour by hour", (Drawn(timeline_figure(watch, state, drawn), told, wide=True),)))
    others = [share for share in compared if share not in labels]
    moved = (
        _compared(others, "Answers, scope and confidence, with 95 % intervals", alarm is not None),
        _compared(labels, "Predicted labels, those that moved most first", alarm is not None),
    )
    sections.append(Section("How much it moved", moved))
    if alarm is not None:
        texts = tuple(_texts(changed, alarm, watch.text or "text", served=source is None))
        sections.append(Section("Texts to look at", texts))
    if past := [alarm for alarm in state.alarms if alarm.answer is not None]:
        sections.append(Section("Earlier alarms", (_listed([_past(alarm) for alarm in past]),)))
    title = "No change was found" if alarm is None else f"Alarm: {alarm.what}"
    about = [f"{state.rows:,} rows watched", f"a false alarm ever: at most {state.monitor.bound:.1%}"]
    return Page(
        title=title,
        tab=f"{title} · UAT-Lite watch",
        kicker="UAT-Lite watch",
        about=(*about, *([f"{state.rejected:,} rows could not be used"] if state.rejected else [])),
        sections=tuple(sections),
        alarm=alarm is not None,
    )


def _in_short(state: WatchState, compared: Sequence[_Comparison]) -> list[tuple[str, str]]:
    """What changed, since when, and how bad that is."""
    alarm, limit = state.alarm, 1.0 / state.monitor.bound
    if alarm is None:
        return [
            ("What changed", "Nothing that the monitor can tell from chance."),
            ("How sure", f"Evidence of a change {state.evidence:.3g}; an alarm needs {limit:.4g}."),
        ]
    since = (
        f"About row {alarm.change + 1:,}, {spelt_hour(alarm.since)}; {state.rows - alarm.change:,} rows since then. "
        f"The alarm was raised after row {alarm.row:,}, {spelt_hour(alarm.raised)}."
    )
    moved = sorted((share for share in compared if share.name in _NAMES.values()), key=lambda share: -share.moved)
    bad = [share.sentence for share in moved] + ["The promises of the calibration do not hold for these rows."]
    return [
        ("What changed", " ".join(filter(None, [f"{alarm.what[0].upper()}{alarm.what[1:]}.", state.latest()]))),
        ("Since when", since),
        ("How bad", " ".join(filter(None, bad))),
    ]


def _listed(pairs: Sequence[tuple[str, str]]) -> Table:
    rows = tuple(Row(heading, (Entry(text),)) for heading, text in pairs)
    return Table("", (Column("", number=False),), rows)


def _numbered(steps: Sequence[tuple[str, str | None]]) -> str:
    """A numbered list; commands are blocks of code within it."""
    lines: list[str] = []
    for i, (sentence, command) in enumerate(steps, 1):
        lines.append(f"{i}. {sentence}")
        if command is not None:
            lines += ["", "   ```", *(f"   {line}" for line in command.splitlines()), "   ```", ""]
    return "\n".join(lines)


def _past(alarm: PastAlarm) -> tuple[str, str]:
    return spelt_hour(alarm.since), f"{alarm.what} (row {alarm.change + 1:,}; acknowledged as {alarm.answer})"


def _compared(comparisons: Sequence[_Comparison], title: str, alarm: bool) -> Table:
    def entry(share: Share | None) -> Entry:
        return Entry(f"{share.value:.1%}", notes=(shares(share.low, share.high),)) if share and share.rows else Entry()

    def entries(compared: _Comparison) -> tuple[Entry, ...]:
        usual = Entry() if compared.usual is None else Entry(f"{compared.usual:.1%}")
        return (usual, entry(compared.before), *([entry(compared.since)] if alarm else []))

    headings = ("At calibration", *(("Before", "Since the change") if alarm else ("So far",)))
    rows = tuple(Row(compared.name.removeprefix(_LABELLED.format("")), entries(compared)) for compared in comparisons)
    return Table(title, tuple(map(Column, headings)), rows, corner="Share")


def _texts(changed: ChangedRows, alarm: PastAlarm, column: str, *, served: bool) -> Iterator[Part]:
    if changed.strangest:
        keep = " To see texts here, score with `--keep-text`, and name its column here with `--text`."
        yield (
            f"The {len(changed.strangest)} strangest rows since the change: the lowest p-values of scope, then the "
            f"least sure.{keep if _text(changed.strangest[0], column) is None else ''}"
        )
        yield Together("texts", tuple(_card(row, column) for row in changed.strangest))
    elif served:
        yield "A service stores no texts, so none can be shown."
    else:
        yield "The files of these rows are gone, so their texts cannot be shown."
    if changed.around:
        yield "### Rows around the change"
        yield f"The change is estimated to begin with row {alarm.change + 1:,}."
        yield Together("texts", tuple(_card(row, column) for row in changed.around))


def _text(numbered: NumberedRow, column: str) -> str | None:
    values = numbered.row.values
    value = values.get(column, values.get(f"input_{column}"))
    return None if value is None else str(value)


def _card(numbered: NumberedRow, column: str) -> Card:
    row, watched, text = numbered.row, numbered.watched, _text(numbered, column)
    tags = [Tag(f"row {numbered.number + 1:,}"), Tag("says", watched.label), Tag(f"{watched.confidence:.1%} sure")]
    if watched.scope is not None:
        tags.append(Tag(f"scope {watched.scope:.3f}", tone="wrong" if watched.scope < STRANGE else ""))
    if watched.abstain:
        tags.append(Tag("not answered"))
    return Card(f"{row.file}, line {row.line}" if text is None else text, tuple(tags))


def steps(classifier: str, source: str | None, state: Path, *, alarm: bool) -> Sequence[tuple[str, str | None]]:
    """What to do, a sentence and a command each; without a `source` a service counts the rows."""
    watch = (
        f"uatlite watch {classifier} -o {state}"
        if source is None
        else f"uatlite watch {classifier} {source} -o {state}"
    )
    if not alarm:
        return [("Nothing. The next look goes on from here.", f"{watch} --once")]
    look = f"{watch} --acknowledge"
    pick = f"uatlite pick {source or 'scored.parquet'} --budget 100 -o to_label.jsonl"
    if source is None:
        pick = f"uatlite predict {classifier} texts.jsonl --keep-text -o scored.parquet\n{pick}"
    return [
        (f"Read the {'new texts' if source is None else 'texts below'}. Should this classifier answer them?", None),
        ("If not (another source, another language, a broken export): mend the source, then reset the alarm.", look),
        (
            "If so: label some of the new rows and ask whether the promise still holds, or make a new one.",
            f"{pick}\nuatlite recheck {classifier} to_label.jsonl",
        ),
        ("If the change is known and stays: compare with the rows from now on.", f"{look} --new-normal"),
    ]
