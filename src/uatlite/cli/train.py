"""uatlite train --task TASK -o DIR"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from uatlite.cli.watching import Watching

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
    from uatlite.training import RECIPES

    check_choice("recipe", recipe, RECIPES)
    given: dict[str, Any] = {
        "learning_rate": learning_rate, "warmup_steps": warmup_steps, "batch_size": batch_size, "epochs": epochs,
        "max_length": max_length, "patience": patience,
    }  # fmt: skip
    chosen = replace(RECIPES[recipe], **{name: value for name, value in given.items() if value is not None})
    progress = Console(stderr=True)
    with progress.status("Loading …"):
        from uatlite.data.loading import load
        from uatlite.training.methods import Job, parse_fitting, steps, train_method
        from uatlite.training.progress import advancing

        fitting = parse_fitting(method)
        rows = load(task, "train", data_dir, limit=limit, seed=seed)
        watched = load(task, "calibration", data_dir) if chosen.patience is not None else None
    job = Job(backbone, rows, watched, chosen, seed, checkpoint_steps)
    with Watching(progress) as watch:
        watch.begin(f"training {fitting.name}", steps(fitting, job, base))
        trained = train_method(fitting, job, output, base=base, resume=resume, report=advancing(watch.advance))
    nll = "" if trained.validation_nll is None else f", validation NLL {trained.validation_nll:.4f}"
    progress.print(
        f"Wrote {output}: {trained.steps:,} steps over {trained.rows:,} rows in {trained.seconds:.0f} s, "
        f"training loss {trained.train_loss:.4f}{nll}",
        highlight=False,
        markup=False,
    )
