"""The progress of a reproduction: one bar for the whole, one for the table that is being made."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Reproducing:
    """Shows how far `uatlite.reproduce.run.reproduce` is. Where there is no terminal, in a log, each step is a line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        left = (TimeRemainingColumn(), TextColumn("left · {task.fields[what]}"))
        self._progress = Progress(*columns, *left, console=console, transient=True, speed_estimate_period=600)
        self._whole = self._progress.add_task("all", total=None, what="")
        self._part = self._progress.add_task("", total=None, what="")
        self._done = 0.0
        self._all = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

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
