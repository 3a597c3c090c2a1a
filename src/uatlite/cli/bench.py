"""What it costs, and what it gives: the benchmark of a model on its texts, and the demo."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option, echo

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar


def bench(
    model: shared.ModelName,
    texts: Annotated[str | None, Option(help=f"Your texts; by default film reviews. {shared.INPUT_HELP}")] = None,
    output: Annotated[Path, Option("--output", "-o", help="Directory for tables and plots.")] = Path("uatlite-bench"),
    rows: Annotated[
        int, Option(help="Time the first N texts; this takes about as long as 500 plain passes over them.")
    ] = 256,
    passes: Annotated[int, Option(help="Passes M, for methods without their own number of passes.")] = 10,
    rounds: Annotated[int, Option(help="How often each method is timed; medians are shown.")] = 3,
    threads: Annotated[int | None, Option(help="Threads for PyTorch; by default all cores.")] = None,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    device: shared.Device = "auto",
) -> None:
    """Time your model on your texts: one plain pass, a plain loop, every form of UAT-Lite; cost ratios and plots."""
    import torch

    from uatlite.classifier.saving import read_columns
    from uatlite.lab.bench import BenchPlan, run_bench
    from uatlite.model.load import load_checkpoint
    from uatlite.scoring.source import Source
    from uatlite.text.tasks import load

    console = shared.messages()
    plan = BenchPlan(passes=passes, rounds=rounds)
    if texts is None:
        chosen = load("rotten-tomatoes", "test", limit=rows).texts
    else:
        asked = {"text": text, "pair": text_pair, "options": options}
        chosen = Source(texts).texts_for(read_columns(model), asked, most=rows)
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))

    with console.status("loading") as status:
        for results in run_bench(
            load_checkpoint(model, device=device), chosen, plan, lambda step: status.update(f"{step} …")
        ):
            results.write(output)
    for line in results.lines():
        echo(line)
    console.print(f"Wrote bench.json, bench.md, bench.csv, bench.svg and bench.png in {output}")


def demo(
    output: Annotated[Path, Option("--output", "-o", help="Directory for everything.")] = Path("uatlite-demo"),
    device: shared.Device = "auto",
) -> None:
    """Fine-tune, evaluate, calibrate and report on film reviews: a few minutes, without a network."""
    console, progress = Console(soft_wrap=True), shared.messages()
    with progress.status("Loading torch and transformers …"):
        from uatlite.lab.demo import DemoSettings, run_demo
    with StageBar(progress) as bar:
        done = run_demo(output, bar, DemoSettings(device=device))
    called = [sys.argv[0]] if Path(sys.argv[0]).name == "uatlite" else [sys.executable, "-m", "uatlite"]
    words = [*called, "predict", str(done.classifier), str(output / "texts.jsonl"), "-o", "decisions.csv"]
    for line in (*done.findings, f"Report: {done.report}", f"Next:   {shlex.join(words)}"):
        console.print(line, highlight=False, markup=False)
