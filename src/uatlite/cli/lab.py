"""uatlite train --task TASK -o DIR

uatlite evaluate MODEL --task TASK -o DIR

uatlite report STORE

uatlite tasks

uatlite methods
"""

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
from uatlite.cli.options import AddressOption, EngineOption, GpusOption, WorkersOption, chosen_cluster

if TYPE_CHECKING:
    from uatlite.lab.evaluate.plan import Plan
    from uatlite.lab.evaluate.suite import Elsewhere
    from uatlite.scoring.on_ray import Cluster


_RECIPE = "The recipe, where it is not the named one's"


def train(
    task: Annotated[str, typer.Option(help="A task; 'uatlite tasks' lists them.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the classifier.")],
    backbone: Annotated[
        str, typer.Option(help="minilm (from the package index), the directory of a model, or a hub id.")
    ] = "minilm",
    method: Annotated[
        str, typer.Option(help="A method with a training of its own, as in swag:rank=20; 'uatlite methods' lists them.")
    ] = "base",
    recipe: Annotated[str, typer.Option(help="paper, or demo for a few thousand short texts on a CPU.")] = "paper",
    seed: Annotated[int, typer.Option(help="Seed of the head, the order of rows and dropout.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Training rows drawn.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Directory of data files; else UATLITE_DATA.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint; finished members are kept.")
    ] = False,
    base: Annotated[
        Path | None,
        typer.Option(help="A finished plain run of these settings: an ensemble's first member, laplace's model."),
    ] = None,
    checkpoint_steps: Annotated[
        int | None, typer.Option(help="Keep a checkpoint every so many steps; else after every epoch.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(rich_help_panel=_RECIPE)] = None,
    warmup_steps: Annotated[int | None, typer.Option(rich_help_panel=_RECIPE)] = None,
    batch_size: Annotated[int | None, typer.Option(rich_help_panel=_RECIPE)] = None,
    epochs: Annotated[int | None, typer.Option(rich_help_panel=_RECIPE)] = None,
    max_length: Annotated[int | None, typer.Option(rich_help_panel=_RECIPE)] = None,
    patience: Annotated[
        int | None, typer.Option(help="Epochs without a better validation NLL to stop after.", rich_help_panel=_RECIPE)
    ] = None,
) -> None:
    """Fine-tune a backbone on a task, plainly or for a method. Early stopping watches the task's calibration rows."""
    from uatlite.errors import check_choice
    from uatlite.lab.train.recipe import RECIPES

    check_choice("recipe", recipe, RECIPES)
    given: dict[str, Any] = {
        "learning_rate": learning_rate, "warmup_steps": warmup_steps, "batch_size": batch_size, "epochs": epochs,
        "max_length": max_length, "patience": patience,
    }  # fmt: skip
    chosen = replace(RECIPES[recipe], **{name: value for name, value in given.items() if value is not None})
    progress = Console(stderr=True)
    with progress.status("Loading …"):
        from uatlite.lab.train.dataset import step_counter
        from uatlite.lab.train.methods import TrainingJob, parse_training, steps, train_method
        from uatlite.text.tasks import load

        training = parse_training(method)
        rows = load(task, "train", data_dir, limit=limit, seed=seed)
        watched = load(task, "calibration", data_dir) if chosen.patience is not None else None
    job = TrainingJob(backbone, rows, watched, chosen, seed, checkpoint_steps)
    with StageBar(progress) as display:
        display.begin(f"training {training.name}", steps(training, job, base))
        trained = train_method(training, job, output, base=base, resume=resume, report=step_counter(display.advance))
    nll = "" if trained.validation_nll is None else f", validation NLL {trained.validation_nll:.4f}"
    progress.print(
        f"Wrote {output}: {trained.steps:,} steps over {trained.rows:,} rows in {trained.seconds:.0f} s, "
        f"training loss {trained.train_loss:.4f}{nll}",
        highlight=False,
        markup=False,
    )


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
    console, progress = Console(), Console(stderr=True)
    with progress.status(f"Loading {', '.join(model)} …"):
        from uatlite.lab.evaluate.store import Store
        from uatlite.lab.evaluate.suite import evaluate as run
        from uatlite.lab.report.tables import render, write_results
        from uatlite.model.load import load_checkpoint

        checkpoints = [load_checkpoint(name, kind=plan.test.task.kind) for name in dict.fromkeys(model)]
    try:
        with StageBar(progress) as display:
            elsewhere = None if cluster is None else filling(model, plan, cluster)
            results = run(checkpoints, plan, Store(output / "store"), display, elsewhere)
    except KeyboardInterrupt:
        progress.print(f"Stopped. What is done is kept in {output / 'store'}; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    console.print(render(results))
    written = write_results(results, output)
    progress.print(f"Wrote {', '.join(path.name for path in written)} and store/ to {output}", highlight=False)


def filling(models: Sequence[str], plan: "Plan", cluster: "Cluster") -> "Elsewhere":
    """The workers of a cluster as the place where an evaluation's predictions are computed."""
    from uatlite.lab.evaluate.on_ray import evaluation_jobs, fill

    names = [str(Path(name).absolute()) if Path(name).is_dir() else name for name in dict.fromkeys(models)]
    return partial(fill, make_jobs=partial(evaluation_jobs, names, plan), cluster=cluster)


def report(
    store: Annotated[Path, typer.Argument(help="Directory that 'evaluate' wrote, or the store in it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory for report.html and figures/; by default STORE.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Whose abstentions to show, as in uat+ts; by default calibration rows choose.")
    ] = None,
    target_risk: Annotated[float, typer.Option(help="Share of wrong answers that the abstention aims at.")] = 0.1,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the texts are, to show those that were not answered.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that was evaluated, to show a few texts word by word.")
    ] = None,
) -> None:
    """Write the report of an evaluation: one HTML page, and each figure as SVG, PNG and CSV. Needs no model."""
    console = Console(stderr=True)
    with console.status("Drawing …"):
        from uatlite.lab.report.build import build_report
        from uatlite.lab.report.evaluation import home_of

        page = build_report(
            store, output or home_of(store), contender=method, target_risk=target_risk, data_dir=data_dir, model=model
        )
    console.print(f"Wrote {page} and {page.parent / 'figures'}", highlight=False, markup=False)


KINDS = {"text": "one text", "pair": "two texts", "choice": "multiple choice"}


def tasks(
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of data files; the variable UATLITE_DATA by default.")
    ] = None,
) -> None:
    """List the tasks, their splits, and where each split would be read from."""
    from uatlite.lab.evaluate.plan import inventory

    console = Console(highlight=False, soft_wrap=True)
    for task, places in inventory(data_dir):
        labels = ", ".join(task.labels) if len(task.labels) <= 4 else f"{len(task.labels)} classes"
        console.print(f"[bold]{task.name}[/bold]  {task.title} [dim]({KINDS[task.kind]}; {labels})[/dim]")
        for split, place in places.items():
            console.print(f"  {split:<14} {place}")
    console.print("\nYour own file is a task too: uatlite evaluate MODEL --data reviews.csv --text body --label stars")


def methods() -> None:
    """List the methods, their settings, and the calibrators that can be stacked on them."""
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
    console.print(f"Calibrators, stacked as in uat+ts: {', '.join(names)}. Alone, as in ts, one stands on base.")
