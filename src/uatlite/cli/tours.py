"""uatlite demo

uatlite bench MODEL

uatlite reproduce NAME|all -o DIR
"""

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from uatlite.cli.bars import ReproductionBar, StageBar
from uatlite.cli.options import AddressOption, EngineOption, GpusOption, WorkersOption, chosen_cluster
from uatlite.cli.product import INPUT_HELP

if TYPE_CHECKING:
    from uatlite.lab.bench_timing import BenchResults
    from uatlite.lab.paper.settings import ReproductionSettings
    from uatlite.scoring.on_ray import Cluster
    from uatlite.values import Text


EXAMPLE = '{"text": "It is not bad at all."}'


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for everything.")] = Path("uatlite-demo"),
) -> None:
    """Fine-tune, evaluate, calibrate and report on film reviews: a few minutes, no network."""
    console, progress = Console(), Console(stderr=True)
    with progress.status("Loading torch and transformers …"):
        from uatlite.lab.demo import run_demo
        from uatlite.lab.report.tables import render
    with StageBar(progress) as display:
        done = run_demo(output, display)
    console.print(render(done.results))
    console.print("\n[bold]What was found[/bold]")
    for number, sentence in enumerate(done.findings, 1):
        console.print(f"{number}. {sentence}", highlight=False, markup=False)
    console.print(
        f"\nReport      {done.report}\nClassifier  {done.classifier}\n\nPredict with it:\n"
        f"  echo '{EXAMPLE}' | uatlite predict {done.classifier} - -o out.jsonl",
        highlight=False,
        markup=False,
        soft_wrap=True,  # a command that is broken into lines cannot be copied
    )


ROWS = 256


def bench(
    model: Annotated[str, typer.Argument(help="Directory of a fine-tuned model, or a hub id.")],
    texts: Annotated[
        str | None, typer.Option("--texts", help=f"Texts to time, best your own; film reviews by default. {INPUT_HELP}")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for tables and plots.")] = Path(
        "uatlite-bench"
    ),
    text: Annotated[str, typer.Option(help="Column of the text, of a pair's first, or of the question.")] = "text",
    text_pair: Annotated[str | None, typer.Option(help="Column of a pair's second text.")] = None,
    options: Annotated[str | None, typer.Option(help="Column of a question's options, for multiple choice.")] = None,
    rows: Annotated[
        int,
        typer.Option(help="Texts that are timed, the first so many; all in all about 500 plain passes over them."),
    ] = ROWS,
    passes: Annotated[int, typer.Option(help="M, of the contenders that do not have a number of their own.")] = 10,
    rounds: Annotated[int, typer.Option(help="How often each contender is timed; medians are shown.")] = 3,
    threads: Annotated[int | None, typer.Option(help="Threads that PyTorch may use; all cores by default.")] = None,
) -> None:
    """Time your model on your texts: deterministic, a plain loop, UAT-Lite in all its forms; cost ratios and plots."""
    import os

    import torch

    from uatlite.lab.bench import BenchPlan, run_bench, save
    from uatlite.model.load import load_checkpoint

    console = Console(stderr=True)
    plan = BenchPlan(passes=passes, rounds=rounds)
    chosen = _texts(texts, rows, text, text_pair, options)
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))

    def keep(results: "BenchResults") -> None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "bench.json").write_text(json.dumps(results.to_dict(), indent=2) + "\n", encoding="utf-8")
        (output / "bench.md").write_text("\n".join(results.lines()) + "\n", encoding="utf-8")
        save(results, output)

    with console.status("loading") as status:
        results = run_bench(load_checkpoint(model), chosen, plan, lambda doing: status.update(f"{doing} …"), keep)
    for line in results.lines():
        typer.echo(line)
    console.print(f"Wrote bench.json, bench.md, bench.svg and bench.png in {output}", highlight=False, soft_wrap=True)


def _texts(source: str | None, rows: int, text: str, pair: str | None, options: str | None) -> "list[Text]":
    from itertools import islice

    from uatlite.scoring.blocks import Accepted, read_items
    from uatlite.scoring.job import Job
    from uatlite.text.schema import Layout
    from uatlite.text.tasks import load
    from uatlite.values import Example

    if source is None:
        return [example.text for example in load("rotten-tomatoes", "test", limit=rows).examples]
    layout = Layout(text=text, pair=pair, options=options, label=None)
    items = read_items(Accepted(options is not None, None), Job(source, Path(), layout))
    return list(islice((item.text for item in items if isinstance(item, Example)), rows))


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
    from uatlite.lab.paper.settings import ReproductionSettings

    console, progress = Console(), Console(stderr=True)
    if listed:
        console.print(_listing(data_dir))
        return
    if output is None or not names:
        raise ConfigurationError("Give tables (or all) and -o DIR; uatlite reproduce --list shows what there is.")
    cluster = chosen_cluster(engine, address, workers, gpus_per_worker)
    settings = ReproductionSettings.of(
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


def _run(
    names: list[str], output: Path, settings: "ReproductionSettings", cluster: "Cluster | None", progress: Console
) -> bool:
    """Every table as it is done, then the page; whether nothing was missing."""
    with progress.status("Loading …"):
        from uatlite.lab.paper.declaration import NAMES
        from uatlite.lab.paper.write import make

    try:
        with ExitStack() as stack:
            elsewhere = None
            if cluster is not None:
                from uatlite.lab.evaluate.on_ray import fill
                from uatlite.scoring.on_ray import connected

                stack.enter_context(connected(cluster))  # once, not for every model
                elsewhere = partial(fill, cluster=cluster)
            display = stack.enter_context(ReproductionBar(progress))
            made = make(list(NAMES) if ALL in names else names, output, settings, display, elsewhere)
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
    from uatlite.lab.paper.declaration import NAMES, declared
    from uatlite.lab.paper.reproduction import needs_of

    table = Table("name", "what", "needs")
    for name in NAMES:
        declaration = declared(name)
        table.add_row(name, f"{declaration.title}\n{declaration.where}", needs_of(declaration, data_dir))
    return table
