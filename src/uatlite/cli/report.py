"""uatlite report STORE"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def report(
    store: Annotated[Path, typer.Argument(help="Directory that 'evaluate' wrote, or the store in it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Directory for report.html and figures/; by default STORE.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Whose abstentions to show, as in uat+ts; by default calibration rows choose.")
    ] = None,
    target_risk: Annotated[float, typer.Option(help="Share of wrong answers that the abstention aims at.")] = 0.1,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the texts are, to show those that were not answered.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that was evaluated, to show a few texts word by word.")
    ] = None,
) -> None:
    """Write the report of an evaluation: one HTML page, and each figure as SVG, PNG and CSV. Needs no model."""
    console = Console(stderr=True)
    with console.status("Drawing …"):
        from uatlite.report.build import build_report
        from uatlite.report.evaluation import home_of

        page = build_report(
            store, output or home_of(store), contender=method, target_risk=target_risk, data_dir=data_dir, model=model
        )
    console.print(f"Wrote {page} and {page.parent / 'figures'}", highlight=False, markup=False)
