"""The commands, and the lists of what there is. A new one is a function in a file imported here, and a name below."""

from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from uatlite import __version__
from uatlite.cli import options as shared
from uatlite.cli.bench import bench, demo
from uatlite.cli.calibrate import calibrate
from uatlite.cli.deploy import export, serve
from uatlite.cli.evaluate import EVALUATE_EXAMPLES, evaluate, report
from uatlite.cli.predict import explain, predict, review
from uatlite.cli.recheck import history, pick, recheck
from uatlite.cli.reproduce import REPRODUCE_EXAMPLES, reproduce
from uatlite.cli.train import TRAIN_EXAMPLES, refine, train
from uatlite.cli.watch import WATCH_EXAMPLES, watch

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
        for split, source in places.items():
            console.print(f"  {split:<14} {source}")
    console.print("\nOr use your own file: uatlite evaluate MODEL --data reviews.csv --text body --label stars")


def methods() -> None:
    """List the methods, their settings, and the calibrators that can follow them."""
    from uatlite.lab.evaluate.baseline_calibrators import EVALUATED
    from uatlite.lab.evaluate.plan import CALIBRATOR_ALIASES
    from uatlite.methods.registry import METHOD_ALIASES, METHODS
    from uatlite.passes.config import UATConfig
    from uatlite.spelling import setting_names

    console = Console()
    listed = Table("method", "cost in passes", "trained", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, method in METHODS.items():
        aliases = [alias for alias, of in METHOD_ALIASES.items() if of == name]
        trained = "for it" if method.trained else ""
        listed.add_row(", ".join([name, *aliases]), str(method.cost), trained, method.summary)
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

    listing = dropout_sites(load_checkpoint(model, device="cpu").model)
    functional = sum(site.functional for site in listing)
    added = sum(site.added for site in listing)
    typer.echo(str(listing))
    typer.echo(
        f"\n{len(listing)} sites. {functional} are functional: switching Dropout modules to train mode misses them. "
        f"{added} are added where the model has no dropout of its own."
    )


app = typer.Typer(
    help="Know when not to trust a text classifier.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_EXAMPLES = {watch: WATCH_EXAMPLES, evaluate: EVALUATE_EXAMPLES, reproduce: REPRODUCE_EXAMPLES, train: TRAIN_EXAMPLES}
for _command in (
    demo, calibrate, predict, review, export, explain, watch, pick, recheck, history,
    evaluate, report, reproduce, serve, train, refine, bench, sites, tasks, methods,
):  # fmt: skip
    app.command(epilog=_EXAMPLES.get(_command))(_command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"uatlite {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; may stand anywhere on the line.")
    ] = False,
) -> None:
    """Know when not to trust a text classifier."""
