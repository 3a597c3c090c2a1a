"""Comparing methods on labelled data, and the report of it."""

from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from typer import Argument, Option, echo

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar
from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate import COMPARED

EVALUATE_EXAMPLES = """
[bold]Examples[/bold]

  uatlite evaluate my-model --task sst2 -o out

  uatlite evaluate my-model --task mnli --shift hans --seeds 5 -o out

  uatlite evaluate my-model --task sst2 --methods base,uat:gate=k+ts -o out

  uatlite evaluate my-model my-ensemble my-swag --task sst2 --methods base,ts,ensemble,ensemble+ts,swag -o out

  uatlite evaluate my-model --data reviews.csv --text body -o out

  uatlite evaluate my-model --task clinc150 --out-of-scope clinc150 -o out

  uatlite evaluate my-tagger --task wnut17 -o out

Predictions are kept in DIR/store. After Ctrl-C the same command continues from there; with --resume other metrics, \
methods or seeds compute what is new. [bold]uatlite methods[/bold] and [bold]uatlite tasks[/bold] list what there is.
"""


def evaluate(
    model: Annotated[
        list[str] | None,
        Argument(help="Directory of a fine-tuned classifier, or a hub id; then models trained for a method."),
    ] = None,
    *,
    scores: Annotated[
        list[str] | None, Option(help="Instead: a file of labelled scores; repeat it for each model to compare.")
    ] = None,
    output: Annotated[Path, Option("--output", "-o", help="Directory for the results and the store.")],
    methods: Annotated[
        str | None,
        Option(
            help=f"Methods separated by commas, with or without a calibrator (+ts); by default {COMPARED}. Of entities "
            "and labels base,distilled+answers."
        ),
    ] = None,
    target_risk: Annotated[
        float, Option(help="Of entities and labels: the share of those reported that may be wrong.")
    ] = 0.1,
    seeds: shared.Seeds = 5,
    resume: Annotated[
        bool, Option("--resume", help="Go on in a finished directory: compute what is new, replace the results.")
    ] = False,
    overwrite: Annotated[
        bool, Option("--overwrite", help="Replace a finished evaluation or an unfinished one: compute everything anew.")
    ] = False,
    task: Annotated[str | None, shared.in_data(help="A task, or one split of it, as in sst2/test-original.")] = None,
    data: Annotated[
        Path | None, shared.in_data(help="Your own labelled file instead; half of it calibrates, half tests.")
    ] = None,
    shift: Annotated[
        list[str] | None, shared.in_data(help="Also evaluate on this task or split; may be repeated.")
    ] = None,
    perturb: Annotated[
        list[str] | None, shared.in_data(help="Also evaluate on perturbed texts: swap or negation.")
    ] = None,
    out_of_scope: Annotated[
        str | None,
        shared.in_data(
            metavar="TASK|FILE",
            help="Also find these texts, which the model is not for: a task (only its rows labelled out of scope, if "
            "it has any), or a file with the column --text.",
        ),
    ] = None,
    limit: Annotated[int | None, shared.in_data(help="Evaluate on N rows of each split, drawn at random.")] = None,
    data_dir: shared.DataDir = None,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    label: shared.KnownLabel = None,
    label_order: shared.LabelOrder = None,
    max_length: shared.MaxLength = None,
    metrics: Annotated[str | None, shared.in_more(help="Metrics separated by commas, or all.")] = None,
    resamples: shared.Resamples = 1000,
    confidence: Annotated[float, shared.in_more(help="Confidence of the intervals.")] = 0.95,
    device: shared.Device = "auto",
    engine: shared.Engine = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    gpus_per_worker: shared.Gpus = 0.0,
) -> None:
    """Compare methods on labelled data: accuracy, calibration and selective risk, with confidence intervals."""
    asked = locals()
    if (model is None) == (scores is None):
        raise ConfigurationError("give a model, or --scores with the file of each model to compare.")
    if scores is not None:
        from uatlite.lab.evaluate.score_files import compare_files

        echo("\n".join(compare_files(scores, output, label, overwrite=overwrite)))
        return
    from uatlite.lab.evaluation import OPTIONS
    from uatlite.lab.evaluation import evaluate as run
    from uatlite.lab.report.results import rendered_results

    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    console = shared.messages()
    with shared.resumable(console, f"What is done is kept in {output / 'store'}"), StageBar(console) as bar:
        options = {name: asked[name] for name in (*OPTIONS, "resume", "overwrite", "device")}
        results = run(model or (), output, progress=bar, remote=cluster, **options)
    Console().print(rendered_results(results))
    console.print(
        f"Wrote results.json, results.csv, results.md{', texts.jsonl' * bool(results.texts)} and store/ to {output}. "
        f"A page of it, with figures: uatlite report {output}"
    )


def report(
    store: Annotated[Path, Argument(help="Directory that 'evaluate' wrote, or the store in it.")],
    output: Annotated[
        Path | None, Option("--output", "-o", help="Directory for report.html and figures/; by default STORE.")
    ] = None,
    method: Annotated[
        str | None, Option(help="Method whose abstentions are shown, as in uat+ts; by default the verdict's.")
    ] = None,
    target_risk: Annotated[float, Option(help="Share of wrong answers that abstention aims at.")] = 0.1,
    data_dir: shared.DataDir = None,
    model: Annotated[str | None, Option(help="The evaluated model, to explain a few texts word by word.")] = None,
    device: shared.Device = "auto",
) -> None:
    """Write the report of an evaluation: one HTML page, and each figure as SVG, PNG and CSV. Needs no model."""
    console = shared.messages()
    with console.status("Drawing …"):
        from uatlite.lab.report.evaluation_page import report as run

        more: dict[str, Any] = {"data_dir": data_dir, "model": model, "device": device}
        page = run(store, output, method=method, target_risk=target_risk, **more)
    console.print(f"Wrote {page} and {page.parent / 'figures'}")
