"""What there is: tasks, methods, and the dropout sites of a model."""

from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from typer import echo

from uatlite.cli import options as shared

if TYPE_CHECKING:
    pass


_FORMS = {
    "text": "one text",
    "pair": "two texts",
    "choice": "multiple choice",
    "entities": "a label for each token",
    "labels": "any number of labels",
}


def tasks(data_dir: shared.DataDir = None) -> None:
    """List the tasks, their splits, and where each split is read from."""
    from uatlite.lab.evaluate.plan import inventory

    console = Console(highlight=False, soft_wrap=True)
    for task, places in inventory(data_dir):
        labels = ", ".join(task.labels) if len(task.labels) <= 4 else f"{len(task.labels)} classes"
        console.print(f"[bold]{task.name}[/bold]  {task.title} [dim]({_FORMS[task.form]}; {labels})[/dim]")
        for split, place in places.items():
            console.print(f"  {split:<14} {place}")
    console.print("\nOr use your own file: uatlite evaluate MODEL --data reviews.csv --text body --label stars")


def methods() -> None:
    """List the methods, their settings, and the calibrators that can follow them."""
    from uatlite.lab.evaluate.baseline_calibrators import EVALUATED
    from uatlite.lab.evaluate.plan import CALIBRATOR_ALIASES
    from uatlite.methods.registry import METHOD_ALIASES, METHODS
    from uatlite.passes.config import UATConfig
    from uatlite.spelling import setting_names

    console = Console()
    listed = Table("method", "passes", "trained", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, method in METHODS.items():
        aliases = [alias for alias, of in METHOD_ALIASES.items() if of == name]
        trained = "for it" if method.trained else ""
        listed.add_row(", ".join([name, *aliases]), str(method.passes), trained, method.summary)
    console.print(listed)
    short = {name: alias for alias, name in CALIBRATOR_ALIASES.items()}
    names = [f"{name} ({short[name]})" if name in short else name for name in EVALUATED if name != "none"]
    console.print(f"Settings, as in uat:gate=k,penalty=1.0: {', '.join(setting_names(UATConfig()))}.", highlight=False)
    console.print(
        "Methods trained 'for it' need their own model: uatlite train --method NAME --task TASK -o DIR; give DIR after "
        "the plain model in uatlite evaluate.",
        highlight=False,
    )
    console.print(f"Calibrators, added as in uat+ts: {', '.join(names)}. Alone, as in ts, one follows base.")


def sites(model: shared.ModelName) -> None:
    """List the dropout sites of a model: where units can be dropped, and the rate used in training."""
    from uatlite.model.load import load_checkpoint
    from uatlite.model.view import dropout_sites

    found = dropout_sites(load_checkpoint(model).model)
    functional = sum(site.functional for site in found)
    added = sum(site.added for site in found)
    echo(str(found))
    echo(
        f"\n{len(found)} sites. {functional} are functional: switching Dropout modules to train mode misses them. "
        f"{added} are added where the model has no dropout of its own."
    )
