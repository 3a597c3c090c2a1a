"""Fine-tune a backbone on labelled rows with the Hugging Face Trainer.

`accelerate launch` runs it on several devices as it is: each process calls `fine_tune`, and the first one writes.
"""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor
from transformers import EarlyStoppingCallback, PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from uatlite.backbone import method_weights
from uatlite.errors import ConfigurationError
from uatlite.training import runs
from uatlite.training.fitting import PLAIN, Fitting
from uatlite.training.head import with_new_head
from uatlite.training.isolation import isolated
from uatlite.training.progress import Report, Reporter
from uatlite.training.recipe import Recipe
from uatlite.training.rows import TrainingRows, classes, collate, kind_of, training_rows
from uatlite.training.trainer import AfterStep, FittingTrainer
from uatlite.values import Dataset

EVALUATION_BATCH = 64


def fine_tune(
    backbone: str | Path,
    train: Dataset,
    directory: str | Path,
    *,
    validation: Dataset | None = None,
    recipe: Recipe | None = None,
    seed: int = 0,
    fitting: Fitting = PLAIN,
    resume: bool = False,
    checkpoint_steps: int | None = None,
    report: Report | None = None,
) -> runs.Trained:
    """Fine-tune `backbone` ('minilm', a directory, a hub id) on the training rows and save it in `directory`.

    The seed decides the new head, the order of rows and dropout. Checkpoints are kept every `checkpoint_steps`
    steps, or after every epoch; `resume` goes on from the last one and ends with the weights of a run that was never
    interrupted; a finished one is left as it is. Validation rows are scored after every epoch, and end the run early if
    the recipe has a `patience`. `fitting` is what a method changes about all this.
    """
    recipe, directory = recipe or Recipe(), Path(directory)
    fitting.check(recipe)
    run = runs.Run.of(backbone, train, validation, recipe, seed, fitting.identity)
    if resume and (trained := runs.finished(directory, run)) is not None:
        return trained
    arguments = _arguments(directory, recipe, seed, checkpoint_steps, evaluates=validation is not None)
    goes_on = resume and runs.is_begun(directory, run)
    if not goes_on:
        runs.begin(directory, run)
    model, tokenizer = with_new_head(backbone, classes(train), kind=kind_of(train), seed=seed)
    rows = training_rows(train, model, tokenizer, recipe.max_length)
    watched = None if validation is None else training_rows(validation, model, tokenizer, recipe.max_length)
    fitting.prepare(model, seed)
    with isolated():
        trainer = FittingTrainer(
            fitting, model, arguments, collate, train_dataset=rows, eval_dataset=watched, processing_class=tokenizer
        )
        trainer.add_callback(AfterStep(fitting, model))
        _call_back(trainer, recipe, report)
        outcome = trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir) if goes_on else None)
        nll = None if watched is None else float(trainer.evaluate()["eval_loss"])
        fitting.finish(model.eval(), lambda: batches(rows))
        _save(trainer, model, directory)
    trained = runs.Trained(
        run=run,
        rows=len(rows),
        source=train.source,
        steps=outcome.global_step,
        seconds=outcome.metrics["train_runtime"],
        train_loss=outcome.training_loss,
        validation_nll=nll,
    )
    if trainer.is_world_process_zero():
        runs.finish(directory, trained)
    return trained


def batches(rows: TrainingRows) -> Iterator[dict[str, Tensor]]:
    """The rows in batches of like length, with their labels."""
    for batch in rows.tokens.batches():
        yield collate([(rows, place) for place in batch.rows])


def _save(trainer: Trainer, model: PreTrainedModel, directory: Path) -> None:
    """Model and tokenizer, without the Trainer's own settings: they are a pickle, and the record says what they say."""
    trainer.save_model(str(directory))
    if trainer.is_world_process_zero():
        method_weights.write(model, directory)
        (directory / "training_args.bin").unlink(missing_ok=True)


def _call_back(trainer: Trainer, recipe: Recipe, report: Report | None) -> None:
    """Who is told of each step: the caller's report instead of the Trainer's printing, and the early stop."""
    trainer.remove_callback(PrinterCallback)
    if report is not None:
        trainer.add_callback(Reporter(report))
    if recipe.patience is not None:
        trainer.add_callback(EarlyStoppingCallback(recipe.patience))


def _arguments(
    directory: Path, recipe: Recipe, seed: int, checkpoint_steps: int | None, *, evaluates: bool
) -> TrainingArguments:
    stops_early = recipe.patience is not None
    if stops_early and checkpoint_steps is not None:
        raise ConfigurationError("with a patience checkpoints are kept after every epoch; drop checkpoint_steps.")
    return TrainingArguments(
        output_dir=str(directory / runs.CHECKPOINTS),
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        lr_scheduler_type="linear",
        optim="adamw_torch",
        per_device_train_batch_size=recipe.batch_size,
        per_device_eval_batch_size=EVALUATION_BATCH,
        num_train_epochs=recipe.epochs,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.clip,
        train_sampling_strategy="group_by_length" if recipe.group_by_length else "random",
        seed=seed,
        eval_strategy="epoch" if evaluates else "no",
        save_strategy=_save_strategy(recipe, checkpoint_steps),
        save_steps=checkpoint_steps or 500,  # read with save_strategy="steps" only
        save_total_limit=2,
        load_best_model_at_end=stops_early,
        metric_for_best_model="eval_loss" if stops_early else None,
        greater_is_better=False if stops_early else None,
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )


def _save_strategy(recipe: Recipe, checkpoint_steps: int | None) -> str:
    """After so many steps or every epoch; a checkpoint at the end of the only epoch would be of no use to anyone."""
    if checkpoint_steps is not None:
        return "steps"
    return "epoch" if recipe.epochs > 1 or recipe.patience is not None else "no"
