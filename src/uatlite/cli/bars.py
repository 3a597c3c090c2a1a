"""Progress bars: what they share, and the one of a scoring run with rows a second, time left, the share abstained.

The progress bar of an evaluation: the stage, what is done now, and the time left.

The progress of a reproduction: one bar for the whole, one for the table that is being made.
"""

import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from uatlite.scoring.job import Progress as Scored


class Bar:
    """A progress display while its block runs."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def stages(console: Console, seconds: float) -> Progress:
    """A bar with the stage, the time left by the speed of the last `seconds`, and a field `what`; gone at the end."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    left = (TimeRemainingColumn(), TextColumn("left · {task.fields[what]}"))
    return Progress(*columns, *left, console=console, transient=True, speed_estimate_period=seconds)


class ScoringBar(Bar):
    """Shows each `Progress` that it is given. Rows that an earlier run did count as done, and not for the speed."""

    def __init__(self, console: Console, total: int | None) -> None:
        columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
        super().__init__(Progress(*columns, console=console, transient=True, disable=not console.is_terminal))
        self._total = total
        self._task = self._progress.add_task("rows", total=total, note="loading")
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self._begun = time.monotonic()
        return super().__enter__()

    def show(self, scored: "Scored") -> None:
        """Move the bar to where the run is."""
        note = describe(scored, time.monotonic() - self._begun, self._total)
        self._progress.update(self._task, completed=scored.seen, note=note)


def describe(scored: "Scored", seconds: float, total: int | None) -> str:
    """The figures beside the bar: '312 rows/s, 0:01:04 left, 12.5% abstained, 3 rejected'."""
    speed = (scored.seen - scored.resumed) / seconds if seconds > 0 else 0.0
    notes = [f"{speed:,.0f} rows/s"]
    if total is not None and speed > 0:
        notes.append(f"{timedelta(seconds=round(max(0, total - scored.seen) / speed))} left")
    if scored.abstained:
        notes.append(f"{scored.abstained / scored.rows:.1%} abstained")
    if scored.rejected:
        notes.append(f"{scored.rejected:,} rejected")
    return ", ".join(notes)


class Watching(Bar):
    """Shows how far `uatlite.experiments.suite.evaluate` is; gone from the terminal when it ends.

    Where there is no terminal, in a log, each step is a line.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(stages(console, seconds=120))
        self._console = console
        self._task = self._progress.add_task("reading", total=None, what="reading the data")

    def begin(self, stage: str, total: float) -> None:
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(stage, total=total or None, what="")

    def at(self, what: str) -> None:
        self._progress.update(self._task, what=what)
        if not self._console.is_terminal:
            self._console.print(what, highlight=False, soft_wrap=True)

    def advance(self, amount: float) -> None:
        self._progress.advance(self._task, amount)


class Reproducing(Bar):
    """Shows how far `uatlite.reproduce.run.reproduce` is. Where there is no terminal, in a log, each step is a line."""

    def __init__(self, console: Console) -> None:
        super().__init__(stages(console, seconds=600))
        self._console = console
        self._whole = self._progress.add_task("all", total=None, what="")
        self._part = self._progress.add_task("", total=None, what="")
        self._done = 0.0
        self._all = 0.0

    def whole(self, work: float) -> None:
        self._all = work
        self._progress.update(self._whole, total=work or None)

    def part(self, name: str, work: float) -> None:
        self._progress.reset(self._part, total=work or None, description=name, what="")
        self._line(name)

    def at(self, what: str) -> None:
        self._progress.update(self._part, what=what)
        self._line(f"  {what}")

    def advance(self, amount: float) -> None:
        self._done += amount
        self._progress.advance(self._whole, amount)
        self._progress.advance(self._part, amount)

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            share = f"{self._done / self._all:4.0%} " if self._all else "     "
            self._console.print(f"{share}{text}", highlight=False, markup=False, soft_wrap=True)
