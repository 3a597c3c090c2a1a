"""The progress bar of a scoring run: rows, rows a second, time left, the share abstained."""

import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

if TYPE_CHECKING:
    from uatlite.scoring.job import Progress as Scored


class ScoringBar:
    """Shows each `Progress` that it is given. Rows that an earlier run did count as done, and not for the speed."""

    def __init__(self, console: Console, total: int | None) -> None:
        columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._total = total
        self._task = self._progress.add_task("rows", total=total, note="loading")
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        self._begun = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

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
