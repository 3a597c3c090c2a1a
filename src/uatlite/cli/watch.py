"""Watching scored rows over time. With --once the exit code is 4 if there is an alarm."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from typer import Exit

from uatlite.cli import options as shared
from uatlite.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from uatlite.scoring.watch import Watch
    from uatlite.scoring.watch_state import WatchState


ALARM = 4


def watch(
    classifier: str,
    scored: str | None = None,
    *,
    state: Path,
    once: bool = False,
    every: float = 60.0,
    bound: float | None = None,
    acknowledge: bool = False,
    new_normal: bool = False,
    report: Path | None = None,
    time_column: str | None = None,
    text: str | None = None,
) -> None:
    """Watch scored rows over time: has something changed since calibration? Looking often costs no false alarms."""
    if new_normal and not acknowledge:
        raise ConfigurationError("--new-normal says how to acknowledge a change; give it with --acknowledge.")
    if every <= 0:
        raise ConfigurationError(f"--every {every:g} is not a number of seconds above 0.")
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.scoring.watch import Watch, watched_calibration

        if report is not None:
            from uatlite.lab.report.watch_page import write_watch
        watching = Watch(watched_calibration(classifier), state, bound, time_column, text)
    if scored is None and not state.exists():
        raise DataError(f"{state} does not exist; give scored files, or the file that 'uatlite serve --watch' keeps.")
    if acknowledge:
        console.print(*watching.acknowledge(fresh=new_normal).describe(None), sep="\n")
        return
    with shared.resumable(console, f"What was counted is in {state}"):
        while True:
            found = _look(console, watching, scored)
            if report is not None:
                page = write_watch(watching, found, scored, report, classifier=classifier)
                console.print(f"Wrote {page}")
            if once:
                break
            time.sleep(every)
    if found.alarm is not None:
        raise Exit(ALARM)


def _look(console: Console, watching: "Watch", scored: str | None) -> "WatchState":
    if scored is None:
        state = watching.read()
        console.print(*state.describe(None), sep="\n")
        return state
    counted: list[int] = []
    with console.status("Reading …") as status:

        def on_rows(rows: int) -> None:
            counted.append(rows)
            status.update(f"Reading: {sum(counted):,} new rows …")

        state = watching.look(scored, on_rows)
    console.print(*state.describe(sum(counted)), sep="\n")
    return state
