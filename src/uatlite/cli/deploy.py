"""The commands that put a classifier to work: as an ONNX graph without PyTorch, and as a service."""

from pathlib import Path

from uatlite.cli import options as shared


def export(
    model: str,
    output: Path,
    int8: bool = False,
    texts: str | None = None,
    method: str | None = None,
    overwrite: bool = False,
    text: str = "text",
    text_pair: str | None = None,
    options: str | None = None,
    format: str | None = None,
) -> None:
    """Write a classifier as an ONNX graph, which predict and serve run without PyTorch."""
    from uatlite.classifier.classifiers import load
    from uatlite.classifier.export import export as export_classifier
    from uatlite.classifier.saving import check_target
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout

    check_target(output, overwrite=overwrite)
    console = shared.messages()
    layout = Layout(text=text, pair=text_pair, options=options, label=None)
    rows = None if texts is None else Source(texts, format=format).texts(layout)
    with console.status(f"Exporting {model} …"):
        classifier = load(model, method=method, calibrated=method is None)
        difference = export_classifier(classifier, output, int8=int8, texts=rows, overwrite=overwrite)
    console.print(difference.describe())
    if int8 or classifier.calibration_ is None:
        shared.not_calibrated(console, str(output))
    console.print(f"Wrote {output}")


def serve(
    model: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    allow_host: list[str] | None = None,
    watch: Path | None = None,
    method: str | None = None,
    max_length: int | None = None,
    batch: int = 32,
    gather: float = 5.0,
    waiting: int = 512,
    deadline: float = 30.0,
    most_texts: int = 128,
    most_characters: int = 20_000,
    most_bytes: int = 2**20,
) -> None:
    """Serve a classifier over HTTP, with a page to look inside it: label, probability, uncertainty, abstain."""
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.classifier.classifiers import load
        from uatlite.serve.access import is_loopback, read_token
        from uatlite.serve.app import serve as run
        from uatlite.serve.service import Limits

        limits = Limits(
            body=most_bytes, texts=most_texts, characters=most_characters, batch=batch, waiting=waiting,
            gather=gather / 1000, deadline=deadline,
        )  # fmt: skip
        token = read_token(token_file)
        classifier = load(model, method=method, **shared.given(max_length=max_length))
    if not is_loopback(host) and token is None:
        console.print("Warning: anyone who reaches this address may use it; set UATLITE_TOKEN or --token-file.")
    if classifier.calibration_ is None:
        shared.not_calibrated(console, model)
    run(
        classifier,
        host=host,
        port=port,
        limits=limits,
        token=token,
        hosts=allow_host or (),
        watch=watch,
        on_start=lambda address: console.print(f"Serving at {address} (Ctrl-C stops)"),
    )
