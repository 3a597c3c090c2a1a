"""uatlite tasks"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

KINDS = {"text": "one text", "pair": "two texts", "choice": "multiple choice"}


def tasks(
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of data files; the variable UATLITE_DATA by default.")
    ] = None,
) -> None:
    """List the tasks, their splits, and where each split would be read from."""
    from uatlite.experiments.inventory import inventory

    console = Console(highlight=False, soft_wrap=True)
    for task, places in inventory(data_dir):
        labels = ", ".join(task.labels) if len(task.labels) <= 4 else f"{len(task.labels)} classes"
        console.print(f"[bold]{task.name}[/bold]  {task.title} [dim]({KINDS[task.kind]}; {labels})[/dim]")
        for split, place in places.items():
            console.print(f"  {split:<14} {place}")
    console.print("\nYour own file is a task too: uatlite evaluate MODEL --data reviews.csv --text body --label stars")
