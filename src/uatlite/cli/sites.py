"""uatlite sites MODEL"""

from typing import Annotated

import typer


def sites(model: Annotated[str, typer.Argument(help="Directory of a fine-tuned model, or a hub id.")]) -> None:
    """List the dropout sites of a model: where units can be dropped, and at which rate it was trained."""
    from uatlite.backbone.loading import load_checkpoint
    from uatlite.backbone.view import dropout_sites

    found = dropout_sites(load_checkpoint(model).model)
    functional = sum(site.functional for site in found)
    added = sum(site.added for site in found)
    typer.echo(str(found))
    typer.echo(
        f"\n{len(found)} sites. {functional} are functional: switching Dropout modules to train mode misses them. "
        f"{added} are added where the model has no dropout of its own."
    )
