"""The commands after predict: review and watch scored rows, pick rows to label, recheck the promise, list versions."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Exit, Option, echo

from uatlite.cli import options as shared
from uatlite.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    from uatlite.scoring.watch import Watch
    from uatlite.scoring.watch_state import WatchState

OWN = ("id", "label", "confidence", "reason", "why")
"""Columns of a row to review besides those of the input."""
WIDTH = 300
"""Characters of a text on the terminal."""
ALARM = 4
WATCH_EXAMPLES = """
[bold]Examples[/bold]

  uatlite watch my-classifier scored/ -o watch.json --once --report watch.html   # for cron: exit code 4 on an alarm

  uatlite watch my-classifier scored/ -o watch.json --time created_at            # looks again every minute

  uatlite watch my-classifier scored/ -o watch.json --acknowledge                # the change is over

  uatlite watch my-classifier scored/ -o watch.json --acknowledge --new-normal   # the change stays

  uatlite watch my-classifier -o traffic.json --once --report watch.html   # of: uatlite serve --watch traffic.json
"""


def review(
    scored: Annotated[Path, Argument(help="File that 'uatlite predict' wrote, with the texts in it.")],
    rows: Annotated[int, Option("--rows", "-n", min=1, help="How many rows.")] = 20,
    output: Annotated[
        Path | None, Option("--output", "-o", help="JSONL, CSV or Parquet, by extension; by default they are printed.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Show the rows of a scored file that a person should see first, with text and reason."""
    from uatlite.scoring.review import review_rows, write_review

    if output is not None and output.exists() and not overwrite:
        raise DataError(f"{output} exists; give another name, or --overwrite to replace it.")
    chosen = review_rows(scored, rows)
    if output is None:
        Console().print(as_table(chosen))
        return
    write_review(chosen, output)
    shared.messages().print(f"Wrote {output}: {len(chosen):,} row{'' if len(chosen) == 1 else 's'}")


def as_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows for a terminal; what the input says comes last, shortened."""
    kept = [name for name in (rows[0] if rows else ()) if name not in OWN]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "label", "sure", "why"):
        table.add_column(name, no_wrap=name in ("id", "label", "sure"))
    for name in kept:
        table.add_column(name, ratio=1 if len(kept) == 1 else None, overflow="fold")
    for row in rows:
        cells = [row["id"], row["label"], f"{row['confidence']:.1%}", row["why"]]
        table.add_row(*(Text(_short(cell)) for cell in (*cells, *(row[name] for name in kept))))
    return table


def _short(value: object) -> str:
    line = " ".join(str("" if value is None else value).split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


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
    text: Annotated[
        str | None,
        shared.in_columns("--text", help="Column of the text, for the page; text by default."),
    ] = None,
) -> None:
    """Watch scored rows over time: has something changed since calibration? Looking often costs no false alarms."""
    if new_normal and not acknowledge:
        raise ConfigurationError("--new-normal says how to acknowledge a change; give it with --acknowledge.")
    if every <= 0:
        raise ConfigurationError(f"--every {every:g} is not a number of seconds above 0.")
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.scoring.watch import Watch

        if report is not None:
            from uatlite.lab.report.watch import write_watch
        watching = Watch.of(classifier, state, bound=bound, time=time_column, text=text)
    if scored is None and not state.exists():
        raise DataError(f"{state} does not exist; give scored files, or the file that 'uatlite serve --watch' keeps.")
    if acknowledge:
        _print(console, watching.acknowledge(fresh=new_normal), new=None)
        return
    stopped = f"Stopped. What was counted is in {state}; the same command goes on from there."
    with shared.resumable(console, stopped):
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
        found = watching.read()
        _print(console, found, new=None)
        return found
    counted: list[int] = []
    with console.status("Reading …") as status:

        def on_rows(rows: int) -> None:
            counted.append(rows)
            status.update(f"Reading: {sum(counted):,} new rows …")

        found = watching.look(scored, on_rows)
    _print(console, found, new=sum(counted))
    return found


def _print(console: Console, state: "WatchState", *, new: int | None) -> None:
    for line in state.describe(new):
        console.print(line)


def pick(
    scored: Annotated[str, Argument(help="Rows that 'uatlite predict' scored, with the text (--keep-text).")],
    output: Annotated[Path, Option("--output", "-o", help="Rows to label: JSONL, CSV or Parquet, by extension.")],
    budget: Annotated[int, Option(help="How many rows to label.")] = 100,
    random_share: Annotated[
        float, Option(help="Share drawn at random from the answers; the others are doubtful or out of scope.")
    ] = 0.75,
    of: Annotated[str, Option(help="What is drawn from at random: answers, or all rows.")] = "answers",
    errors: Annotated[
        bool, Option("--errors", help="Instead: rows of a labelled file that are probably mislabelled.")
    ] = False,
    label: Annotated[str, shared.in_columns(help="Column of the given label, for --errors.")] = "input_label",
    seed: Annotated[int, Option(help="Seed of the draw.")] = 0,
    text: shared.KnownText = None,
    text_pair: shared.Pair = None,
    options: shared.Options = None,
    id: Annotated[str, shared.in_columns(help="Column of the id.")] = "id",
    format: shared.Format = None,
) -> None:
    """Choose rows to label: answers at random with known probabilities, and rows whose labels help most."""
    from uatlite.scoring import pick as picking
    from uatlite.scoring.mislabelled import suspects
    from uatlite.text.write import row_writer

    console = shared.messages()
    if errors:
        suspected = suspects(scored, label, format=format)
        with row_writer(output) as write:
            for row in suspected:
                write(row)
        console.print(f"Wrote {output}: {len(suspected):,} rows are probably mislabelled, the surest first.")
        return
    asked = {"text": text, "pair": text_pair, "options": options}
    rows = picking.read_candidates(scored, asked, id=id, format=format)
    picked = picking.pick(rows, budget, random_share=random_share, of=of, seed=seed)
    picking.write_picked(output, picked)
    for line in picking.describe(picked, len(rows)):
        console.print(line)
    console.print(f"Wrote {output}. Fill the column label, then: uatlite recheck DIR {output}")


def recheck(
    directory: Annotated[Path, Argument(help="Directory of the calibrated classifier.")],
    labelled: Annotated[str, Argument(help=f"Rows of today with labels, as pick chose them. {shared.INPUT_HELP}")],
    update: Annotated[
        bool, Option("--update", help="Make a new promise from these rows: a new version beside the old one.")
    ] = False,
    target_risk: Annotated[
        float | None, Option(help="Check this risk instead of the promised one; with --update, promise it.")
    ] = None,
    scored: Annotated[
        str | None, Option(help="Scored rows of today, unlabelled: where a search starts, and what shift is told by.")
    ] = None,
    seed: Annotated[int, Option(help="Seed of folds and splits.")] = 0,
    strict: shared.Strict = False,
    text: shared.KnownText = None,
    text_pair: shared.Pair = None,
    options: shared.Options = None,
    label: shared.KnownLabel = None,
    format: shared.Format = None,
) -> None:
    """Tell whether the promise still holds, by labels of today; with --update, make a new one."""
    from uatlite.classifier import recheck as checking
    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.classifier.saving import write_version
    from uatlite.scoring.pick import current_scores, inclusion_of
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout

    console = shared.messages()
    classifier = UncertaintyClassifier.from_pretrained(directory)
    asked = {"text": text, "pair": text_pair, "options": options, "label": label}
    source = Source(labelled, format=format)
    layout = source.layout(Layout(codes=classifier.class_names, meta=("inclusion",)), asked, classifier.columns)
    rows = source.labelled(layout, classifier.class_names, strict=strict)
    with console.status(f"Scoring {len(rows.texts):,} rows …"):
        now = checking.read_now(classifier, rows.texts, rows.gold, inclusion_of(rows.meta))
    calibration = classifier.calibration_
    assert calibration is not None
    assert calibration.rule is not None
    if rows.rejects:
        first = rows.rejects[0]
        console.print(f"{len(rows.rejects):,} rows left out; the first: line {first.line}, {first.reason}.")
    found = checking.recheck(now, calibration.rule, target=target_risk).describe()
    for line in found:
        console.print(line)
    if not update:
        return
    others = None if scored is None else current_scores(scored, calibration.rule.score)
    classifier.calibration_ = checking.update(calibration, now, target=target_risk, current_scores=others, seed=seed)
    made = write_version(classifier, directory, found[1])
    for line in (*classifier.calibration_.describe(), made.describe()):
        console.print(line)
    console.print(f"Version {made.number} is in use; go back with: uatlite history {directory} --use {made.parent}")


def history(
    directory: Annotated[Path, Argument(help="Directory of the calibrated classifier.")],
    use: Annotated[int | None, Option(help="Go back to the version of this number.")] = None,
) -> None:
    """List the versions of a classifier, or go back to one; nothing is overwritten."""
    from uatlite.classifier import versions

    if use is not None:
        versions.use(directory, use)
    for version in versions.history(directory):
        echo(version.describe())
    echo(f"Version {versions.current(directory)} is in use.")
