"""The progress bar of an evaluation: the stage, what is done now, and the time left."""

from rich.console import Console

from uatlite.cli.bar import Bar, stages


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
