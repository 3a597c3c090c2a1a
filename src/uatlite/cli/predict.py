"""What a classifier says: of the rows of a file, which of them a person should see first, and why of one text."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text as RichText
from typer import Argument, Option

from uatlite.cli import options as shared
from uatlite.errors import ConfigurationError, DataError
from uatlite.values import counted

if TYPE_CHECKING:
    from uatlite.scoring.job import Tally


def predict(
    model: shared.Classifier,
    input: Annotated[str | None, Argument(help=shared.INPUT_HELP)] = None,
    *,
    scores: shared.ScoresFile = None,
    output: Annotated[Path, Option("--output", "-o", help="JSONL, CSV or Parquet, by extension (.gz too).")],
    method: shared.MethodName = None,
    max_length: shared.MaxLength = None,
    windows: Annotated[
        bool,
        Option("--windows", help="Read long texts in overlapping windows; a calibrated model has its own."),
    ] = False,
    rejects: Annotated[Path | None, Option(help="File for rejected rows; OUT.rejects.jsonl by default.")] = None,
    strict: shared.Strict = False,
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing output or an unfinished run.")] = False,
    review: Annotated[
        int | None, Option(min=1, help="Also write the N rows that a person should see first to OUT.review.csv.")
    ] = None,
    reviews: Annotated[
        int | None,
        Option(min=1, help="Leave N texts of this file to a person, the least sure, whatever the rule says."),
    ] = None,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    id: Annotated[str, shared.in_columns(help="Column of the id; rows without one are called file:line.")] = "id",
    keep: Annotated[
        list[str] | None, shared.in_columns(help="Columns to copy, as in id,date; may be repeated.")
    ] = None,
    keep_text: Annotated[
        bool | None, shared.in_columns(help="Copy the text too, or leave it out; by default CSV has it.")
    ] = None,
    tokens: Annotated[
        bool, shared.in_columns("--tokens", help="Also write the tokens of each text, with the uncertainty U of each.")
    ] = False,
    embeddings: shared.Embeddings = None,
    format: shared.Format = None,
    device: shared.Device = "auto",
    precision: shared.PassPrecision = None,
    engine: shared.Engine = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    gpus_per_worker: shared.Gpus = 0.0,
) -> None:
    """Score the rows of a file: label, calibrated probability, uncertainty, answer or abstain."""
    from uatlite.classifier.classifiers import load
    from uatlite.classifier.saving import read
    from uatlite.scoring.job import Job, Summary
    from uatlite.scoring.review import review_rows
    from uatlite.scoring.run import score_file
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout
    from uatlite.text.write import write_rows

    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    if review is not None and keep_text is False:
        raise ConfigurationError("--review shows the texts, and --no-keep-text leaves them out; choose one of them.")
    stored = read(model)
    source = Source(shared.rows_given(input, scores, stored.columns), format=format, embeddings=embeddings)
    asked = {"text": text, "pair": text_pair, "options": options}
    kept = tuple(name.strip() for name in ",".join(keep or ()).split(",") if name.strip())
    layout = source.layout(Layout(label=None, id=id, meta=kept), asked, stored.columns)
    texts = True if review is not None else keep_text
    asked_too: dict[str, Any] = {"strict": strict, "resume": resume, "overwrite": overwrite, "tokens": tokens}
    asked_too |= {"reviews": reviews}
    job = Job(source.name, output, layout, format, rejects, texts, **asked_too)
    source.check_job(job)
    changes = shared.given(max_length=max_length, windows=windows or None, precision=precision)
    console = shared.messages()
    console.print(*source.notes, end="\n" if source.notes else "")
    location = str(Path(model).absolute()) if Path(model).is_dir() else model  # which workers understand too
    load = partial(load, location, method=method, device=device, **changes)
    total = source.estimate() if console.is_terminal else None
    if cluster is None:
        score: Callable[..., Summary] = partial(score_file, load(stored=stored), job, source=source)
    else:
        from uatlite.scoring import on_ray

        score = partial(on_ray.score_file, load, job, cluster, source=source)
    how = "the same command with --resume continues"
    with shared.resumable(console, "Finished rows are kept", how), ScoringBar(console, total) as bar:
        summary = score(bar.show)
    if summary.promised is False:
        console.print(f"No row is answered. {summary.promise}", style=shared.WARNING)
    console.print(*summary.describe(), *([summary.promise] if reviews else []), sep="\n")
    if summary.shift is not None:
        console.print(summary.shift.describe(), style=shared.LEVELS[summary.shift.level])
    if summary.job["calibration"] is None:
        shared.not_calibrated(console, model)
    if review is not None:
        write_rows(job.review_path, review_rows(output, review))
    more = "" if review is None else f", {job.review_path.name}"
    console.print(f"Wrote {output}{more} and {job.summary_path.name}")


class ScoringBar(Progress):
    """The bar of `predict`: rows, time left, then '312 rows/s, 12.5% abstained, 3 rejected', at the recent speed."""

    def __init__(self, console: Console, total: int | None) -> None:
        columns = SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        note = TextColumn("{task.fields[note]}")
        super().__init__(*columns, note, console=console, transient=True, disable=not console.is_terminal)
        self._task = self.add_task("rows", total=total, note="loading")

    def show(self, scored: "Tally") -> None:
        """Move the bar to where the run is."""
        self.update(self._task, completed=scored.seen)
        notes = [f"{self.tasks[0].speed or 0.0:,.0f} rows/s"]
        if scored.abstained:
            notes.append(f"{scored.abstained / scored.rows:.1%} abstained")
        if scored.rejected:
            notes.append(f"{scored.rejected:,} rejected")
        self.update(self._task, note=", ".join(notes))


OWN = ("id", "label", "confidence", "reason", "why")
"""Columns of a row to review besides those of the input."""
_WIDTH = 300
"""Characters of a text on the terminal."""


def review(
    scored: Annotated[Path, Argument(help="File that 'uatlite predict' wrote, with the texts in it.")],
    rows: Annotated[int, Option("--rows", "-n", min=1, help="How many rows.")] = 20,
    output: Annotated[
        Path | None, Option("--output", "-o", help="JSONL, CSV or Parquet, by extension; by default they are printed.")
    ] = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an existing file.")] = False,
) -> None:
    """Show the rows of a scored file that a person should see first, with text and reason."""
    from uatlite.scoring.review import review_rows
    from uatlite.text.write import write_rows

    if output is not None and output.exists() and not overwrite:
        raise DataError(f"{output} exists; give another name, or --overwrite to replace it.")
    chosen = review_rows(scored, rows)
    if output is None:
        Console().print(as_table(chosen))
        return
    write_rows(output, chosen)
    shared.messages().print(f"Wrote {output}: {counted(len(chosen))}")


def as_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows for a terminal; what the input says comes last, shortened."""
    kept = [name for name in (rows[0] if rows else ()) if name not in OWN]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "label", "sure", "why"):
        table.add_column(name, no_wrap=name in ("id", "sure"))  # entities of a text may be many
    for name in kept:
        table.add_column(name, ratio=1 if len(kept) == 1 else None, overflow="fold")
    for row in rows:
        cells = [row["id"], row["label"], f"{row['confidence']:.1%}", row["why"]]
        table.add_row(*(RichText(_short(cell)) for cell in (*cells, *(row[name] for name in kept))))
    return table


def _short(value: object) -> str:
    line = " ".join(str("" if value is None else value).split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def explain(
    model: shared.Classifier,
    text: Annotated[str, Argument(help="The text, the first text of a pair, or the question.")],
    pair: Annotated[str | None, Option(help="The second text of a pair.")] = None,
    option: Annotated[
        list[str] | None, Option(help="An option of a multiple-choice question; repeat for each.")
    ] = None,
    label: Annotated[
        str | None, Option(help="Of many labels: the one to explain; by default the least sure one.")
    ] = None,
    entity: Annotated[
        int | None, Option(help="Of entities: the number of the one to explain, from 0; by default the least sure one.")
    ] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Also write it to a file: .html, .png, .svg or .json.")
    ] = None,
    shade: Annotated[
        str, Option(help="What words are shaded by: share (of the variance), masking or uncertainty (U).")
    ] = "share",
    estimator: Annotated[str, Option(help="How layers are compared: delta, isolated or total-variance.")] = "delta",
    method: shared.MethodName = None,
    uncalibrated: Annotated[bool, Option("--uncalibrated", help="Ignore a saved calibration.")] = False,
    max_length: shared.MaxLength = None,
    samples: Annotated[int, shared.in_more(help="Passes for each layer and component; delta needs none.")] = 200,
    layer: Annotated[int | None, shared.in_more(help="Layer of the attention maps, from 1; by default all.")] = None,
    head: Annotated[int | None, shared.in_more(help="Head of the attention maps, from 1; by default all.")] = None,
    device: shared.Device = "auto",
    precision: shared.PassPrecision = None,
) -> None:
    """Say why one text is answered or not, and which words and layers the uncertainty comes from."""
    from uatlite.classifier.classifiers import load
    from uatlite.errors import check_choice
    from uatlite.lab.report.explanation_page import SHADINGS, check_target, terminal_view
    from uatlite.text.examples import as_text

    check_choice("--shade", shade, SHADINGS)
    if output is not None:
        check_target(output)
    full_text = as_text(text, pair, option or ())
    console = shared.messages()
    with console.status(f"Reading with {model} …"):
        changes = shared.given(max_length=max_length, precision=precision)
        classifier = load(model, method=method, calibrated=not uncalibrated, device=device, **changes)
        explain_it: Any = classifier.explain
        which: dict[str, Any] = {"label": label, "entity": entity}
        named = {name: which.pop(name) for name in tuple(which) if name in signature(explain_it).parameters}
        hint = "".join(f"; use --{name}" for name in named)
        shared.refuse(which, f"a model of {classifier.kind.predictions.words.model}{hint}")
        options = named or {"estimator": estimator, "samples": samples, "attention": output is not None}
        explained = explain_it(full_text, **options)
        if output is not None:
            explained.save(output, shading=shade, layer=layer, head=head)
    Console().print(terminal_view(explained, shading=shade))
    if output is not None and not named:
        console.print(f"Wrote {output}")
