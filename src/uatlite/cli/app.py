"""The commands. A new one is a function in one of the files imported here, and a line below."""

from typing import Annotated

import typer

from uatlite import __version__
from uatlite.cli.bench import bench, demo
from uatlite.cli.calibrate import calibrate
from uatlite.cli.deploy import export, serve
from uatlite.cli.evaluate import EVALUATE_EXAMPLES, evaluate, report
from uatlite.cli.lists import methods, sites, tasks
from uatlite.cli.predict import explain, predict, review
from uatlite.cli.recheck import history, pick, recheck
from uatlite.cli.reproduce import REPRODUCE_EXAMPLES, reproduce
from uatlite.cli.train import TRAIN_EXAMPLES, train
from uatlite.cli.watch import WATCH_EXAMPLES, watch

app = typer.Typer(
    help="Know when not to trust a text classifier.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(calibrate)
app.command()(predict)
app.command()(review)
app.command()(export)
app.command()(explain)
app.command(epilog=WATCH_EXAMPLES)(watch)
app.command()(pick)
app.command()(recheck)
app.command()(history)
app.command(epilog=EVALUATE_EXAMPLES)(evaluate)
app.command()(report)
app.command(epilog=REPRODUCE_EXAMPLES)(reproduce)
app.command()(serve)
app.command(epilog=TRAIN_EXAMPLES)(train)
app.command()(bench)
app.command()(sites)
app.command()(tasks)
app.command()(methods)


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
