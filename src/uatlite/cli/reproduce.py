"""The tables and figures of the paper, recomputed. The exit code is 3 where something is missing."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from typer import Exit

from uatlite.cli import options as shared
from uatlite.cli.progress import ReproductionBar

if TYPE_CHECKING:
    from uatlite.lab.paper.source import ReproductionSettings
    from uatlite.scoring.on_ray import Cluster


ALL = "all"
INCOMPLETE = 3


def reproduce(
    names: list[str] | None = None,
    output: Path | None = None,
    listed: bool = False,
    backbone: str | None = None,
    other: list[str] | None = None,
    recipe: str | None = None,
    precision: str | None = None,
    seeds: int = 5,
    trained_seeds: int | None = None,
    data_dir: Path | None = None,
    limit: int | None = None,
    train_limit: int | None = None,
    tasks: str | None = None,
    learned_only: bool = False,
    resamples: int = 1000,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    gpus_per_worker: float = 0.0,
) -> None:
    """Recompute tables and figures of the paper, beside the paper's numbers. Exit code 3: something is missing."""
    from uatlite.errors import ConfigurationError
    from uatlite.lab.evaluate.plan import parse_names
    from uatlite.lab.paper.source import ReproductionSettings

    if listed:
        Console().print(_listing(data_dir))
        return
    if output is None or not names:
        raise ConfigurationError("Give tables (or all) and -o DIR; uatlite reproduce --list shows what there is.")
    cluster = shared.chosen_cluster(engine, address, workers, gpus_per_worker)
    settings = ReproductionSettings.of(
        backbone=backbone,
        others=tuple(other or ()),
        data_dir=data_dir,
        seeds=seeds,
        trained_seeds=trained_seeds,
        limit=limit,
        train_limit=train_limit,
        recipe=recipe,
        precision=precision,
        resamples=resamples,
        tasks=tuple(parse_names(tasks) or ()),
        learned_only=learned_only,
    )
    if not _run(names, output, settings, cluster):
        raise Exit(INCOMPLETE)


def _run(names: list[str], output: Path, settings: "ReproductionSettings", cluster: "Cluster | None") -> bool:
    """Compute and write the tables and the page; returns whether nothing was missing."""
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.lab.paper.declaration import NAMES
        from uatlite.lab.paper.write import PAGE, write_reproduction

    with shared.resumable(console, f"What is done is kept in {output}"), ExitStack() as stack:
        if cluster is not None:
            from uatlite.scoring.on_ray import connected

            stack.enter_context(connected(cluster))  # once, not for every model
        bar = stack.enter_context(ReproductionBar(console))
        tables = list(NAMES) if ALL in names else names
        done = write_reproduction(tables, output, settings, bar, cluster)
    empty: dict[str, list[str]] = {}
    for reproduction in done:
        state = "skipped" if reproduction.skipped else "in part"
        for reason in reproduction.reasons:
            empty.setdefault(f"{state}, {reason}", []).append(reproduction.declaration.name)
    for reason, tables in empty.items():
        console.print(f"{', '.join(tables)}: {reason}")
    console.print(f"Wrote {len(done)} table{'' if len(done) == 1 else 's'} and {output / PAGE}")
    return not any(reproduction.reasons for reproduction in done)


def _listing(data_dir: Path | None) -> Table:
    from uatlite.lab.paper.declaration import NAMES, find_declaration
    from uatlite.lab.paper.reproduction import requirements

    table = Table("name", "what", "needs")
    for name in NAMES:
        declaration = find_declaration(name)
        table.add_row(name, f"{declaration.title}\n{declaration.where}", requirements(declaration, data_dir))
    return table
