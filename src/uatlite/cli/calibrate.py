"""uatlite calibrate MODEL DATA -o DIR"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from uatlite.cli.predict import INPUT_HELP

if TYPE_CHECKING:
    from uatlite.classifier import UncertaintyClassifier


def calibrate(
    model: Annotated[str, typer.Argument(help="Directory of a fine-tuned model, or a hub id.")],
    data: Annotated[str, typer.Argument(help=f"Labelled rows that the model was not trained on. {INPUT_HELP}")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory for the calibrated classifier.")],
    text: Annotated[str, typer.Option(help="Column of the text, of a pair's first, or of the question.")] = "text",
    text_pair: Annotated[str | None, typer.Option(help="Column of a pair's second text.")] = None,
    options: Annotated[str | None, typer.Option(help="Column of a question's options, for multiple choice.")] = None,
    label: Annotated[str, typer.Option(help="Column of the label: a class's name, or its number from 0.")] = "label",
    label_order: Annotated[
        str | None, typer.Option(help="What the model's classes are called, in its order: negative,positive")
    ] = None,
    format: Annotated[str | None, typer.Option(help="Format of the data where their name does not say it.")] = None,
    target_risk: Annotated[
        float | None, typer.Option(help="Answer so that at most this share of answers is wrong.")
    ] = None,
    target_coverage: Annotated[float | None, typer.Option(help="Answer at least this share of rows.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Answer where the score is above this.")] = None,
    confidence: Annotated[float, typer.Option(help="The confidence with which --target-risk is promised.")] = 0.95,
    score: Annotated[
        str, typer.Option(help="What to abstain by: confidence, margin, entropy, mutual-information, variance.")
    ] = "confidence",
    calibrator: Annotated[
        str,
        typer.Option(help="auto, none, temperature, input-temperature, platt, vector, histogram or isotonic."),
    ] = "auto",
    label_sets: Annotated[
        float | None, typer.Option(help="Coverage of label sets, as in 0.9; none by default.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="How passes are made, as in fast, cascade, base or uat:gate=k; fast by default.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Choose the best method that costs at most so many deterministic passes, as in 2.0."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="By how much a cascade's AURC and ECE may exceed those of its second stage on all.")
    ] = 0.005,
    seed: Annotated[int, typer.Option(help="Seed of the passes and of the split of the rows.")] = 0,
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a text; by default what the model takes.")
    ] = None,
    windows: Annotated[bool, typer.Option("--windows", help="Read long texts in overlapping windows.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first row that cannot be used.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write into a directory that is not empty.")] = False,
) -> None:
    """Learn calibrated probabilities, and when to abstain, from a few hundred labelled rows."""
    from uatlite.classifier import UncertaintyClassifier
    from uatlite.data.schema import Layout
    from uatlite.errors import DataError
    from uatlite.scoring.labelled import read_labelled

    if output.is_dir() and any(output.iterdir()) and not overwrite:
        raise DataError(f"{output} is not empty; give another directory, or --overwrite to write into it.")
    console = Console(stderr=True)
    classifier = UncertaintyClassifier.from_pretrained(
        model, method=method, calibrated=False, seed=seed, max_length=max_length, windows=windows
    )
    if label_order is not None:
        classifier.rename_classes([name.strip() for name in label_order.split(",")])
    classes = classifier.class_names or tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    layout = Layout(text=text, pair=text_pair, options=options, label=label, codes=classes)
    rows = read_labelled(data, layout, classes, format=format, strict=strict)
    with console.status(f"Scoring {len(rows.texts):,} rows …"):
        classifier.calibrate(
            rows.texts,
            rows.labels,
            target_risk=target_risk,
            target_coverage=target_coverage,
            threshold=threshold,
            confidence=confidence,
            score=score,
            calibrator=calibrator,
            label_sets=label_sets,
            tolerance=tolerance,
            budget=budget,
            seed=seed,
        )
    classifier.save_pretrained(output)
    rows.write_rejects(output / "rejects.jsonl")
    _tell(console, classifier, len(rows.rejects), output)


def _tell(console: Console, classifier: "UncertaintyClassifier", rejected: int, output: Path) -> None:
    calibration = classifier.calibration_
    assert calibration is not None
    lines = calibration.describe()
    if calibration.rule is None:
        lines.append("No rule to abstain by was asked for; --target-risk 0.05 makes one.")
    if rejected:
        lines.append(f"{rejected:,} rows rejected; line numbers and reasons are in {output / 'rejects.jsonl'}")
    if calibration.figures is not None:
        lines.append(f"On {calibration.figures.basis}:")
        lines += ["  " + "  ".join(cell.ljust(24) for cell in row).rstrip() for row in calibration.figures.table()]
    for line in [*lines, f"Wrote {output}"]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
