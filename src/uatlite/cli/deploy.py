"""The command that takes a classifier out of PyTorch."""

from pathlib import Path
from typing import Annotated

from typer import Option

from uatlite.cli import options as shared


def export(
    model: shared.Classifier,
    output: Annotated[Path, Option("--output", "-o", help="Directory for the exported classifier.")],
    int8: Annotated[
        bool, Option("--int8", help="Quantise to int8: half the time, and to be calibrated again.")
    ] = False,
    texts: Annotated[
        str | None, Option(help="Texts of the task to compare with PyTorch on; a few sentences by default.")
    ] = None,
    method: shared.Method = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Write into a directory that is not empty.")] = False,
    text: shared.Text = "text",
    text_pair: shared.Pair = None,
    options: shared.Options = None,
    format: shared.Format = None,
) -> None:
    """Write a classifier as ONNX graphs, which predict and serve run without PyTorch."""
    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.classifier.export import export as export_classifier
    from uatlite.classifier.saving import check_target
    from uatlite.scoring.blocks import read_texts
    from uatlite.text.schema import Layout

    check_target(output, overwrite=overwrite)
    console = shared.messages()
    layout = Layout(text=text, pair=text_pair, options=options, label=None)
    rows = None if texts is None else read_texts(texts, layout, format=format)
    with console.status(f"Exporting {model} …"):
        classifier = UncertaintyClassifier.from_pretrained(model, method=method, calibrated=method is None)
        difference = export_classifier(classifier, output, int8=int8, texts=rows, overwrite=overwrite)
    console.print(difference.describe())
    if int8 or classifier.calibration_ is None:
        shared.not_calibrated(console, str(output))
    console.print(f"Wrote {output}")
