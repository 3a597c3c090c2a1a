"""The progress bar of an evaluation: the stage, what is done now, and the time left."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Watching:
    """Shows how far `uatlite.experiments.suite.evaluate` is; gone from the terminal when it ends.

    Where there is no terminal, in a log, each step is a line.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        left = (TimeRemainingColumn(), TextColumn("left · {task.fields[what]}"))
        self._progress = Progress(*columns, *left, console=console, transient=True, speed_estimate_period=120)
        self._task = self._progress.add_task("reading", total=None, what="reading the data")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, stage: str, total: float) -> None:
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(stage, total=total or None, what="")

    def at(self, what: str) -> None:
        self._progress.update(self._task, what=what)
        if not self._console.is_terminal:
            self._console.print(what, highlight=False, soft_wrap=True)

    def advance(self, amount: float) -> None:
        self._progress.advance(self._task, amount)
