"""uatlite predict MODEL INPUT -o OUT"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from uatlite.cli.bar import ScoringBar
from uatlite.cli.engine import AddressOption, EngineOption, GpusOption, WorkersOption, chosen_cluster

INTERRUPTED = 130
INPUT_HELP = "JSONL, CSV, TSV or Parquet (.gz as it comes), a directory of them, an address (s3://…), or -."


def predict(
    model: Annotated[str, typer.Argument(help="Directory of a model, best one that 'calibrate' wrote, or a hub id.")],
    input: Annotated[str, typer.Argument(help=INPUT_HELP)],
    output: Annotated[Path, typer.Option("--output", "-o", help="JSONL, CSV or Parquet, by extension (.gz too).")],
    text: Annotated[str, typer.Option(help="Column of the text, of a pair's first, or of the question.")] = "text",
    text_pair: Annotated[str | None, typer.Option(help="Column of a pair's second text.")] = None,
    options: Annotated[str | None, typer.Option(help="Column of a question's options, for multiple choice.")] = None,
    id: Annotated[str, typer.Option(help="Column of the id; without it a row is called file:line.")] = "id",
    keep: Annotated[
        list[str] | None, typer.Option(help="Column to carry along to the output; may be repeated.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Format of the input where its name does not say it.")] = None,
    method: Annotated[str | None, typer.Option(help="Method of an uncalibrated model, as in uat:gate=k.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Most tokens of a text, of an uncalibrated model.")] = None,
    windows: Annotated[
        bool,
        typer.Option("--windows", help="Read long texts in overlapping windows; a calibrated model knows by itself."),
    ] = False,
    rejects: Annotated[Path | None, typer.Option(help="File for rejected rows; OUT.rejects.jsonl by default.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be scored.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output, or an unfinished run.")] = False,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = 0.0,
) -> None:
    """Score the rows of a file: label, calibrated probability, uncertainty, answer or abstain."""
    from uatlite.classifier import UncertaintyClassifier
    from uatlite.data.schema import Layout
    from uatlite.scoring import Job, score_file
    from uatlite.scoring.reading import estimate_rows

    cluster = chosen_cluster(engine, address, workers, gpus_per_worker)
    layout = Layout(text=text, pair=text_pair, options=options, label=None, id=id, meta=tuple(keep or ()))
    job = Job(input, output, layout, format, rejects, strict=strict, resume=resume, overwrite=overwrite)
    changed: dict[str, Any] = {"windows": True} if windows else {}
    if max_length is not None:
        changed["max_length"] = max_length
    console = Console(stderr=True)
    total = estimate_rows(job)
    name = str(Path(model).absolute()) if Path(model).is_dir() else model
    load = partial(UncertaintyClassifier.from_pretrained, name, method=method, **changed)
    classifier = load() if cluster is None else load(device="cpu")
    try:
        with ScoringBar(console, total) as bar:
            if cluster is None:
                summary = score_file(classifier, job, bar.show)
            else:
                from uatlite import scale

                summary = scale.score_file(load, job, cluster, bar.show, classifier=classifier)
    except KeyboardInterrupt:
        console.print("Stopped. What is done is kept; the same command with --resume goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    for line in summary.describe():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if summary.shift is not None and summary.shift.shifted:
        console.print("Warning: what calibration promised need not hold for these data.", style="bold yellow")
    if classifier.calibration_ is None:
        console.print(
            f"Not calibrated: the probabilities are the model's own. Run: uatlite calibrate {model} DATA -o DIR"
        )
    console.print(f"Wrote {output} and {job.summary_path.name}", highlight=False, markup=False, soft_wrap=True)
