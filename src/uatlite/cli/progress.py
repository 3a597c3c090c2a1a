"""Progress bars. On a terminal they disappear at the end; in a log each step is a line."""

import time
from datetime import timedelta
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
    from uatlite.scoring.job import Tally


class ScoringBar(Progress):
    """The bar of `predict`: rows, rows per second, time left, share abstained. The speed leaves out resumed rows."""

    def __init__(self, console: Console, total: int | None) -> None:
        columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
        super().__init__(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._total = total
        self._task = self.add_task("rows", total=total, note="loading")
        self._begun = time.monotonic()

    def show(self, scored: "Tally") -> None:
        """Move the bar to where the run is."""
        note = describe(scored, time.monotonic() - self._begun, self._total)
        self.update(self._task, completed=scored.seen, note=note)


def describe(scored: "Tally", seconds: float, total: int | None) -> str:
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


class StageBar:
    """The bar of training, evaluation and the demo: the stage, the step, and the time left at the recent speed."""

    def __init__(self, console: Console, speed_seconds: float = 120) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        left = (TimeRemainingColumn(), TextColumn("left · {task.fields[what]}"))
        self._progress = Progress(*columns, *left, console=console, transient=True, speed_estimate_period=speed_seconds)
        self._console = console
        self._stage = self._progress.add_task("reading", total=None, what="reading the data")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, stage: str, total: float) -> None:
        """Start again at 0 of `total` under the name of a stage."""
        self._progress.reset(self._stage, total=total or None, description=stage, what="")

    def step(self, what: str) -> None:
        """Say what is being done now."""
        self._progress.update(self._stage, what=what)
        self._log(what)

    def advance(self, amount: float) -> None:
        """Add `amount` of finished work."""
        self._progress.advance(self._stage, amount)

    def _log(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class ReproductionBar(StageBar):
    """Two bars: the whole reproduction, and its stage, the table that is being computed."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, speed_seconds=600)
        self._all = self._progress.add_task("all", total=None, what="")

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def begin_all(self, total: float) -> None:
        """Set the work of all tables together."""
        self._progress.update(self._all, total=total or None)

    def begin(self, stage: str, total: float) -> None:
        super().begin(stage, total)
        self._log(stage)

    def step(self, what: str) -> None:
        super().step(f"  {what}")

    def advance(self, amount: float) -> None:
        super().advance(amount)
        self._progress.advance(self._all, amount)

    def _log(self, text: str) -> None:
        whole = next(task for task in self._progress.tasks if task.id == self._all)
        share = f"{whole.completed / whole.total:4.0%} " if whole.total else "     "
        super()._log(share + text)
