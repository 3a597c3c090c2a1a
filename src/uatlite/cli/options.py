"""Shared by the commands: arguments and options, messages on standard error, the choice of a Ray cluster."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from typer import Argument, Exit, Option

from uatlite.errors import ConfigurationError, check_choice

if TYPE_CHECKING:
    from uatlite.scoring.on_ray import Cluster

NO_PROMISE = 5
"""The exit code where what was calibrated answers nothing, or much less than before; it is written all the same."""
INTERRUPTED = 130
WARNING = "bold yellow"
"""The style of what a reader must not miss."""
LEVELS = {None: "default", "green": "green", "amber": "yellow", "red": "bold red"}
"""How bad a shift is -> the style of its verdict."""
ENGINES = ("local", "ray")
INPUT_HELP = "JSONL, CSV, TSV or Parquet (.gz too), a directory of such files, an address (s3://…), or - for stdin."

in_columns = partial(Option, rich_help_panel="Columns of the data")
in_data = partial(Option, rich_help_panel="Data")
in_recipe = partial(Option, rich_help_panel="Recipe: replaces values of --recipe")
in_limits = partial(Option, rich_help_panel="Limits")
in_where = partial(Option, rich_help_panel="Where it runs")
in_more = partial(Option, rich_help_panel="More")

ModelName = Annotated[str, Argument(help="Directory of a fine-tuned classifier, or a hub id.")]
Classifier = Annotated[
    str, Argument(help="Directory that 'uatlite calibrate' wrote, or of any fine-tuned classifier, or a hub id.")
]

ScoresFile = Annotated[
    str | None, Option("--scores", help="Scores of another classifier instead: p_CLASS, logit_CLASS, … in a file.")
]
Embeddings = Annotated[
    str | None, in_columns(help="With --scores: the column of embeddings, or a file .npy of them, for scope and shift.")
]

TextColumn = Annotated[str, in_columns(help="Column of the text, of a pair's first text, or of a question.")]
KnownText = Annotated[
    str | None, in_columns(help="Column of the text, the first of a pair, or the question; as in calibration, or text.")
]
PairColumn = Annotated[str | None, in_columns(help="Column of a pair's second text.")]
Options = Annotated[str | None, in_columns(help="Column of a question's options, for multiple choice.")]
Label = Annotated[str, in_columns(help="Column of the label: a class name, or a number from 0.")]
KnownLabel = Annotated[
    str | None,
    in_columns(help="Column of the label, a class name or a number from 0; as in calibration, or label (or labels)."),
]
LabelOrder = Annotated[str | None, in_columns(help="Names of the model's classes in its order: negative,positive")]
Format = Annotated[str | None, in_columns(help="Format of the data, if the file name does not show it.")]

TaskName = Annotated[str | None, in_data(help="A task by name; 'uatlite tasks' lists them.")]
DataDir = Annotated[Path | None, in_data(help="Directory of the tasks' files; by default UATLITE_DATA.")]
Seeds = Annotated[int, Option(help="Number of seeds for everything random.")]
Precision = Annotated[str | None, in_recipe(help="Of the matrix products: fp32, or bf16, about twice as fast.")]
Resamples = Annotated[int, in_more(help="Bootstrap resamples for the confidence intervals.")]
MaxLength = Annotated[
    int | None, Option(help="Longest text in tokens; by default the limit of the calibration or the model.")
]
MethodName = Annotated[
    str | None, Option(help="Method of a model without calibration, as in uat:gate=k; analytic by default.")
]
Strict = Annotated[
    bool, Option("--strict", help="Stop at the first row that cannot be used, instead of setting it aside.")
]

Device = Annotated[str, in_where(help="auto, cpu, cuda, cuda:1 or mps; auto takes a GPU where there is one.")]
PassPrecision = Annotated[
    str | None,
    in_where("--precision", help="Of the passes: fp32, or on a GPU bf16, fp16, tf32. A calibration holds for its own."),
]
Engine = Annotated[str, in_where(help="local, or ray for several processes or machines.")]
Address = Annotated[str | None, in_where(help="Ray cluster, host:port or auto; by default one is started here.")]
Workers = Annotated[int | None, in_where(help="Ray workers, each with the model; by default all that fit.")]
Gpus = Annotated[float, in_where(help="GPUs of a Ray worker; 0.5 is allowed.")]


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def rows_given(input: str | None, scores: str | None, columns: Mapping[str, Any]) -> str:
    """The rows to read: a file for the classifier that has these columns, of texts or of scores."""
    if (input is None) == (scores is None):
        raise ConfigurationError("give the rows: a file of texts, or --scores with a file of scores.")
    if scores is not None and "scores" not in columns:
        raise ConfigurationError(
            "--scores is for a classifier that was calibrated on scores; this one reads texts: give the file alone."
        )
    return str(scores or input)


def refuse(options: Mapping[str, Any], why: str) -> None:
    """Raise where one of the options was given; `why` is the kind of the model, and what to use instead."""
    for name in given(**options):
        raise ConfigurationError(f"--{name.replace('_', '-')} is not for {why}.")


def messages() -> Console:
    """Standard error, for progress and messages; long lines are not wrapped, so that paths can be copied."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def resumable(console: Console, kept: str, how: str = "the same command goes on from there") -> Iterator[None]:
    """After Ctrl-C say what is kept and how to go on, and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(f"Stopped. {kept}; {how}.")
        raise Exit(INTERRUPTED) from None


def not_calibrated(console: Console, model: str) -> None:
    """Say that probabilities are not calibrated, and what to do."""
    console.print(f"Not calibrated: the probabilities are the model's own. Run: uatlite calibrate {model} DATA -o DIR")


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
