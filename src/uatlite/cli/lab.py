"""The commands that train, evaluate and report, and the lists of tasks and methods."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from uatlite.cli.bars import StageBar
from uatlite.cli.options import (
    DATA,
    MORE,
    RECIPE,
    AddressOption,
    DataDirOption,
    EngineOption,
    GpusOption,
    LabelOption,
    LabelOrderOption,
    MaxLengthOption,
    PairOption,
    ResamplesOption,
    SeedsOption,
    StrictOption,
    TaskOption,
    TextOption,
    WorkersOption,
    chosen_cluster,
    messages,
    resumable,
)

if TYPE_CHECKING:
    from uatlite.lab.evaluate.plan import Plan
    from uatlite.lab.evaluate.suite import Elsewhere
    from uatlite.scoring.on_ray import Cluster

TRAIN_EXAMPLES = """
[bold]Examples[/bold]

  uatlite train --data reviews.csv --text body --label stars --recipe few-rows -o my-model

  uatlite train --task sst2 --backbone bert-base-uncased -o my-model

  uatlite train --task sst2 --method swag:rank=20 -o my-swag

Of your own file a fifth is held out and written to DIR/held-out.jsonl. Go on with it:
uatlite calibrate my-model my-model/held-out.jsonl --text body --label stars -o my-classifier
"""


def train(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the classifier.")],
    backbone: Annotated[
        str, typer.Option(help="Model to start from: minilm (a Python package), a directory, or a hub id.")
    ] = "minilm",
    method: Annotated[
        str, typer.Option(help="Train for this method, as in swag:rank=20; 'uatlite methods' lists them.")
    ] = "base",
    recipe: Annotated[
        str, typer.Option(help="paper for tens of thousands of rows; few-rows or demo for a few thousand on a CPU.")
    ] = "paper",
    seed: Annotated[int, typer.Option(help="Seed of the new head, the order of rows and dropout.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint in DIR.")] = False,
    base: Annotated[
        Path | None,
        typer.Option(
            help="A finished plain training of the same settings, not to be repeated: an ensemble's first member, "
            "laplace's model."
        ),
    ] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(help="Keep a checkpoint every N steps; by default after every epoch.")
    ] = None,
    task: TaskOption = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own labelled rows instead: JSONL, CSV, TSV or Parquet.", rich_help_panel=DATA),
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of --data not to train on, for calibration.", rich_help_panel=DATA)
    ] = 0.2,
    validation: Annotated[
        Path | None,
        typer.Option(help="File to watch for --patience; by default the held-out rows.", rich_help_panel=DATA),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Train on N rows, drawn by --seed.", rich_help_panel=DATA)] = None,
    data_dir: DataDirOption = None,
    strict: StrictOption = False,
    text: TextOption = "text",
    text_pair: PairOption = None,
    label: LabelOption = "label",
    label_order: LabelOrderOption = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.", rich_help_panel=RECIPE)] = None,
    warmup_steps: Annotated[int | None, typer.Option(help="Steps of warm-up.", rich_help_panel=RECIPE)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a batch.", rich_help_panel=RECIPE)] = None,
    epochs: Annotated[int | None, typer.Option(help="Times through all rows.", rich_help_panel=RECIPE)] = None,
    max_length: Annotated[int | None, typer.Option(help="Longest text in tokens.", rich_help_panel=RECIPE)] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Stop after N epochs without a better validation NLL.", rich_help_panel=RECIPE),
    ] = None,
) -> None:
    """Fine-tune a classifier on a task or on your own file."""
    from uatlite.errors import check_choice
    from uatlite.lab.evaluate.plan import parse_names
    from uatlite.lab.train.recipe import RECIPES
    from uatlite.text.schema import Layout

    check_choice("recipe", recipe, RECIPES)
    given: dict[str, Any] = {
        "learning_rate": learning_rate, "warmup_steps": warmup_steps, "batch_size": batch_size, "epochs": epochs,
        "max_length": max_length, "patience": patience,
    }  # fmt: skip
    chosen = replace(RECIPES[recipe], **{name: value for name, value in given.items() if value is not None})
    console = messages()
    with console.status("Loading …"):
        from uatlite.lab.train.dataset import training_data
        from uatlite.lab.train.methods import TrainingJob, parse_training, steps, train_method
        from uatlite.lab.train.record import step_counter

        training = parse_training(method)
        rows = training_data(
            task,
            data,
            Layout(text=text, pair=text_pair, label=label),
            data_dir=data_dir,
            label_order=parse_names(label_order),
            held_out=held_out,
            validation=validation,
            limit=limit,
            seed=seed,
            early_stopping=chosen.patience is not None,
            strict=strict,
        )
    job = TrainingJob(backbone, rows.train, rows.validation, chosen, seed, checkpoint_steps)
    with StageBar(console) as bar:
        bar.begin(f"training {training.name}", steps(training, job, base))
        record = train_method(training, job, output, base=base, resume=resume, report=step_counter(bar.advance))
    for line in (f"Wrote {output}: {record.describe()}", *rows.write(output)):
        console.print(line)


EVALUATE_EXAMPLES = """
[bold]Examples[/bold]

  uatlite evaluate my-model --task sst2 -o out

  uatlite evaluate my-model --task mnli --shift hans --seeds 5 -o out

  uatlite evaluate my-model --task sst2 --methods base,uat:gate=k+ts -o out

  uatlite evaluate my-model my-ensemble my-swag --task sst2 --methods base,ts,ensemble,ensemble+ts,swag -o out

  uatlite evaluate my-model --data reviews.csv --text body -o out

Predictions are kept in DIR/store. After Ctrl-C the same command continues from there, and other metrics, methods or \
seeds compute only what is new. [bold]uatlite methods[/bold] and [bold]uatlite tasks[/bold] list what there is.
"""


def evaluate(
    model: Annotated[
        list[str],
        typer.Argument(help="Directory of a fine-tuned classifier, or a hub id; then models trained for a method."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the results and the store.")],
    methods: Annotated[
        str, typer.Option(help="Methods separated by commas, with or without a calibrator (+ts).")
    ] = "base,ts,mc,uat,uat+ts",
    seeds: SeedsOption = 5,
    task: Annotated[
        str | None, typer.Option(help="A task, or one split of it, as in sst2/test-original.", rich_help_panel=DATA)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Your own labelled file instead; half of it calibrates, half tests.", rich_help_panel=DATA),
    ] = None,
    shift: Annotated[
        list[str] | None,
        typer.Option(help="Also evaluate on this task or split; may be repeated.", rich_help_panel=DATA),
    ] = None,
    perturb: Annotated[
        list[str] | None,
        typer.Option(help="Also evaluate on perturbed texts: swap or negation.", rich_help_panel=DATA),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Evaluate on N rows of each split, drawn at random.", rich_help_panel=DATA)
    ] = None,
    data_dir: DataDirOption = None,
    text: TextOption = "text",
    text_pair: PairOption = None,
    label: LabelOption = "label",
    label_order: LabelOrderOption = None,
    max_length: MaxLengthOption = None,
    metrics: Annotated[
        str | None, typer.Option(help="Metrics separated by commas, or all.", rich_help_panel=MORE)
    ] = None,
    resamples: ResamplesOption = 1000,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.", rich_help_panel=MORE)] = 0.95,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = 0.0,
) -> None:
    """Compare methods on labelled data: accuracy, calibration and selective risk, with confidence intervals."""
    from uatlite.lab.evaluate.contenders import parse_contenders
    from uatlite.lab.evaluate.outcomes import Resampling
    from uatlite.lab.evaluate.plan import Plan, as_sets, choose_set, parse_metrics, parse_names

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
    console = messages()
    with console.status(f"Loading {', '.join(model)} …"):
        from uatlite.lab.evaluate.store import Store
        from uatlite.lab.evaluate.suite import evaluate as run
        from uatlite.lab.report.tables import render, write_results
        from uatlite.model.load import load_checkpoint

        checkpoints = [load_checkpoint(name, kind=plan.test.task.kind) for name in dict.fromkeys(model)]
    stopped = f"Stopped. What is done is kept in {output / 'store'}; the same command goes on from there."
    with resumable(console, stopped), StageBar(console) as bar:
        workers_of = None if cluster is None else ray_predictions(model, plan, cluster)
        results = run(checkpoints, plan, Store(output / "store"), bar, workers_of)
    Console().print(render(results))
    written = write_results(results, output)
    console.print(f"Wrote {', '.join(path.name for path in written)} and store/ to {output}")


def ray_predictions(models: Sequence[str], plan: "Plan", cluster: "Cluster") -> "Elsewhere":
    """Compute the predictions of an evaluation on the workers of a cluster."""
    from uatlite.lab.evaluate.on_ray import evaluation_jobs, fill

    names = [str(Path(name).absolute()) if Path(name).is_dir() else name for name in dict.fromkeys(models)]
    return partial(fill, make_jobs=partial(evaluation_jobs, names, plan), cluster=cluster)


def report(
    store: Annotated[Path, typer.Argument(help="Directory that 'evaluate' wrote, or the store in it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory for report.html and figures/; by default STORE.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="Method whose abstentions are shown, as in uat+ts; by default the best on calibration rows."),
    ] = None,
    target_risk: Annotated[float, typer.Option(help="Share of wrong answers that abstention aims at.")] = 0.1,
    data_dir: DataDirOption = None,
    model: Annotated[str | None, typer.Option(help="The evaluated model, to explain a few texts word by word.")] = None,
) -> None:
    """Write the report of an evaluation: one HTML page, and each figure as SVG, PNG and CSV. Needs no model."""
    console = messages()
    with console.status("Drawing …"):
        from uatlite.lab.report.build import build_report
        from uatlite.lab.report.evaluation import home_of

        page = build_report(
            store, output or home_of(store), contender=method, target_risk=target_risk, data_dir=data_dir, model=model
        )
    console.print(f"Wrote {page} and {page.parent / 'figures'}")


KINDS = {"text": "one text", "pair": "two texts", "choice": "multiple choice"}


def tasks(data_dir: DataDirOption = None) -> None:
    """List the tasks, their splits, and where each split is read from."""
    from uatlite.lab.evaluate.plan import inventory

    console = Console(highlight=False, soft_wrap=True)
    for task, places in inventory(data_dir):
        labels = ", ".join(task.labels) if len(task.labels) <= 4 else f"{len(task.labels)} classes"
        console.print(f"[bold]{task.name}[/bold]  {task.title} [dim]({KINDS[task.kind]}; {labels})[/dim]")
        for split, place in places.items():
            console.print(f"  {split:<14} {place}")
    console.print("\nOr use your own file: uatlite evaluate MODEL --data reviews.csv --text body --label stars")


def methods() -> None:
    """List the methods, their settings, and the calibrators that can follow them."""
    from uatlite.lab.evaluate.contenders import CALIBRATOR_ALIASES
    from uatlite.methods.registry import METHOD_ALIASES, METHODS
    from uatlite.passes.config import RATES, SCALARS
    from uatlite.trust.auto import CALIBRATORS

    console = Console()
    listed = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("method", "passes", "trained", "what it is"):
        listed.add_column(heading)
    for name, method in METHODS.items():
        aliases = [alias for alias, of in METHOD_ALIASES.items() if of == name]
        trained = "for it" if method.trained else ""
        listed.add_row(", ".join([name, *aliases]), str(method.passes), trained, method.summary)
    console.print(listed)
    short = {name: alias for alias, name in CALIBRATOR_ALIASES.items()}
    names = [f"{name} ({short[name]})" if name in short else name for name in CALIBRATORS if name != "none"]
    console.print(f"Settings, as in uat:gate=k,penalty=1.0: {', '.join((*SCALARS, *RATES))}.", highlight=False)
    console.print(
        "Methods trained 'for it' need a model of their own: uatlite train --method NAME --task TASK -o DIR, and DIR "
        "beside the plain model in uatlite evaluate.",
        highlight=False,
    )
    console.print(f"Calibrators, added as in uat+ts: {', '.join(names)}. Alone, as in ts, one follows base.")
