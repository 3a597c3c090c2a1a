"""From film reviews to a calibrated classifier, without a network.

What is done stands in `lab/demo.py`; here it is shown, with the command that comes next.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from typer import Option

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar

if TYPE_CHECKING:
    pass


EXAMPLE = '{"text": "The plot is thin, but the two leads make it worth seeing."}'


def demo(
    output: Annotated[Path, Option("--output", "-o", help="Directory for everything.")] = Path("uatlite-demo"),
) -> None:
    """Fine-tune, evaluate, calibrate and report on film reviews: a few minutes, without a network."""
    console, progress = Console(soft_wrap=True), shared.messages()
    with progress.status("Loading torch and transformers …"):
        from uatlite.lab.demo import run_demo
        from uatlite.lab.report.result_files import render
    with StageBar(progress) as bar:
        done = run_demo(output, bar)
    console.print(render(done.results))
    console.print("\n[bold]What was found[/bold]")
    for number, sentence in enumerate(done.findings, 1):
        console.print(f"{number}. {sentence}", highlight=False, markup=False)
    console.print(
        f"\nReport      {done.report}\nClassifier  {done.classifier}\n\nPredict with it:\n"
        f"  echo '{EXAMPLE}' | uatlite predict {done.classifier} - -o out.jsonl",
        highlight=False,
        markup=False,
    )
