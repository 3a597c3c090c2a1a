"""Fine-tuning on a task or on a file."""

from dataclasses import replace
from pathlib import Path

from uatlite.cli import options as shared
from uatlite.cli.progress import StageBar


def train(
    output: Path,
    backbone: str = "minilm",
    method: str = "base",
    recipe: str = "paper",
    seed: int = 0,
    resume: bool = False,
    base: list[Path] | None = None,
    checkpoint_steps: int | None = None,
    task: str | None = None,
    data: Path | None = None,
    held_out: float = 0.2,
    validation: Path | None = None,
    limit: int | None = None,
    data_dir: Path | None = None,
    strict: bool = False,
    text: str = "text",
    text_pair: str | None = None,
    label: str = "label",
    label_order: str | None = None,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
    batch_size: int | None = None,
    epochs: int | None = None,
    max_length: int | None = None,
    patience: int | None = None,
    precision: str | None = None,
) -> None:
    """Fine-tune a classifier on a task or on your own file."""
    from uatlite.lab.evaluate.plan import parse_names
    from uatlite.lab.train.recipe import recipe_for
    from uatlite.text.schema import Layout

    changes = shared.given(
        learning_rate=learning_rate, warmup_steps=warmup_steps, batch_size=batch_size, epochs=epochs,
        max_length=max_length, patience=patience, precision=precision,
    )  # fmt: skip
    chosen = replace(recipe_for(recipe, task), **changes)
    console = shared.messages()
    with console.status("Loading …"):
        from uatlite.lab.train.dataset import training_data
        from uatlite.lab.train.fine_tune import steps, train_method
        from uatlite.lab.train.methods import parse_training
        from uatlite.lab.train.recipe import TrainingJob

        training = parse_training(method)
        rows = training_data(
            task,
            data,
            Layout(text=text, pair=text_pair, label=label),
            data_dir=data_dir,
            label_order=parse_names(label_order),
            held_out=held_out,
            validation=validation,
            limit=limit,
            seed=seed,
            early_stopping=chosen.patience is not None,
            strict=strict,
        )
    job = TrainingJob(backbone, rows.train, rows.validation, chosen, seed, checkpoint_steps)
    with StageBar(console) as bar:
        bases = base or []
        bar.begin(f"training {training.name}", steps(training, job, len(bases)))
        record = train_method(training, job, output, bases=bases, resume=resume, advance=bar.advance)
    console.print(f"Wrote {output}: {record.describe()}", *rows.write(output), sep="\n")
