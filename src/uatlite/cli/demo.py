"""uatlite demo"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from uatlite.cli.watching import Watching

EXAMPLE = '{"text": "It is not bad at all."}'


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for everything.")] = Path("uatlite-demo"),
) -> None:
    """Fine-tune, evaluate, calibrate and report on film reviews: a few minutes, no network."""
    console, progress = Console(), Console(stderr=True)
    with progress.status("Loading torch and transformers …"):
        from uatlite.demo.run import run_demo
        from uatlite.report.terminal import render
    with Watching(progress) as watch:
        done = run_demo(output, watch)
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
