"""Labelled rows as the Trainer reads them: tokens once, padding when a batch is drawn.

How far a fine-tuning is, told to whoever draws it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_pt_utils import get_length_grouped_indices

from uatlite.errors import DataError
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.text.schema import Kind
from uatlite.values import Choices, Dataset


@dataclass(frozen=True, eq=False)
class TrainingRows(torch.utils.data.Dataset["tuple[TrainingRows, int]"]):
    """Tokens and labels, (rows,) each. An item is a place in them; `collate` makes a padded batch of several."""

    tokens: Tokens
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> "tuple[TrainingRows, int]":
        return self, place


def collate(items: Sequence[tuple[TrainingRows, int]]) -> dict[str, Tensor]:
    """The model's inputs (batch, [choices,] tokens), as wide as their longest sequence, and `labels` (batch,)."""
    source = items[0][0]
    places = [place for _, place in items]
    return {**source.tokens.pad(places), "labels": torch.tensor([source.labels[place] for place in places])}


class LengthGrouped(torch.utils.data.Sampler[int]):
    """Rows in an order that puts like lengths into one batch, another one in each epoch.

    The order is a function of seed and epoch (the data loader calls `set_epoch`), so that a resumed run sees the
    batches that it would have seen; the sampler of transformers draws from torch's global state.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths, self._batch_size, self._seed = list(lengths), batch_size, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(2**20 * self._seed + self._epoch)
        return iter(get_length_grouped_indices(self._lengths, self._batch_size, generator=generator))


def training_rows(
    dataset: Dataset, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> TrainingRows:
    """The in-scope rows of a data set as tokens; a row without a label is an error."""
    inside = dataset.in_scope()
    column = {dataset.labels.index(label): place for place, label in enumerate(classes(dataset))}
    labels = []
    for example in inside.examples:
        if example.label is None:
            raise DataError(f"{dataset.name}/{dataset.split}: row {example.id} has no label; training needs them all.")
        labels.append(column[example.label])
    if not labels:
        raise DataError(f"{dataset.name}/{dataset.split} holds no row to train on.")
    return TrainingRows(tokenize(tokenizer, inside.texts, longest(model, tokenizer, max_length)), tuple(labels))


def classes(dataset: Dataset) -> tuple[str, ...]:
    """The labels that a classifier of the data set has a column for: all but 'none of these'."""
    return tuple(label for index, label in enumerate(dataset.labels) if index != dataset.out_of_scope)


def kind_of(dataset: Dataset) -> Kind:
    """What the texts of a data set are, by the first of them."""
    first = dataset.examples[0].text
    if isinstance(first, Choices):
        return "choice"
    return "text" if isinstance(first, str) else "pair"


@dataclass(frozen=True)
class Step:
    """The run after `done` of `total` optimizer steps; `loss` is the mean over the steps since the last report."""

    done: int
    total: int
    loss: float | None = None
    validation_nll: float | None = None


Report = Callable[[Step], None]


def step_counter(advance: Callable[[float], None]) -> Report:
    """A report that tells a progress bar how many steps were taken since it was last told."""
    done = 0

    def report(step: Step) -> None:
        nonlocal done
        advance(step.done - done)
        done = step.done

    return report


class Reporter(TrainerCallback):  # type: ignore[misc]
    """Calls `report` after every step, and with the validation NLL after every evaluation."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._loss: float | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._report(Step(state.global_step, state.max_steps, self._loss))

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, float], **_: Any) -> None:
        self._loss = logs.get("loss", self._loss)

    def on_evaluate(self, args: Any, state: Any, control: Any, *, metrics: dict[str, float], **_: Any) -> None:
        self._report(Step(state.global_step, state.max_steps, self._loss, metrics.get("eval_loss")))
