"""The commands that put a classifier to work: as an ONNX graph without PyTorch, and as a service."""

import warnings
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from uatlite.cli import options as shared
from uatlite.cli.calibrate import tell


def export(
    model: shared.Classifier,
    output: Annotated[Path, Option("--output", "-o", help="Directory for the exported classifier.")],
    int8: Annotated[
        bool, Option("--int8", help="Quantise to int8: half the time. It drops the calibration; add --calibrate.")
    ] = False,
    calibrate: Annotated[
        str | None, Option(help="Labelled rows to calibrate the exported one on, with the options of the classifier.")
    ] = None,
    reference: Annotated[str | None, Option(help="Unlabelled texts of the task, for the scope of --calibrate.")] = None,
    texts: Annotated[
        str | None, Option(help="Texts of the task to compare with PyTorch on; a few sentences by default.")
    ] = None,
    method: shared.MethodName = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Write into a directory that is not empty.")] = False,
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    label: shared.KnownLabel = None,
    format: shared.Format = None,
    device: shared.Device = "auto",
) -> None:
    """Write a classifier as an ONNX graph, which predict and serve run without PyTorch."""
    from uatlite.classifier.classifiers import load
    from uatlite.classifier.export import export as export_classifier
    from uatlite.classifier.saving import check_target
    from uatlite.scoring.source import Source

    shared.refuse({"reference": reference if calibrate is None else None}, "an export without --calibrate")
    check_target(output, overwrite=overwrite)
    console, asked = shared.messages(), {"text": text, "pair": text_pair, "options": options}
    with warnings.catch_warnings(), console.status(f"Exporting {model} …"):
        warnings.filterwarnings("ignore", category=UserWarning, module=r"uatlite\.classifier\.export")  # is printed
        classifier = load(model, method=method, calibrated=method is None, device=device)
        given: dict[str, Any] = {
            name: Source(file, format=format).texts_for(classifier.columns, asked)
            for name, file in shared.given(texts=texts, reference=reference).items()
        }
        if calibrate is not None:
            rows = Source(calibrate, format=format).labelled_for(classifier, {**asked, "label": label})
            given = {"texts": rows.texts, "labelled": (rows.texts, rows.gold), **given}
        difference = export_classifier(classifier, output, int8=int8, overwrite=overwrite, **given)
    console.print(difference.describe())
    if calibrate is not None:
        tell(console, output, load(output), rows.rejects)
    else:
        if int8 or classifier.calibration_ is None:
            shared.not_calibrated(console, str(output))
        console.print(f"Wrote {output}")


def serve(
    model: shared.Classifier,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all of the machine.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, Option(help="File with the bearer token clients must send; by default UATLITE_TOKEN.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, Option(help="Host name under which clients reach it; may be repeated.")
    ] = None,
    watch: Annotated[
        Path | None, Option(help="File that keeps what is known of the traffic; 'uatlite watch' reads it.")
    ] = None,
    method: shared.MethodName = None,
    max_length: shared.MaxLength = None,
    batch: Annotated[int, shared.in_limits(help="Texts in one batch of the model.")] = 32,
    gather: Annotated[
        float,
        shared.in_limits(help="Most milliseconds that a text waits for others, where the latest batch had several."),
    ] = 5.0,
    waiting: Annotated[int, shared.in_limits(help="Texts that may wait; more are refused with 503.")] = 512,
    deadline: Annotated[float, shared.in_limits(help="Seconds to answer a request.")] = 30.0,
    most_texts: Annotated[int, shared.in_limits(help="Most texts in a request.")] = 128,
    most_characters: Annotated[int, shared.in_limits(help="Most characters in a text.")] = 20_000,
    most_bytes: Annotated[int, shared.in_limits(help="Most bytes in a request.")] = 2**20,
    device: shared.Device = "auto",
    precision: shared.PassPrecision = None,
) -> None:
    """Serve a classifier over HTTP, with a page to look inside it: label, probability, uncertainty, abstain."""
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.classifier.classifiers import load
        from uatlite.serve.access import is_loopback, read_token
        from uatlite.serve.app import serve as run
        from uatlite.serve.limits import Limits

        limits = Limits(
            body=most_bytes, texts=most_texts, characters=most_characters, batch=batch, waiting=waiting,
            gather=gather / 1000, deadline=deadline,
        )  # fmt: skip
        token = read_token(token_file)
        changes = shared.given(max_length=max_length, precision=precision)
        classifier = load(model, method=method, device=device, **changes)
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
