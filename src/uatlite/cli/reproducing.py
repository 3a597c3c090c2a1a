"""The progress of a reproduction: one bar for the whole, one for the table that is being made."""

from rich.console import Console

from uatlite.cli.bar import Bar, stages


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
