"""Shared by the commands: messages on standard error, what is refused, the choice of a Ray cluster."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from typer import Exit

from uatlite.errors import ConfigurationError, check_choice

if TYPE_CHECKING:
    from uatlite.scoring.on_ray import Cluster

INTERRUPTED = 130
WARNING = "bold yellow"
"""The style of what a reader must not miss."""
ENGINES = ("local", "ray")


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


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


@contextmanager
def said_by_the_command() -> Iterator[None]:
    """Hide the Python warnings of a call whose command prints the same in its own words."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"uatlite\.cli\.")
        yield


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
