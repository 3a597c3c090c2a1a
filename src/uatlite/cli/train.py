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
    recipe: Annotated[str, typer.Option(help="paper, or demo for a few thousand short texts on a CPU.")] = "paper",
    seed: Annotated[int, typer.Option(help="Seed of the head, the order of rows and dropout.")] = 0,
    limit: Annotated[int | None, typer.Option(help="Training rows drawn.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Directory of data files; else UATLITE_DATA.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
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
    """Fine-tune a backbone on a task. Early stopping watches the task's calibration rows."""
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
        from uatlite.training.fine_tuning import fine_tune
        from uatlite.training.progress import advancing

        rows = load(task, "train", data_dir, limit=limit, seed=seed)
        watched = load(task, "calibration", data_dir) if chosen.patience is not None else None
    with Watching(progress) as watch:
        watch.begin("fine-tuning", chosen.steps(len(rows)))
        trained = fine_tune(
            backbone,
            rows,
            output,
            validation=watched,
            recipe=chosen,
            seed=seed,
            resume=resume,
            checkpoint_steps=checkpoint_steps,
            report=advancing(watch.advance),
        )
    nll = "" if trained.validation_nll is None else f", validation NLL {trained.validation_nll:.4f}"
    progress.print(
        f"Wrote {output}: {trained.steps:,} steps over {trained.rows:,} rows in {trained.seconds:.0f} s, "
        f"training loss {trained.train_loss:.4f}{nll}",
        highlight=False,
        markup=False,
    )
