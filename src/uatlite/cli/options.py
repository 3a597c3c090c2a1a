"""What commands share: arguments and options, the messages on standard error, the choice of a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from uatlite.errors import ConfigurationError, check_choice

if TYPE_CHECKING:
    from uatlite.scoring.on_ray import Cluster

INTERRUPTED = 130
ENGINES = ("local", "ray")
INPUT_HELP = "JSONL, CSV, TSV or Parquet (.gz too), a directory of such files, an address (s3://…), or - for stdin."
COLUMNS, DATA, RECIPE, LIMITS, WHERE, MORE = (
    "Columns of the data",
    "Data",
    "Recipe: replaces values of --recipe",
    "Limits",
    "Where it runs",
    "More",
)

ModelArgument = Annotated[str, typer.Argument(help="Directory of a fine-tuned classifier, or a hub id.")]
ClassifierArgument = Annotated[
    str,
    typer.Argument(help="Directory that 'uatlite calibrate' wrote, or of any fine-tuned classifier, or a hub id."),
]

TextOption = Annotated[
    str,
    typer.Option(
        "--text", help="Column of the text, of a pair's first text, or of a question.", rich_help_panel=COLUMNS
    ),
]
PairOption = Annotated[
    str | None, typer.Option("--text-pair", help="Column of a pair's second text.", rich_help_panel=COLUMNS)
]
OptionsOption = Annotated[
    str | None,
    typer.Option("--options", help="Column of a question's options, for multiple choice.", rich_help_panel=COLUMNS),
]
LabelOption = Annotated[
    str,
    typer.Option("--label", help="Column of the label: a class name, or a number from 0.", rich_help_panel=COLUMNS),
]
LabelOrderOption = Annotated[
    str | None,
    typer.Option(
        "--label-order", help="Names of the model's classes in its order: negative,positive", rich_help_panel=COLUMNS
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option("--format", help="Format of the data, if the file name does not show it.", rich_help_panel=COLUMNS),
]

TaskOption = Annotated[
    str | None, typer.Option("--task", help="A task by name; 'uatlite tasks' lists them.", rich_help_panel=DATA)
]
DataDirOption = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of the tasks' files; by default UATLITE_DATA.", rich_help_panel=DATA),
]
SeedsOption = Annotated[int, typer.Option("--seeds", help="Number of seeds for everything random.")]
ResamplesOption = Annotated[
    int, typer.Option("--resamples", help="Bootstrap resamples for the confidence intervals.", rich_help_panel=MORE)
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option("--max-length", help="Longest text in tokens; by default the limit of the calibration or the model."),
]
MethodOption = Annotated[
    str | None,
    typer.Option("--method", help="Method for a model without calibration, as in uat:gate=k; fast by default."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Stop at the first row that cannot be used, instead of setting it aside.")
]

EngineOption = Annotated[
    str,
    typer.Option("--engine", help="local, or ray for several processes or machines.", rich_help_panel=WHERE),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address", help="Ray cluster, host:port or auto; by default one is started here.", rich_help_panel=WHERE
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", help="Ray workers, each with the model; by default all that fit.", rich_help_panel=WHERE),
]
GpusOption = Annotated[
    float, typer.Option("--gpus-per-worker", help="GPUs of a Ray worker; 0.5 is allowed.", rich_help_panel=WHERE)
]


def messages() -> Console:
    """Standard error, for progress and messages; a printed path or command is never broken into lines."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def resumable(console: Console, message: str) -> Iterator[None]:
    """After Ctrl-C print how to go on, and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(message)
        raise typer.Exit(INTERRUPTED) from None


def chosen_cluster(engine: str, address: str | None, workers: int | None, gpus: float) -> "Cluster | None":
    """The Ray cluster of the options; None for this process."""
    check_choice("engine", engine, ENGINES)
    if engine == "ray":
        from uatlite.scoring.on_ray import Cluster

        return Cluster(address, workers, gpus)
    for option, value in (("--address", address), ("--workers", workers), ("--gpus-per-worker", gpus)):
        if value:
            raise ConfigurationError(f"{option} {value} is about a cluster, and --engine is local; add --engine ray.")
    return None
