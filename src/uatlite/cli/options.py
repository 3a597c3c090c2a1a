"""The options that say where a command computes: in this process, or on the workers of a Ray cluster."""

from typing import TYPE_CHECKING, Annotated

import typer

from uatlite.errors import ConfigurationError, check_choice

if TYPE_CHECKING:
    from uatlite.scoring.on_ray import Cluster


ENGINES = ("local", "ray")
_WHERE = "Where it runs"

EngineOption = Annotated[
    str, typer.Option("--engine", help="local, or ray for many processes and machines.", rich_help_panel=_WHERE)
]
AddressOption = Annotated[
    str | None,
    typer.Option("--address", help="A running Ray cluster, host:port or auto; else one here.", rich_help_panel=_WHERE),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", help="Processes with the model; else all there is room for.", rich_help_panel=_WHERE),
]
GpusOption = Annotated[
    float, typer.Option("--gpus-per-worker", help="GPUs of a worker; 0.5 is allowed.", rich_help_panel=_WHERE)
]


def chosen_cluster(engine: str, address: str | None, workers: int | None, gpus: float) -> "Cluster | None":
    """The cluster that was asked for; None for this process."""
    check_choice("engine", engine, ENGINES)
    if engine == "ray":
        from uatlite.scoring.on_ray import Cluster

        return Cluster(address, workers, gpus)
    for option, value in (("--address", address), ("--workers", workers), ("--gpus-per-worker", gpus)):
        if value:
            raise ConfigurationError(f"{option} {value} is about a cluster, and --engine is local; add --engine ray.")
    return None
