"""Fine-tuning on a task or on a file."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar

TRAIN_EXAMPLES = """
[bold]Examples[/bold]

  uatlite train --data reviews.csv --text body --label stars --recipe few-rows -o my-model

  uatlite train --task sst2 --backbone bert-base-uncased -o my-model

  uatlite train --task sst2 --method swag:rank=20 -o my-swag

  uatlite train --data names.conll --recipe few-rows -o my-tagger

A fifth of your own file is not trained on but written to DIR/held-out.jsonl, to calibrate on:

  uatlite calibrate my-model my-model/held-out.jsonl --text body --label stars -o my-classifier
"""


def train(
    output: Annotated[Path, Option("--output", "-o", help="Directory for the classifier.")],
    backbone: Annotated[str, Option(help="Model to start from: minilm, a directory or a hub id.")] = "minilm",
    method: Annotated[str, Option(help="Method to train for, as in swag:rank=20; see 'uatlite methods'.")] = "base",
    recipe: Annotated[str, Option(help="paper; few-rows or demo for a few thousand rows on a CPU.")] = "paper",
    seed: Annotated[int, Option(help="Seed of the new head, the order of rows and dropout.")] = 0,
    resume: Annotated[bool, Option("--resume", help="Continue from the last checkpoint in DIR.")] = False,
    base: Annotated[
        list[Path] | None,
        Option(help="Finished plain training of the same settings, reused by ensemble (may be repeated) and laplace."),
    ] = None,
    checkpoint_steps: Annotated[
        int | None, Option(help="Keep a checkpoint every N steps; by default each epoch.")
    ] = None,
    task: shared.TaskName = None,
    data: Annotated[
        Path | None, shared.in_data(help="Your own labelled rows instead: JSONL, CSV, TSV, Parquet or CoNLL.")
    ] = None,
    held_out: Annotated[float, shared.in_data(help="Share of --data not to train on, for calibration.")] = 0.2,
    limit: Annotated[int | None, shared.in_data(help="Train on N rows, drawn by --seed.")] = None,
    data_dir: shared.DataDir = None,
    strict: shared.Strict = False,
    text: shared.TextColumn = "text",
    text_pair: shared.PairColumn = None,
    label: shared.Label = "label",
    label_order: shared.LabelOrder = None,
    learning_rate: Annotated[float | None, shared.in_recipe(help="Peak learning rate.")] = None,
    warmup_steps: Annotated[int | None, shared.in_recipe(help="Steps of warm-up.")] = None,
    batch_size: Annotated[int | None, shared.in_recipe(help="Rows of a batch.")] = None,
    epochs: Annotated[int | None, shared.in_recipe(help="Times through all rows.")] = None,
    max_length: Annotated[int | None, shared.in_recipe(help="Longest text in tokens.")] = None,
    precision: shared.Precision = None,
    device: shared.Device = "auto",
) -> None:
    """Fine-tune a classifier on a task or on your own file."""
    from uatlite.lab.evaluate.plan import parse_names
    from uatlite.lab.train.recipe import recipe_for
    from uatlite.text.schema import Layout

    changes = shared.given(
        learning_rate=learning_rate, warmup_steps=warmup_steps, batch_size=batch_size, epochs=epochs,
        max_length=max_length, precision=precision,
    )  # fmt: skip
    chosen = replace(recipe_for(recipe, task), **changes)
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.lab.train.dataset import RowChoice
        from uatlite.lab.train.fine_tune import fine_tune, steps
        from uatlite.lab.train.methods import parse_training
        from uatlite.lab.train.recipe import TrainingJob

        training = parse_training(method)
        rows = RowChoice(
            task,
            data,
            Layout(text=text, pair=text_pair, label=label),
            data_dir=data_dir,
            label_order=parse_names(label_order),
            held_out=held_out,
            limit=limit,
            seed=seed,
            strict=strict,
        ).rows()
    job = TrainingJob(backbone, rows.train, chosen, seed, checkpoint_steps, device)
    with StageBar(console) as bar:
        bases = base or []
        bar.begin(f"training {training.name}", steps(training, job, len(bases)))
        record = fine_tune(job, output, training, bases=bases, resume=resume, advance=bar.advance)
    console.print(f"Wrote {output}: {record.describe()}", *rows.write(output), sep="\n")
