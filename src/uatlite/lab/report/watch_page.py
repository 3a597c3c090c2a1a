"""The page of a watch, for a person on call: what changed, since when, how bad, what to do, and texts to look at."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from uatlite.lab.report.figures import MUTED, SERIES, WRONG, RenderedFigure, figure_of, percent, render
from uatlite.lab.report.page import Card, Drawn, Page, Part, Section, Tag, Together
from uatlite.lab.report.tables import Column, Entry, Record, Row, Table, shares
from uatlite.scoring.timeline import ANSWERED, OUTSIDE, SURE, HourTally, Share, Timeline, spelt_hour
from uatlite.scoring.watch import NumberedRow, Watch, changed_rows
from uatlite.scoring.watch_state import PastAlarm, WatchState
from uatlite.trust.shift import Usual

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = 6
"""Labels in the table: those whose share moved most."""
DRAWN = 2
"""Labels whose share is drawn by the hour."""
LABELLED = "predicted {}"
STRANGE = 0.05
"""Texts with a lower p-value of scope are marked."""
TEXTS = 20
AROUND = 5
"""Rows before and after the change that are listed."""
NAMES = {ANSWERED: "answered", OUTSIDE: "out of scope", SURE: "mean confidence"}


@dataclass(frozen=True)
class Comparison:
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


@dataclass(frozen=True)
class ShownRow:
    """A row of the stream: its number, its place, its text and what was said of it."""

    number: int
    place: str
    text: str | None
    label: str
    confidence: float
    scope: float | None
    abstain: bool | None


@dataclass(frozen=True)
class WatchSummary:
    """What the page says."""

    alarm: PastAlarm | None
    rows: int
    evidence: float
    limit: float
    comparisons: tuple[Comparison, ...]
    labels: tuple[Comparison, ...]
    texts: tuple[ShownRow, ...]
    around: tuple[ShownRow, ...]
    affected: int
    """rows since the change, or all"""
    latest: str | None = None
    """the change by all rows so far, where that says more than the alarm did"""

    @property
    def drawn_labels(self) -> list[str]:
        """The labels that moved most; of two labels one says it all."""
        return [one.name for one in self.labels][: 1 if len(self.labels) == 2 else DRAWN]

    @property
    def findings(self) -> list[tuple[str, str]]:
        """The heading and the sentence of each of the four questions."""
        alarm = self.alarm
        if alarm is None:
            return [
                ("What changed", "Nothing that the monitor can tell from chance."),
                ("How sure", f"Evidence of a change {self.evidence:.3g}; an alarm needs {self.limit:.4g}."),
            ]
        return [
            ("What changed", " ".join(filter(None, [f"{alarm.what[0].upper()}{alarm.what[1:]}.", self.latest]))),
            (
                "Since when",
                f"About row {alarm.change + 1:,}, {spelt_hour(alarm.since)}; {self.affected:,} rows since then. The "
                f"alarm was raised after row {alarm.row:,}, {spelt_hour(alarm.raised)}.",
            ),
            ("How bad", " ".join(self._how_bad())),
        ]

    def _how_bad(self) -> Iterator[str]:
        for one in sorted(self.comparisons, key=lambda one: -one.moved):
            base = one.before if one.before is not None and one.before.rows else None
            usual = one.usual if base is None else base.value
            if one.since is not None and usual is not None:
                said = "at calibration" if base is None else "before"
                yield f"{one.name[0].upper()}{one.name[1:]} {one.since.value:.1%}, {said} {usual:.1%}."
        yield "The promises of the calibration do not hold for these rows."


def summarise_watch(watch: Watch, state: WatchState, source: str | None) -> WatchSummary:
    """What the page says; the scored files are read again from the change on."""
    alarm = state.alarm
    usual = None if watch.calibration.shift is None else watch.calibration.shift.usual
    hours = list(state.timeline.hours)
    change = state.rows if alarm is None else alarm.change
    changed = changed_rows(watch, state, source, change, most=TEXTS, around=AROUND)
    before = state.timeline.total([hour for hour in hours if alarm is None or hour < alarm.since])
    since = None if alarm is None else changed.tally
    if alarm is not None and not changed.tally.rows:  # no file has these rows: what is known is by the hour
        since = state.timeline.total([hour for hour in hours if hour >= alarm.since])
    scope, text = watch.calibration.scope, watch.text or "text"
    expected = {
        ANSWERED: None if usual is None else usual.answered,
        OUTSIDE: None if scope is None else scope.false_alarm,
        SURE: None if usual is None else usual.confidence,
    }
    old, new = before.shares(), {} if since is None else since.shares()
    shown = [name for name in NAMES if name in old or name in new]
    return WatchSummary(
        alarm=alarm,
        rows=state.rows,
        evidence=state.evidence,
        limit=1.0 / state.monitor.bound,
        comparisons=tuple(Comparison(NAMES[name], expected[name], old.get(name), new.get(name)) for name in shown),
        labels=_labels(usual, before, since),
        texts=tuple(_shown(row, text) for row in changed.strangest),
        around=tuple(_shown(row, text) for row in changed.around),
        affected=state.rows - change if alarm is not None else state.rows,
        latest=state.latest(),
    )


def _labels(usual: Usual | None, before: HourTally, since: HourTally | None) -> tuple[Comparison, ...]:
    known = {} if usual is None else usual.labels
    names = dict.fromkeys([*known, *before.labels, *({} if since is None else since.labels)])
    found = [
        Comparison(
            name,
            known.get(name),
            before.label_share(name) if before.rows else None,
            since.label_share(name) if since is not None and since.rows else None,
        )
        for name in names
    ]
    return tuple(sorted(found, key=lambda one: -one.moved)[:LABELS])


def _shown(numbered: NumberedRow, text: str) -> ShownRow:
    row, watched = numbered.row, numbered.watched
    value = row.values.get(text, row.values.get(f"input_{text}"))
    place = f"{row.file}, line {row.line}"
    words = None if value is None else str(value)
    return ShownRow(
        numbered.number + 1, place, words, watched.label, watched.confidence, watched.scope, watched.abstain
    )


@dataclass(frozen=True)
class TimelineDisplay:
    """The numbers of the time line: for each hour the shares with their intervals, and log10 of the evidence.

    `labels` are those whose shares are drawn; `usual` has the share of each line at calibration.
    """

    timeline: Timeline
    bound: float
    usual: dict[str, float]
    since: str | None
    labels: tuple[str, ...] = ()

    def shares(self) -> list[dict[str, Share]]:
        """For each hour the shares by the name of their line."""
        tallies = self.timeline.hours.values()
        return [
            {NAMES[name]: one for name, one in tally.shares().items()}
            | {LABELLED.format(label): tally.label_share(label) for label in self.labels}
            for tally in tallies
        ]

    def records(self) -> Iterator[Record]:
        for (hour, tally), found in zip(self.timeline.hours.items(), self.shares(), strict=True):
            record: Record = {"hour": hour, "rows": tally.rows, "log10_evidence": tally.log_martingale / math.log(10)}
            for name, one in found.items():
                key = name.replace(" ", "_")
                record |= {key: one.value, f"{key}_low": one.low, f"{key}_high": one.high}
            yield record


def draw_timeline(display: TimelineDisplay) -> "Figure":
    """Evidence above, then each share with its band; dashed is what is usual, the red line is the change."""
    tallies = list(display.timeline.hours.values())
    moments = [moment_of(hour) for hour in display.timeline.hours]
    hourly = display.shares()
    shares = list(dict.fromkeys(name for found in hourly for name in found))
    figure, axes = figure_of(8.6, 1.5 + 1.35 * len(shares), nrows=1 + len(shares), sharex=True)
    evidence = axes[0] if shares else axes
    # Once it is overwhelming, its size says nothing more, and the alarm must stay visible.
    logs = [min(tally.log_martingale / math.log(10), 5 * -math.log10(display.bound)) for tally in tallies]
    evidence.plot(moments, logs, "o-", color=SERIES[0], markersize=3.5, linewidth=1.4)
    evidence.axhline(-math.log10(display.bound), color=WRONG, linewidth=1.0, linestyle=(0, (4, 2)))
    evidence.set_title("Evidence of a change, powers of ten; dashed: alarm")
    evidence.set_ylim(min(-1.0, *logs) - 0.3, max(-math.log10(display.bound) * 1.25, max(logs) * 1.08))
    for place, name in enumerate(shares, 1):
        known = [(at, found[name]) for at, found in zip(moments, hourly, strict=True) if name in found]
        at, colour = [moment for moment, _ in known], SERIES[place % len(SERIES)]
        low, high, middle = ([getattr(one, end) for _, one in known] for end in ("low", "high", "value"))
        axes[place].fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        axes[place].vlines(at, low, high, color=colour, alpha=0.35, linewidth=1.0)
        axes[place].plot(at, middle, "o-", color=colour, markersize=3.5, linewidth=1.4)
        if name in display.usual:
            axes[place].axhline(display.usual[name], color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
        axes[place].set_title(f"{name[0].upper()}{name[1:]}")
        percent(axes[place], "y")
    for one in axes if shares else [axes]:
        if display.since is not None:
            one.axvline(moment_of(display.since), color=WRONG, linewidth=1.2)
    (axes[-1] if shares else axes).tick_params(axis="x", rotation=0, labelsize=7.5)
    if len(moments) == 1:  # else the axis would span years
        evidence.set_xlim(moments[0] - timedelta(hours=6), moments[0] + timedelta(hours=6))
    return figure


def moment_of(hour: str) -> datetime:
    """An hour or a day of a time line as a time."""
    return datetime.fromisoformat(hour if "T" not in hour else f"{hour}:00").replace(tzinfo=UTC)


def timeline_figure(watch: Watch, state: WatchState, labels: Sequence[str] = ()) -> RenderedFigure:
    """The time line as a figure of a page, with the shares of some labels."""
    usual: dict[str, float] = {}
    shift, scope = watch.calibration.shift, watch.calibration.scope
    if shift is not None and shift.usual is not None:
        usual[NAMES[SURE]] = shift.usual.confidence
        usual |= {LABELLED.format(name): value for name, value in shift.usual.labels.items()}
        if shift.usual.answered is not None:
            usual[NAMES[ANSWERED]] = shift.usual.answered
    if scope is not None:
        usual[NAMES[OUTSIDE]] = scope.false_alarm
    since = None if state.alarm is None else state.alarm.since
    display = TimelineDisplay(state.timeline, state.monitor.bound, usual, since, tuple(labels))
    alt = (
        f"{len(state.timeline.hours)} hours of {state.rows:,} rows: the evidence of a change, and the shares below it."
    )
    return render("timeline", "Hour by hour", alt, display, lambda: draw_timeline(display))


def write_watch(watch: Watch, state: WatchState, source: str | None, page: Path, *, classifier: str = "DIR") -> Path:
    """Write the page of a watch and return its path."""
    return watch_page(watch, state, source, classifier).write(page)


def watch_page(watch: Watch, state: WatchState, source: str | None, classifier: str) -> Page:
    """The page; without a `source` a service counts the rows."""
    summary = summarise_watch(watch, state, source)
    alarm, past = state.alarm, [alarm for alarm in state.alarms if alarm.answer is not None]
    about = [f"{state.rows:,} rows watched", f"a false alarm ever: at most {state.monitor.bound:.1%}"]
    if state.rejected:
        about.append(f"{state.rejected:,} rows could not be used")
    sections = [
        Section("In short", (_listed(summary.findings),)),
        Section("What to do", (_numbered(steps(classifier, source, watch.path, alarm=alarm is not None)),)),
    ]
    if state.timeline.hours:
        told = (
            "Bands hold the share of one hour with 95 %. Grey dashes are the calibration rows; a red line marks the "
            "hour of the change."
        )
        figure = timeline_figure(watch, state, summary.drawn_labels)
        sections.append(Section("Hour by hour", (Drawn(figure, told, wide=True),)))
    moved = (
        _compared(summary.comparisons, "Answers, scope and confidence, with 95 % intervals", alarm is not None),
        _compared(summary.labels, "Predicted labels, those that moved most first", alarm is not None),
    )
    sections.append(Section("How much it moved", moved))
    if alarm is not None:
        sections.append(Section("Texts to look at", tuple(_texts(summary, alarm, served=source is None))))
    if past:
        sections.append(Section("Earlier alarms", (_listed([_past(alarm) for alarm in past]),)))
    title = "No change was found" if alarm is None else f"Alarm: {alarm.what}"
    return Page(
        title=title,
        tab=f"{title} · UAT-Lite watch",
        kicker="UAT-Lite watch",
        about=tuple(about),
        sections=tuple(sections),
        alarm=alarm is not None,
    )


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


def _compared(comparisons: Sequence[Comparison], title: str, alarm: bool) -> Table:
    def entry(share: Share | None) -> Entry:
        return Entry(f"{share.value:.1%}", notes=(shares(share.low, share.high),)) if share and share.rows else Entry()

    def entries(compared: Comparison) -> tuple[Entry, ...]:
        usual = Entry() if compared.usual is None else Entry(f"{compared.usual:.1%}")
        return (usual, entry(compared.before), *([entry(compared.since)] if alarm else []))

    headings = ("At calibration", *(("Before", "Since the change") if alarm else ("So far",)))
    rows = tuple(Row(compared.name, entries(compared)) for compared in comparisons)
    return Table(title, tuple(map(Column, headings)), rows, corner="Share")


def _texts(summary: WatchSummary, alarm: PastAlarm, *, served: bool) -> Iterator[Part]:
    if summary.texts:
        keep = " To see texts here, score with `--keep-text`, and name its column here with `--text`."
        yield (
            f"The {len(summary.texts)} strangest rows since the change: the lowest p-values of scope, then the least "
            f"sure.{keep if summary.texts[0].text is None else ''}"
        )
        yield Together("texts", tuple(map(_card, summary.texts)))
    elif served:
        yield "A service stores no texts, so none can be shown."
    else:
        yield "The files of these rows are gone, so their texts cannot be shown."
    if summary.around:
        yield "### Rows around the change"
        yield f"The change is estimated to begin with row {alarm.change + 1:,}."
        yield Together("texts", tuple(map(_card, summary.around)))


def _card(row: ShownRow) -> Card:
    tags = [Tag(f"row {row.number:,}"), Tag("says", row.label), Tag(f"{row.confidence:.1%} sure")]
    if row.scope is not None:
        tags.append(Tag(f"scope {row.scope:.3f}", tone="wrong" if row.scope < STRANGE else ""))
    if row.abstain:
        tags.append(Tag("not answered"))
    return Card(row.place if row.text is None else row.text, tuple(tags))


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
