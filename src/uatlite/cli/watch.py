"""Watching scored rows over time. With --once the exit code is 4 if there is an alarm."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Argument, Exit, Option

from uatlite.cli import options as shared
from uatlite.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from uatlite.scoring.watch import Watch
    from uatlite.scoring.watch_state import WatchState

ALARM = 4
WATCH_EXAMPLES = """
[bold]Examples[/bold]

  uatlite watch my-classifier scored/ -o watch.json --once --report watch.html   # for cron: exit code 4 on an alarm

  uatlite watch my-classifier scored/ -o watch.json --time created_at            # looks again every minute

  uatlite watch my-classifier scored/ -o watch.json --acknowledge                # the change is over

  uatlite watch my-classifier scored/ -o watch.json --acknowledge --new-normal   # the change stays

  uatlite watch my-classifier -o traffic.json --once --report watch.html   # of: uatlite serve --watch traffic.json
"""


def watch(
    classifier: Annotated[str, Argument(help="Directory that 'uatlite calibrate' wrote.")],
    scored: Annotated[
        str | None,
        Argument(help="What 'uatlite predict' wrote: a file or a directory. Without it: what a service has counted."),
    ] = None,
    *,
    state: Annotated[Path, Option("--output", "-o", help="File that keeps all that is known; each look continues it.")],
    once: Annotated[bool, Option("--once", help="Look once; exit code 4 if there is an alarm.")] = False,
    every: Annotated[float, Option(help="Seconds between two looks, without --once.")] = 60.0,
    bound: Annotated[
        float | None, Option(help="Probability that it ever raises a false alarm, at most; 0.01 for a new state.")
    ] = None,
    acknowledge: Annotated[
        bool, Option("--acknowledge", help="Reset after an alarm: begin again against the calibration rows.")
    ] = False,
    new_normal: Annotated[
        bool, Option("--new-normal", help="With --acknowledge: compare with the rows from now on instead.")
    ] = False,
    report: Annotated[Path | None, Option(help="Also write a page: what changed, since when, what to do.")] = None,
    time_column: Annotated[
        str | None, shared.in_columns("--time", help="Column of the time; by default when the file was written.")
    ] = None,
    text: Annotated[str | None, shared.in_columns(help="Column of the text, for the page; as in calibration.")] = None,
) -> None:
    """Watch scored rows over time: has something changed since calibration? Looking often costs no false alarms."""
    if new_normal and not acknowledge:
        raise ConfigurationError("--new-normal says how to acknowledge a change; give it with --acknowledge.")
    if every <= 0:
        raise ConfigurationError(f"--every {every:g} is not a number of seconds above 0.")
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.classifier.saving import read_columns
        from uatlite.scoring.watch import Watch, watched_calibration

        if report is not None:
            from uatlite.lab.report.watch_page import write_watch
        usual = read_columns(classifier).get("text", "text")
        watching = Watch(watched_calibration(classifier), state, bound, time_column, text, usual)
    if scored is None and not state.exists():
        raise DataError(f"{state} does not exist; give scored files, or the file that 'uatlite serve --watch' keeps.")
    if acknowledge:
        _tell(console, watching, watching.acknowledge(fresh=new_normal))
        return
    with shared.resumable(console, f"What was counted is in {state}"):
        while True:
            current = _look(console, watching, scored)
            if report is not None:
                page = write_watch(watching, current, scored, report, classifier=classifier)
                console.print(f"Wrote {page}")
            if once:
                break
            time.sleep(every)
    if current.alarm is not None:
        raise Exit(ALARM)


def _look(console: Console, watching: "Watch", scored: str | None) -> "WatchState":
    if scored is None:
        return _tell(console, watching, watching.read())
    counted: list[int] = []
    with console.status("Reading …") as status:

        def on_rows(rows: int) -> None:
            counted.append(rows)
            status.update(f"Reading: {sum(counted):,} new rows …")

        state = watching.look(scored, on_rows)
    return _tell(console, watching, state, sum(counted))


def _tell(console: Console, watching: "Watch", state: "WatchState", new: int | None = None) -> "WatchState":
    report = state.report(watching.calibration)
    console.print(state.seen(new))
    console.print(report.describe(), style=shared.LEVELS[report.level])
    for line in state.details():
        console.print(line)
    return state
