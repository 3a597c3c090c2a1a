"""The tables and figures of the paper, recomputed. The exit code is 3 where something is missing."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.table import Table
from typer import Argument, Exit, Option, echo

from uatlite.cli import options as shared
from uatlite.cli.progress import ReproductionBar
from uatlite.values import counted

if TYPE_CHECKING:
    from uatlite.lab.paper.source import ReproductionSettings
    from uatlite.scoring.on_ray import Cluster

REPRODUCE_EXAMPLES = """
[bold]Examples[/bold]

  uatlite reproduce --list

  uatlite reproduce main -o out

  uatlite reproduce all --backbone DIR --data-dir DATA --limit 500 --seeds 2 -o out

Models and predictions are kept in DIR and shared by all tables. After Ctrl-C the same command continues from there.
"""
ALL = "all"
INCOMPLETE = 3


def reproduce(
    names: Annotated[list[str] | None, Argument(help="Names of tables, or all; --list shows them.")] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Directory for everything.")] = None,
    listed: Annotated[bool, Option("--list", help="List the tables and what each of them needs.")] = False,
    plan: Annotated[
        bool, Option("--plan", help="Print what the tables take: models, steps, disk, hours by measured steps.")
    ] = False,
    backbone: Annotated[
        str | None, Option(help="Directory or hub id; by default bert-base-uncased and the paper's others.")
    ] = None,
    other: Annotated[
        list[str] | None, Option(help="Another backbone for tables that compare them; may be repeated, small to large.")
    ] = None,
    recipe: Annotated[
        str | None, Option(help="Recipe of the training; by default paper, with --limit few-rows.")
    ] = None,
    precision: shared.Precision = None,
    seeds: shared.Seeds = 5,
    trained_seeds: Annotated[
        int | None, Option(help="Fewer seeds for methods with a training of their own: SNGP, variational layer.")
    ] = None,
    data_dir: shared.DataDir = None,
    limit: Annotated[int | None, shared.in_data(help="Evaluate on N rows of each set, drawn at random.")] = None,
    train_limit: Annotated[
        int | None, shared.in_data(help="Train on N rows; by default ten times --limit, or all.")
    ] = None,
    tasks: Annotated[
        str | None, shared.in_data(help="Only models of these tasks, as in sst2,mnli; other cells stay empty.")
    ] = None,
    learned_only: Annotated[
        bool, Option("--learned-only", help="Spend no more than the plain model on a task that it has not learned.")
    ] = False,
    resamples: shared.Resamples = 1000,
    device: shared.Device = "auto",
    engine: shared.Engine = "local",
    address: shared.Address = None,
    workers: shared.Workers = None,
    gpus_per_worker: shared.Gpus = 0.0,
) -> None:
    """Recompute tables and figures of the paper, beside the paper's numbers. Exit code 3: something is missing."""
    from uatlite.errors import ConfigurationError
    from uatlite.lab.evaluate.plan import parse_names
    from uatlite.lab.paper.source import ReproductionSettings

    if listed:
        Console().print(_listing(data_dir))
        return
    if names and plan:
        output = output or Path("out")  # of what is there nothing is counted, and nothing is written
    if output is None or not names:
        raise ConfigurationError("Give tables (or all) and -o DIR; uatlite reproduce --list shows what there is.")
    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    settings = ReproductionSettings(
        backbone=backbone,
        others=tuple(other or ()),
        data_dir=data_dir,
        seeds=seeds,
        trained_seeds=trained_seeds,
        limit=limit,
        train_limit=train_limit,
        recipe=recipe,
        changes=shared.given(precision=precision),
        resamples=resamples,
        tasks=tuple(parse_names(tasks) or ()),
        learned_only=learned_only,
        device=device,
    )
    if plan:
        _print_plan(names, output, settings)
    elif not _run(names, output, settings, cluster):
        raise Exit(INCOMPLETE)


def _print_plan(names: list[str], output: Path, settings: "ReproductionSettings") -> None:
    """Print what tables take; nothing is written."""
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.lab.paper.write import reproducer

    with ReproductionBar(console) as bar:
        lines = reproducer(output, settings, bar).plan(_tables(names))
    for line in lines:
        echo(line)


def _tables(names: list[str]) -> list[str]:
    from uatlite.lab.paper.declaration import NAMES

    return list(NAMES) if ALL in names else names


def _run(names: list[str], output: Path, settings: "ReproductionSettings", cluster: "Cluster | None") -> bool:
    """Compute and write the tables and the page; returns whether nothing was missing."""
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.lab.paper.write import PAGE, write_reproduction

    with shared.resumable(console, f"What is done is kept in {output}"), ExitStack() as stack:
        if cluster is not None:
            from uatlite.scoring.on_ray import connected

            stack.enter_context(connected(cluster))  # once, not for every model
        bar = stack.enter_context(ReproductionBar(console))
        done = write_reproduction(_tables(names), output, settings, bar, cluster)
    empty: dict[str, list[str]] = {}
    for reproduction in done:
        state = "skipped" if reproduction.skipped else "in part"
        for reason in reproduction.reasons:
            empty.setdefault(f"{state}, {reason}", []).append(reproduction.declaration.name)
    for reason, tables in empty.items():
        console.print(f"{', '.join(tables)}: {reason}")
    console.print(f"Wrote {counted(len(done), 'table')} and {output / PAGE}")
    return not any(reproduction.reasons for reproduction in done)


def _listing(data_dir: Path | None) -> Table:
    from uatlite.lab.paper.declaration import NAMES, find_declaration
    from uatlite.lab.paper.reproduction import requirements

    table = Table("name", "what", "needs")
    for name in NAMES:
        declaration = find_declaration(name)
        table.add_row(name, f"{declaration.title}\n{declaration.where}", requirements(declaration, data_dir))
    return table
