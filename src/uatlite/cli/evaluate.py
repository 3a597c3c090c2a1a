"""uatlite evaluate MODEL --task TASK -o DIR"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from uatlite.cli.engine import AddressOption, EngineOption, GpusOption, WorkersOption, chosen_cluster
from uatlite.cli.watching import Watching

if TYPE_CHECKING:
    from uatlite.experiments.plan import Plan
    from uatlite.experiments.suite import Elsewhere
    from uatlite.scale import Cluster

EXAMPLES = """
[bold]Examples[/bold]

  uatlite evaluate my-model --task sst2 -o out

  uatlite evaluate my-model --task mnli --shift hans --seeds 5 -o out

  uatlite evaluate my-model --task sst2 --methods base,uat:gate=k+ts -o out

  uatlite evaluate my-model my-ensemble my-swag --task sst2 --methods base,ts,ensemble,ensemble+ts,swag -o out

  uatlite evaluate my-model --data reviews.csv --text body -o out

Predictions are kept in DIR/store. After Ctrl-C the same command goes on from there, and other metrics, methods or \
seeds compute only what is new. [bold]uatlite methods[/bold] and [bold]uatlite tasks[/bold] list what there is.
"""

INTERRUPTED = 130
_SETS, _MORE = "What is evaluated on", "More"


def evaluate(
    model: Annotated[
        list[str],
        typer.Argument(help="Directory of a fine-tuned classifier, or a hub id; then those trained for a method."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the results and the store.")],
    methods: Annotated[
        str, typer.Option(help="Methods, each with a calibrator or not, separated by commas.")
    ] = "base,ts,mc,uat,uat+ts",
    seeds: Annotated[int, typer.Option(help="How many seeds to run each random method with.")] = 5,
    task: Annotated[
        str | None, typer.Option(help="A task, or one split of it, as in sst2/test-original.", rich_help_panel=_SETS)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own file instead: half of it calibrates.", rich_help_panel=_SETS)
    ] = None,
    text: Annotated[str, typer.Option(help="Its column of the text, or the first.", rich_help_panel=_SETS)] = "text",
    text_pair: Annotated[str | None, typer.Option(help="Its column of the second text.", rich_help_panel=_SETS)] = None,
    label: Annotated[str, typer.Option(help="Its column of the label.", rich_help_panel=_SETS)] = "label",
    shift: Annotated[
        list[str] | None, typer.Option(help="Also on this task or split; may be repeated.", rich_help_panel=_SETS)
    ] = None,
    perturb: Annotated[
        list[str] | None, typer.Option(help="Also on perturbed texts: swap or negation.", rich_help_panel=_SETS)
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Rows drawn of each split.", rich_help_panel=_SETS)] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of data files; else UATLITE_DATA.", rich_help_panel=_SETS)
    ] = None,
    label_order: Annotated[
        str | None, typer.Option(help="The model's classes in its order, as in no,yes.", rich_help_panel=_MORE)
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a text; else what the model takes.", rich_help_panel=_MORE)
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Metrics separated by commas, or all.", rich_help_panel=_MORE)
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples for the intervals.", rich_help_panel=_MORE)] = 1000,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.", rich_help_panel=_MORE)] = 0.95,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = 0.0,
) -> None:
    """Compare methods on a task: accuracy, calibration and selective risk, with confidence intervals."""
    from uatlite.experiments.contenders import parse_contenders
    from uatlite.experiments.evaluate import Resampling
    from uatlite.experiments.plan import Plan, as_sets, choose_set, parse_metrics, parse_names

    cluster = chosen_cluster(engine, address, workers, gpus_per_worker)
    plan = Plan(
        contenders=parse_contenders(methods),
        test=choose_set(task, data, text=text, text_pair=text_pair, label=label),
        shifts=as_sets(shift or ()),
        perturbations=tuple(perturb or ()),
        seeds=seeds,
        limit=limit,
        max_length=max_length,
        data_dir=data_dir,
        label_order=parse_names(label_order),
        metrics=parse_metrics(metrics),
        resampling=Resampling(resamples, confidence),
    )
    console, progress = Console(), Console(stderr=True)
    with progress.status(f"Loading {', '.join(model)} …"):
        from uatlite.backbone.loading import load_checkpoint
        from uatlite.experiments.store import Store
        from uatlite.experiments.suite import evaluate as run
        from uatlite.report.terminal import render
        from uatlite.report.writing import write_results

        checkpoints = [load_checkpoint(name, kind=plan.test.task.kind) for name in dict.fromkeys(model)]
    try:
        with Watching(progress) as watch:
            elsewhere = None if cluster is None else filling(model, plan, cluster)
            results = run(checkpoints, plan, Store(output / "store"), watch, elsewhere)
    except KeyboardInterrupt:
        progress.print(f"Stopped. What is done is kept in {output / 'store'}; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    console.print(render(results))
    written = write_results(results, output)
    progress.print(f"Wrote {', '.join(path.name for path in written)} and store/ to {output}", highlight=False)


def filling(models: Sequence[str], plan: "Plan", cluster: "Cluster") -> "Elsewhere":
    """The workers of a cluster as the place where an evaluation's predictions are computed."""
    from uatlite.scale import evaluation_jobs, fill

    names = [str(Path(name).absolute()) if Path(name).is_dir() else name for name in dict.fromkeys(models)]
    return partial(fill, make_jobs=partial(evaluation_jobs, names, plan), cluster=cluster)
