"""uatlite reproduce NAME|all -o DIR"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from uatlite.cli.engine import AddressOption, EngineOption, GpusOption, WorkersOption, chosen_cluster
from uatlite.cli.reproducing import Reproducing

if TYPE_CHECKING:
    from uatlite.reproduce.settings import Settings
    from uatlite.scale import Cluster

EXAMPLES = """
[bold]Examples[/bold]

  uatlite reproduce --list

  uatlite reproduce main -o out

  uatlite reproduce all --backbone DIR --data-dir DATA --limit 500 --seeds 2 -o out

Models and predictions are kept in DIR and shared by all tables. After Ctrl-C the same command goes on from there.
"""

ALL = "all"
INTERRUPTED, INCOMPLETE = 130, 3
_SETS = "How much"


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Tables by name, or all; --list shows them.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Directory for everything.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what there is and what each needs.")] = False,
    backbone: Annotated[
        str | None, typer.Option(help="Directory or hub id; else bert-base-uncased, and the paper's others.")
    ] = None,
    other: Annotated[
        list[str] | None,
        typer.Option(help="More backbones for the tables that compare them; may be repeated, small to large."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Directory of data files; else UATLITE_DATA.")] = None,
    seeds: Annotated[int, typer.Option(help="Fine-tunings, each with masks of its own.", rich_help_panel=_SETS)] = 5,
    limit: Annotated[int | None, typer.Option(help="Rows drawn of each evaluated set.", rich_help_panel=_SETS)] = None,
    train_limit: Annotated[
        int | None, typer.Option(help="Training rows drawn; else ten times --limit, or all.", rich_help_panel=_SETS)
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="paper; with --limit few-rows unless given.", rich_help_panel=_SETS)
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples for the intervals.", rich_help_panel=_SETS)] = 1000,
    engine: EngineOption = "local",
    address: AddressOption = None,
    workers: WorkersOption = None,
    gpus_per_worker: GpusOption = 0.0,
) -> None:
    """Regenerate tables and figures of the paper, beside the paper's own numbers. Exit code 3: something is missing."""
    from uatlite.errors import ConfigurationError
    from uatlite.reproduce.settings import Settings

    console, progress = Console(), Console(stderr=True)
    if listed:
        console.print(_listing(data_dir))
        return
    if output is None or not names:
        raise ConfigurationError("Give tables (or all) and -o DIR; uatlite reproduce --list shows what there is.")
    cluster = chosen_cluster(engine, address, workers, gpus_per_worker)
    settings = Settings.of(
        backbone=backbone,
        others=tuple(other or ()),
        data_dir=data_dir,
        seeds=seeds,
        limit=limit,
        train_limit=train_limit,
        recipe=recipe,
        resamples=resamples,
    )
    complete = _run(names, output, settings, cluster, progress)
    if not complete:
        raise typer.Exit(INCOMPLETE)


def _run(names: list[str], output: Path, settings: "Settings", cluster: "Cluster | None", progress: Console) -> bool:
    """Every table as it is done, then the page; whether nothing was missing."""
    with progress.status("Loading …"):
        from uatlite.reproduce.declaration import NAMES
        from uatlite.reproduce.making import make

    try:
        with ExitStack() as stack:
            elsewhere = None
            if cluster is not None:
                from uatlite.scale import connected, fill

                stack.enter_context(connected(cluster))  # once, not for every model
                elsewhere = partial(fill, cluster=cluster)
            watch = stack.enter_context(Reproducing(progress))
            made = make(list(NAMES) if ALL in names else names, output, settings, watch, elsewhere)
    except KeyboardInterrupt:
        progress.print(f"Stopped. What is done is kept in {output}; the same command goes on from there.")
        raise typer.Exit(INTERRUPTED) from None
    for reproduction in made.tables:
        for reason in reproduction.reasons:
            state = "skipped" if reproduction.skipped else "in part"
            progress.print(f"{reproduction.declaration.name}: {state}, {reason}", highlight=False, markup=False)
    progress.print(f"Wrote {len(made.tables)} tables and {made.page}", highlight=False)
    return not any(reproduction.reasons for reproduction in made.tables)


def _listing(data_dir: Path | None) -> Table:
    from uatlite.reproduce.declaration import NAMES, declared
    from uatlite.reproduce.needs import needs_of

    table = Table("name", "what", "needs")
    for name in NAMES:
        declaration = declared(name)
        table.add_row(name, f"{declaration.title}\n{declaration.where}", needs_of(declaration, data_dir))
    return table
