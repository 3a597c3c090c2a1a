"""uatlite bench MODEL"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from uatlite.cli.predict import INPUT_HELP

if TYPE_CHECKING:
    from uatlite.bench import Results
    from uatlite.values import Text

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

    from uatlite.backbone.loading import load_checkpoint
    from uatlite.bench import Plan, run_bench
    from uatlite.bench.figures import save

    console = Console(stderr=True)
    plan = Plan(passes=passes, rounds=rounds)
    chosen = _texts(texts, rows, text, text_pair, options)
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))

    def keep(results: "Results") -> None:
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

    from uatlite.data.loading import load
    from uatlite.data.schema import Layout
    from uatlite.scoring.job import Job
    from uatlite.scoring.reading import Accepted, read_items
    from uatlite.values import Example

    if source is None:
        return [example.text for example in load("rotten-tomatoes", "test", limit=rows).examples]
    layout = Layout(text=text, pair=pair, options=options, label=None)
    items = read_items(Accepted(options is not None, None), Job(source, Path(), layout))
    return list(islice((item.text for item in items if isinstance(item, Example)), rows))
