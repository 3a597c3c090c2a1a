"""Progress bars of stages. On a terminal they disappear at the end; in a log each step is a line."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn


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
        overall = next(task for task in self._progress.tasks if task.id == self._all)
        share = f"{overall.completed / overall.total:4.0%} " if overall.total else "     "
        super()._log(share + text)
