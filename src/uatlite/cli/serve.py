"""uatlite serve MODEL"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from uatlite.errors import MissingDependency

PACKAGES = ("fastapi", "prometheus_client", "uvicorn")
_LIMITS = "Limits"


def serve(
    model: Annotated[str, typer.Argument(help="Directory of a model, best one that 'calibrate' wrote, or a hub id.")],
    host: Annotated[str, typer.Option(help="Address to bind to; 0.0.0.0 for all of the machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token to ask for; else UATLITE_TOKEN, else none.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name that the service goes by; may be repeated.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method of an uncalibrated model, as in uat:gate=k.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Most tokens of a text, of an uncalibrated model.")] = None,
    batch: Annotated[int, typer.Option(help="Texts that the model reads at once.", rich_help_panel=_LIMITS)] = 32,
    gather: Annotated[
        float, typer.Option(help="Milliseconds that a text waits for others.", rich_help_panel=_LIMITS)
    ] = 5.0,
    waiting: Annotated[int, typer.Option(help="Texts that may wait; then 503.", rich_help_panel=_LIMITS)] = 512,
    deadline: Annotated[float, typer.Option(help="Seconds to answer a request in.", rich_help_panel=_LIMITS)] = 30.0,
    most_texts: Annotated[int, typer.Option(help="Texts of a request.", rich_help_panel=_LIMITS)] = 128,
    most_characters: Annotated[int, typer.Option(help="Characters of a text.", rich_help_panel=_LIMITS)] = 20_000,
    most_bytes: Annotated[int, typer.Option(help="Bytes of a request.", rich_help_panel=_LIMITS)] = 2**20,
) -> None:
    """Serve a classifier over HTTP, with a page to look inside it: label, probability, uncertainty, abstain."""
    console = Console(stderr=True)
    with console.status("Loading …"):
        run = _imported()
        from uatlite.classifier import UncertaintyClassifier
        from uatlite.serve.limits import Limits
        from uatlite.serve.protection import is_loopback, read_token

        limits = Limits(
            body=most_bytes,
            texts=most_texts,
            characters=most_characters,
            batch=batch,
            waiting=waiting,
            gather=gather / 1000,
            deadline=deadline,
        )
        token = read_token(token_file)
        changed: dict[str, Any] = {} if max_length is None else {"max_length": max_length}
        classifier = UncertaintyClassifier.from_pretrained(model, method=method, **changed)
    if not is_loopback(host) and token is None:
        console.print("Warning: anyone who reaches this address may use it; set UATLITE_TOKEN or --token-file.")
    if classifier.calibration_ is None:
        console.print(
            f"Not calibrated: the probabilities are the model's own. Run: uatlite calibrate {model} DATA -o DIR"
        )

    def say(address: str) -> None:
        console.print(f"Serving at {address} (Ctrl-C stops)", highlight=False, soft_wrap=True)

    run(classifier, host=host, port=port, limits=limits, token=token, hosts=allow_host or (), on_start=say)


def _imported() -> Callable[..., None]:
    try:
        from uatlite.serve.running import serve as run
    except ModuleNotFoundError as error:
        if error.name in PACKAGES:
            raise MissingDependency(error.name, "serve") from error
        raise
    return run
