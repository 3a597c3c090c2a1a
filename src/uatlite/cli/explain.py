"""uatlite explain MODEL TEXT"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

_MORE = "More"


def explain(
    model: Annotated[str, typer.Argument(help="Directory of a model, calibrated or not, or a hub id.")],
    text: Annotated[str, typer.Argument(help="The text, the first of a pair, or the question.")],
    pair: Annotated[str | None, typer.Option(help="The second text of a pair.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of a multiple-choice question; repeat for each.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write: .html, .png, .svg or .json.")
    ] = None,
    estimator: Annotated[
        str, typer.Option(help="Of the layers' contributions: delta, isolated or total-variance.")
    ] = "delta",
    samples: Annotated[
        int, typer.Option(help="Passes for each layer and component; delta takes none.", rich_help_panel=_MORE)
    ] = 200,
    layer: Annotated[
        int | None, typer.Option(help="Layer of the attention maps, from 1; else all.", rich_help_panel=_MORE)
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="Head of the attention maps, from 1; else all.", rich_help_panel=_MORE)
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method, as in analytic or uat:gate=k.", rich_help_panel=_MORE)
    ] = None,
    uncalibrated: Annotated[
        bool, typer.Option("--uncalibrated", help="Leave a saved calibration aside.", rich_help_panel=_MORE)
    ] = False,
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a text, of an uncalibrated model.", rich_help_panel=_MORE)
    ] = None,
) -> None:
    """Show where the uncertainty of one prediction comes from: its words, its layers, its attention."""
    from uatlite.classifier import UncertaintyClassifier
    from uatlite.classifier.inputs import as_text
    from uatlite.report.explained import check_target, render, write_explanation

    if output is not None:
        check_target(output)
    whole = as_text(text, pair, option or ())
    progress = Console(stderr=True)
    with progress.status(f"Reading with {model} …"):
        changed: dict[str, Any] = {} if max_length is None else {"max_length": max_length}
        classifier = UncertaintyClassifier.from_pretrained(model, method=method, calibrated=not uncalibrated, **changed)
        found = classifier.explain(whole, estimator=estimator, samples=samples, attention=output is not None)
        if output is not None:
            write_explanation(found, output, layer=layer, head=head)
    Console().print(render(found))
    if output is not None:
        progress.print(f"Wrote {output}", highlight=False, markup=False, soft_wrap=True)
