"""Fine-tune a backbone on labelled rows with the Hugging Face Trainer, in one process, for any method."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import (
    AutoConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from uatlite.codec import dump
from uatlite.errors import ConfigurationError, ModelError
from uatlite.lab.train.dataset import TARGETS, LengthGrouped, TrainingRows, classes, kind_of, training_rows
from uatlite.lab.train.recipe import (
    CHECKPOINTS,
    PLAIN,
    RECORD,
    MethodTraining,
    Recipe,
    TrainingJob,
    TrainingRecord,
    TrainingRun,
    finished,
    read_finished,
)
from uatlite.model import weights as method_weights
from uatlite.model.architectures import HEADS
from uatlite.model.device import check_precision, find_device
from uatlite.model.load import backbone_directory, load_checkpoint, load_tokenizer, quiet_transformers, safe_weights
from uatlite.model.plain import in_mode
from uatlite.model.weights import last_layer
from uatlite.text.tasks import sample
from uatlite.text.write import Pieces, write_record
from uatlite.values import Dataset, Kind

_DEVICE = "ACCELERATE_TORCH_DEVICE"
Advance = Callable[[float], None]
"""Called with the optimizer steps that were finished since the last call."""


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Restore the generators of Python, NumPy and torch and transformers' logging at the end, also after an error.

    The Trainer seeds all generators and changes the log level. Inside, accelerate uses the device.
    """
    told = os.environ.get(_DEVICE)
    os.environ[_DEVICE] = str(device)
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state is what is kept
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with torch.random.fork_rng(), quiet_transformers(), current:
        try:
            yield
        finally:
            del os.environ[_DEVICE]
            os.environ.update({} if told is None else {_DEVICE: told})
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def with_new_head(
    backbone: str | Path, labels: tuple[str, ...], *, kind: Kind = "one", seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The backbone ('minilm', a directory or a hub id) with a head for these labels, and its tokenizer.

    The head is drawn by `seed` without touching torch's generators; an existing head of another size is replaced. The
    labels are written into the configuration, so that columns are later found by name.
    """
    source = backbone_directory(backbone)
    head = HEADS[kind]
    auto: Any = getattr(transformers, head.auto)
    try:
        config = AutoConfig.from_pretrained(source)
        if head.named:
            config.id2label = dict(enumerate(labels))
            config.label2id = {label: index for index, label in enumerate(labels)}
            config.problem_type = head.problem
        with torch.random.fork_rng(), quiet_transformers():
            torch.manual_seed(seed)
            model = auto.from_pretrained(
                safe_weights(source),
                config=config,
                use_safetensors=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
            )
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelError(
            f"{backbone} cannot be fine-tuned: {reason}. Give 'minilm', the directory of a saved model with "
            "safetensors weights, or a hub id."
        ) from error
    return model, load_tokenizer(source, config)


def start_at_base_rates(model: PreTrainedModel, train: Dataset) -> None:
    """Set the biases of a new head of many labels to the log-odds of the labels' shares of the training rows.

    From 0 all logits first fall together. At high learning rates that saturates the pooler, and the model gives every
    text the base rates and learns no more. A head that has biases already is left as it is.
    """
    bias = last_layer(model)[1].bias
    if bias is None or bool(bias.any()):
        return
    given = [label for example in train.examples for label in example.labels or ()]
    counts = np.bincount(np.array(given, dtype=np.int64), minlength=len(train.labels))
    log_odds = np.log((counts + 0.5) / (len(train) - counts + 0.5))
    with torch.no_grad():
        bias.copy_(torch.from_numpy(log_odds))


@dataclass
class OneDevice(TrainingArguments):  # type: ignore[misc]
    """Arguments of a training on one device.

    The Trainer's own spread each batch over all GPUs of the machine, which makes a batch of 16 one of 16 on each.
    """

    chosen: str = "cpu"

    @property
    def device(self) -> torch.device:
        _ = super().device  # prepares accelerate
        return torch.device(self.chosen)

    @property
    def n_gpu(self) -> int:
        return int(self.device.type == "cuda")


class MethodTrainer(Trainer):  # type: ignore[misc]
    """The Trainer with the penalty, parameter groups and learning rates of a method.

    It also draws batches of similar length if the recipe says so: the Trainer itself cannot read the lengths of our
    tokens.
    """

    lr_scheduler: Any

    def __init__(self, training: MethodTraining, recipe: Recipe, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._training, self._recipe = training, recipe

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if not self._recipe.group_by_length:
            return super()._get_train_sampler(train_dataset)
        rows: TrainingRows = self.train_dataset
        return LengthGrouped(rows.tokens.lengths, self.args.train_batch_size, self.args.seed)

    def compute_loss(self, model: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, *arguments, **options)
        return loss + self._training.penalty(self.model, len(self.train_dataset))

    def create_optimizer(self, model: Any = None) -> Any:
        if self.optimizer is not None:
            return self.optimizer
        optimizer: Any = super().create_optimizer(model)
        for group in self._training.groups(self.model):
            moved = {id(parameter) for parameter in group["params"]}
            for other in optimizer.param_groups:
                other["params"] = [parameter for parameter in other["params"] if id(parameter) not in moved]
            optimizer.add_param_group(group)
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            warmup = self.args.get_warmup_steps(num_training_steps)
            rate = partial(self._training.schedule, warmup=warmup, total=num_training_steps)
            self.lr_scheduler = LambdaLR(optimizer or self.optimizer, rate)
            self._created_lr_scheduler = True
        return self.lr_scheduler


class StepCallback(TrainerCallback):  # type: ignore[misc]
    """Calls `MethodTraining.after_step` and `advance` after every step."""

    def __init__(self, training: MethodTraining, advance: Advance) -> None:
        self._training, self._advance, self._done = training, advance, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.global_step == 0:
            self._training.after_step(model, 0, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._training.after_step(model, state.global_step, state.max_steps)
        self._advance(state.global_step - self._done)
        self._done = state.global_step


SEEDS_APART = 1000
"""Member i of seed s is trained with the seed s + 1000·i: the first is the plain model of that seed."""


def fine_tune(
    job: TrainingJob,
    directory: str | Path,
    training: MethodTraining = PLAIN,
    *,
    bases: Sequence[str | Path] = (),
    resume: bool = False,
    advance: Advance = lambda steps: None,
) -> TrainingRecord:
    """Fine-tune the backbone of a job into a directory; `training` is what a method does differently.

    `bases` are directories of finished plain fine-tunings with the same settings, the first one with the same seed.
    They are used where a method is built from such models, and not trained again: the first members of an ensemble,
    the model that laplace is fitted on. `resume` continues from the last checkpoint and ends with the weights of an
    uninterrupted run; a finished run is left as it is. `advance` gets the steps of the optimizer, finished ones too.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:  # they would multiply the batch of the recipe, and each would write into the same directory
        raise ConfigurationError(
            f"{processes} processes were started for one training, which runs in one: the recipe's batch and the "
            "record are those of one process. Use: accelerate launch --num_processes 1 -m uatlite train …, "
            "or plain uatlite train."
        )
    training.check(job)
    device = find_device(job.device)
    if job.recipe.precision == "bf16" and device.type != "cpu":
        check_precision("bf16", device)
    directory = Path(directory)
    members = _plain_records(training, job, [Path(base) for base in bases])
    seeds = [record.run.seed for record in members.values()]
    usual = seeds == [job.seed + SEEDS_APART * i for i in range(len(seeds))]
    run = job.run(training.identity if usual else f"{training.identity} of seeds {', '.join(map(str, seeds))}")
    if resume and (done := finished(directory, run)) is not None:
        advance(steps(training, job, len(bases)))
        return done
    checkpoints = Pieces(directory / CHECKPOINTS, record="run.json")
    resumed = resume and checkpoints.begun
    if not resumed:
        checkpoints.remove()
        checkpoints.begin(dump(run))
    elif differs := checkpoints.differences(dump(run)):
        raise ConfigurationError(
            f"{directory} holds a run with another {', '.join(differs)}; resume with the settings that it was begun "
            "with, or train into another directory."
        )
    with isolated(device):
        if training.from_plain:
            record = _of_members(training, job, directory, run, members, advance)
        else:
            record = _tuned(training, job, directory, run, resumed, advance)
    write_record(directory / RECORD, dump(record))
    checkpoints.remove()
    return record


def steps(training: MethodTraining, job: TrainingJob, bases: int = 0) -> int:
    """How many optimizer steps `fine_tune` takes with so many finished fine-tunings, on one device."""
    return max(0, training.fine_tunings - bases) * job.recipe.steps(len(job.train.in_scope()))


class Speed(NamedTuple):
    """What a backbone takes on a device."""

    step: float
    """seconds of an optimizer step"""
    sequence: float
    """seconds of a forward over one sequence, in batches"""
    size: int
    """bytes of its weights"""


def speed(job: TrainingJob, rounds: int = 2) -> Speed:
    """The speed of a job's backbone: medians of a few steps and forwards on random rows, in fp32; nothing is kept."""
    device, size = find_device(job.device), job.recipe.batch_size
    with isolated(device):
        model, tokenizer = with_new_head(job.backbone, classes(job.train), kind=kind_of(job.train), seed=job.seed)
        model.to(device)
        some = replace(job.train, examples=tuple(sample(job.train.in_scope().examples, rounds * size, job.seed)))
        rows = training_rows(some, model, tokenizer, job.recipe.max_length)
        batches = [rows.batch(range(i, min(i + size, len(rows)))) for i in range(0, len(rows), size)]
        optimizer = torch.optim.AdamW(model.parameters(), job.recipe.learning_rate)
        times: dict[bool, list[float]] = {True: [], False: []}
        for training, batch in product((True, False), [batches[0], *batches]):  # the first of each warms up
            inputs, started = {name: value.to(device) for name, value in batch.items()}, time.perf_counter()
            with in_mode(model, training=training), torch.set_grad_enabled(training):
                loss = model(**inputs).loss
            if training:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            float(loss.detach())  # waits for the device
            times[training].append(time.perf_counter() - started)
    step, forward = (float(np.median(taken[1:])) for taken in times.values())
    return Speed(step, forward / size, sum(weight.nbytes for weight in model.parameters()))


def _tuned(
    training: MethodTraining, job: TrainingJob, directory: Path, run: TrainingRun, resumed: bool, advance: Advance
) -> TrainingRecord:
    """Train the backbone once, with checkpoints in the directory, and save it there."""
    recipe, seed, kind = job.recipe, job.seed, kind_of(job.train)
    model, tokenizer = with_new_head(job.backbone, classes(job.train), kind=kind, seed=seed)
    if TARGETS[kind].base_rates:
        start_at_base_rates(model, job.train)
    rows = training_rows(job.train, model, tokenizer, recipe.max_length)
    training.prepare(model, seed)
    arguments = training_arguments(recipe, seed, directory / CHECKPOINTS, find_device(job.device), job.checkpoint_steps)
    tokens = {"train_dataset": rows, "processing_class": tokenizer}
    trainer = MethodTrainer(training, recipe, model, arguments, lambda batch: batch, **tokens)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(StepCallback(training, advance))
    outcome = trainer.train(resume_from_checkpoint=last_checkpoint(directory / CHECKPOINTS) if resumed else None)
    training.finish(model.eval(), rows.batches)
    _save(model, tokenizer, directory)
    return TrainingRecord(
        run=run,
        rows=len(rows),
        source=job.train.source,
        steps=outcome.global_step,
        seconds=outcome.metrics["train_runtime"],
        train_loss=outcome.training_loss,
    )


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    method_weights.write(model, directory)


def training_arguments(
    recipe: Recipe, seed: int, checkpoints: Path, device: torch.device, every: int | None = None
) -> TrainingArguments:
    """What the Trainer is told: a recipe, and where to keep a checkpoint every so many steps, or after each epoch."""
    strategy: dict[str, Any] = {"save_strategy": "epoch" if recipe.epochs > 1 else "no"}
    if every is not None:
        strategy = {"save_strategy": "steps", "save_steps": every}
    arguments = OneDevice(
        chosen=str(device),
        output_dir=str(checkpoints),
        seed=seed,
        learning_rate=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
        per_device_train_batch_size=recipe.batch_size,
        num_train_epochs=recipe.epochs,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.clip,
        bf16=recipe.precision == "bf16",
        use_cpu=device.type == "cpu",  # the Trainer takes bf16 on a CPU only if told that it is one
        **strategy,
        optim="adamw_torch_fused",
        save_total_limit=2,
        logging_steps=10,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)  # the arguments have made the first one current
    return arguments


def last_checkpoint(directory: Path) -> str | None:
    """The last complete checkpoint of a run; one that a kill left half written, without its last file, is removed."""
    for checkpoint in directory.glob("checkpoint-*"):
        if not (checkpoint / TRAINER_STATE_NAME).is_file():
            shutil.rmtree(checkpoint)
    return get_last_checkpoint(str(directory)) if directory.is_dir() else None


def _of_members(
    training: MethodTraining,
    job: TrainingJob,
    directory: Path,
    run: TrainingRun,
    members: dict[Path, TrainingRecord],
    advance: Advance,
) -> TrainingRecord:
    """Train the members that are missing, and save what the method makes of all as the model of the first of them."""
    for i in range(len(members), training.fine_tunings):
        home, member = directory / CHECKPOINTS / f"member-{i}", replace(job, seed=job.seed + SEEDS_APART * i)
        members[home] = fine_tune(member, home, resume=True, advance=advance)
    device = job.device if len(members) == 1 else "cpu"
    first, *others = (load_checkpoint(home, device=device) for home in members)

    def batches() -> Iterator[dict[str, Tensor]]:
        return training_rows(job.train, first.model, first.tokenizer, job.recipe.max_length).batches()

    training.finish(first.model, batches, [other.model for other in others])
    _save(first.model, first.tokenizer, directory)
    records = list(members.values())
    return TrainingRecord(
        run=run,
        rows=records[0].rows,
        source=records[0].source,
        steps=sum(record.steps for record in records),
        seconds=sum(record.seconds for record in records),
        train_loss=sum(record.train_loss for record in records) / len(records),
    )


def _plain_records(training: MethodTraining, job: TrainingJob, bases: Sequence[Path]) -> dict[Path, TrainingRecord]:
    """The plain fine-tunings in `bases`; an error if their settings differ or the method cannot use them."""
    if bases and not training.from_plain:
        raise ConfigurationError(
            f"{training.key} is trained from the backbone and cannot begin with {bases[0]}; train it without --base."
        )
    if len(bases) > training.fine_tunings:
        raise ConfigurationError(
            f"{len(bases)} fine-tunings are given with --base, and {training.name} is made of "
            f"{training.fine_tunings}; give fewer, or for an ensemble set members={len(bases)}."
        )
    records: dict[Path, TrainingRecord] = {}
    for base in bases:
        record = read_finished(base)
        seed = job.seed if record is None or not records else record.run.seed
        if record is None or record.run != replace(job, seed=seed).run(PLAIN.identity):
            raise ConfigurationError(
                f"{base} does not hold the plain fine-tuning of this backbone with these rows, recipe and seed; give "
                "its directory, or none to train it. Only the second and later ones may have another seed."
            )
        if any(other.run.seed == seed for other in records.values()):
            raise ConfigurationError(f"{base} has the seed {seed} of another --base; members must differ.")
        records[base] = record
    return records
