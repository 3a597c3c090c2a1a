"""Fine-tuning on a task or on a file, and better answers from unlabelled texts."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

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


def refine(
    checkpoint: Annotated[str, Argument(help="Fine-tuned classifier that is taught: a directory or a hub id.")],
    texts: Annotated[str, Option(help=f"Unlabelled texts of the task. {shared.INPUT_HELP}")],
    output: Annotated[Path, Option("--output", "-o", help="Directory for the student.")],
    teacher: Annotated[list[str] | None, Option(help="Classifier that teaches (may be repeated), or itself.")] = None,
    teacher_method: Annotated[
        str | None, Option(help="Method that teaches, as in uat; base or a teacher's own.")
    ] = None,
    held_out: Annotated[str | None, Option(help="Labelled rows that say whether it is better.")] = None,
    force: Annotated[bool, Option("--force", help="Write a student that is worse too.")] = False,
    seed: Annotated[int, Option(help="Seed of the order of texts, dropout and passes.")] = 0,
    device: shared.Device = "auto",
    text: shared.KnownText = None,
    text_pair: shared.PairColumn = None,
    options: shared.Options = None,
    label: shared.KnownLabel = None,
    learning_rate: Annotated[float | None, shared.in_recipe(help="Peak learning rate; 5e-5.")] = None,
    epochs: Annotated[int | None, shared.in_recipe(help="Times through all texts; 1. Held-out rows choose.")] = None,
    max_length: Annotated[int | None, shared.in_recipe(help="Longest text in tokens.")] = None,
    precision: shared.Precision = None,
) -> None:
    """Teach a classifier its own or others' probabilities on unlabelled texts; exit code 5 if it is worse by held-out
    rows, and not written."""
    from uatlite.classifier.classifiers import load
    from uatlite.lab import refine as refining
    from uatlite.lab.train.recipe import recipe_for
    from uatlite.scoring.source import Source
    from uatlite.text.schema import Layout

    console, rows = shared.messages(), None
    changes = shared.given(learning_rate=learning_rate, epochs=epochs, max_length=max_length, precision=precision)
    recipe, product = replace(recipe_for("refine"), **changes), load(checkpoint, calibrated=False, device="cpu")
    source, asked = Source(texts), {"text": text, "pair": text_pair, "options": options}
    layout = source.text_layout(source.layout(Layout(label=None), asked, product.columns), product.kind.name)
    given = source.texts(layout)
    if held_out is not None:
        labelled = Source(held_out).labelled_for(product, {**asked, "label": label})
        rows = labelled.texts, labelled.gold
    del product
    taught = {"teachers": teacher or (), "teacher_method": teacher_method, "seed": seed, "device": device}
    with shared.resumable(console, f"What was done is kept in {output}"), StageBar(console) as bar:
        refined = refining.refine(
            checkpoint, given, output, held_out=rows, force=force, progress=bar, recipe=recipe, **taught
        )
    console.print(*refined.describe(), *([f"Wrote {output}"] if refined.written else []), sep="\n")
    if not refined.written:
        raise Exit(shared.NO_PROMISE)
