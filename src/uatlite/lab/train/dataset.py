"""Training rows, from a task or a user's file, and the batches of tokens that the Trainer draws from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import LengthGroupedSampler

from uatlite.errors import ConfigurationError, DataError
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.text.gold import GOLD, tags_for, tags_of_spans
from uatlite.text.rows import Reject, read_rows
from uatlite.text.schema import Layout
from uatlite.text.tasks import check_source, load, sample, take_share, task_from_file, unless_default
from uatlite.text.write import row_writer, write_rejects
from uatlite.values import Choices, Dataset, Kind, Words, counted, strings

NO_TAG = -100
"""The target of a token that is not trained on: the index that cross-entropy leaves out."""
HELD_OUT, REJECTS = "held-out.jsonl", "rejects.jsonl"


@dataclass(frozen=True)
class TrainingData:
    """The rows to train on, and the held-out rows and rejects of a user's file."""

    train: Dataset
    held_out: Dataset | None = None
    layout: Layout = field(default_factory=Layout)
    rejects: Sequence[Reject] = ()

    def write(self, directory: Path) -> list[str]:
        """Write the rows that were not trained on beside the model; returns a sentence about each file."""
        notes = []
        if self.held_out is not None:
            path, layout = directory / HELD_OUT, self.layout
            gold, columns = GOLD[layout.kind], [column for column in (layout.text, layout.pair) if column]
            with row_writer(path) as write:
                for example in self.held_out.examples:
                    texts = [list(example.text.tokens)] if isinstance(example.text, Words) else strings(example.text)
                    row = dict(zip(columns, texts, strict=False))
                    write({**row, str(layout.label): gold.write(example, self.held_out.labels, layout)})
            pair = f" --text-pair {layout.pair}" if layout.pair else ""
            notes.append(
                f"{counted(len(self.held_out), 'row was', 'rows were')} held out. Calibrate on them: uatlite calibrate "
                f"{directory} {path} --text {layout.text}{pair} --label {layout.label} -o DIR"
            )
        return notes + write_rejects(directory / REJECTS, self.rejects)


@dataclass(frozen=True)
class RowChoice:
    """Which rows to train on: those of a task, or those of a user's labelled file with this layout.

    Of a file the share `held_out` is kept for calibration. `label_order` gives the classes of the model in order;
    without it they are read from the file, numbers in their order and names in alphabetical order. Unusable rows are
    set aside, or with `strict` an error.
    """

    task: str | None
    data: Path | None
    layout: Layout
    data_dir: Path | None = None
    limit: int | None = None
    seed: int = 0
    label_order: Sequence[str] | None = None
    held_out: float = 0.2
    strict: bool = False

    def rows(self) -> TrainingData:
        """The rows; a file is read once."""
        check_source(self.task, self.data, **unless_default(self.layout), label_order=self.label_order)
        if self.data is not None:
            return self._of_file(self.data)
        return TrainingData(load(str(self.task), "train", self.data_dir, limit=self.limit, seed=self.seed))

    def _of_file(self, path: Path) -> TrainingData:
        if not 0 <= self.held_out < 1:
            raise ConfigurationError(
                f"--held-out {self.held_out} is not allowed: a share from 0 to below 1, as in 0.2."
            )
        rows = list(read_rows(path))
        if not rows:
            raise DataError(f"{path} holds no row; give a file with a text and a label in every row.")
        task = task_from_file(path, self.layout, self.label_order, rows=rows, strict=False)
        task = replace(task, layout=replace(task.layout, codes=task.labels))
        rejects: list[Reject] = []
        data = load(task, "all", rows=rows, rejects=rejects)
        if self.strict and rejects:
            raise DataError(f"{rejects[0].as_error()} Without --strict such rows are listed and skipped.")
        cut = round(100 * (1 - self.held_out))
        train = replace(
            data,
            split="train",
            examples=tuple(sample(take_share(data.examples, (0, cut)), self.limit, self.seed)),
            source=f"{path.name}, {cut} % of {len(data):,} rows",
        )
        check_labels(train, path)
        kept = tuple(take_share(data.examples, (cut, 100))) if cut < 100 else ()
        held_out = replace(data, split="held-out", examples=kept, source=path.name) if kept else None
        return TrainingData(train, held_out, task.layout, rejects)


def check_labels(train: Dataset, path: Path) -> None:
    """Raise where a label, or a type of entities, is that of no row."""
    types = {span.label for example in train.examples for span in example.entities or ()}
    columns = {i for example in train.examples for i in example.labels or ()} | set(train.gold)
    for i, label in enumerate(train.labels):
        if label not in types and i not in columns:
            raise DataError(
                f"{path}: none of the {len(train):,} rows to train on has the label {label!r}. Add rows of it, or "
                "train on more of the file: a lower --held-out, a higher --limit."
            )


Labels = tuple[int, ...] | tuple[list[float], ...] | tuple[list[int], ...] | list[NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class TrainingRows(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Tokens and labels, (rows,) each, from which a data loader draws whole batches.

    The labels of a row are its class, or 0 or 1 for each of several labels, or a tag for each of its tokens.
    """

    tokens: Tokens
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """The model's inputs (batch, [choices,] tokens), as wide as their longest sequence, and `labels`.

        Labels are (batch,), (batch, labels) as floats, or (batch, tokens) with NO_TAG at the padding; probabilities
        are (batch, answers, classes), 0 at the padding.
        """
        inputs = self.tokens.pad(rows)
        labels: list[Any] = [self.labels[i] for i in rows]
        if isinstance(labels[0], np.ndarray):
            return {**inputs, "labels": pad_sequence([torch.from_numpy(row) for row in labels], batch_first=True)}
        if isinstance(labels[0], list) and isinstance(labels[0][0], int):
            width = inputs["input_ids"].shape[1]
            labels = [row + [NO_TAG] * (width - len(row)) for row in labels]
        return {**inputs, "labels": torch.tensor(labels)}

    __getitems__ = batch  # what a data loader asks for

    def batches(self) -> Iterator[dict[str, Tensor]]:
        """All rows in batches of similar length, with their labels."""
        return (self.batch(batch.rows) for batch in self.tokens.batches())


def training_rows(
    dataset: Dataset, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> TrainingRows:
    """The in-scope rows of a data set as tokens; a row without a label is an error."""
    kind, inside = kind_of(dataset), dataset.in_scope()
    name = f"{dataset.name}/{dataset.split}"
    for example in inside.examples:
        if getattr(example, GOLD[kind].field) is None:
            raise DataError(f"{name}: row {example.id} has no label; training needs them all.")
    if not inside.examples:
        raise DataError(f"{name} holds no row to train on.")
    tokens = tokenize(tokenizer, inside.texts, longest(model, tokenizer, max_length))
    return TrainingRows(tokens, TARGETS[kind].of(inside, tokens))


def class_columns(dataset: Dataset, tokens: Tokens) -> tuple[int, ...]:
    """The column of each row's class: the target of the cross-entropy."""
    columns = {dataset.labels.index(label): i for i, label in enumerate(classes(dataset))}
    return tuple(columns[label] for label in dataset.gold if label is not None)


def label_vectors(dataset: Dataset, tokens: Tokens) -> tuple[list[float], ...]:
    """1.0 for each label that a row has and 0.0 for the others: the target of the binary cross-entropy."""
    return tuple(
        [float(i in (example.labels or ())) for i in range(len(dataset.labels))] for example in dataset.examples
    )


def token_tags(dataset: Dataset, tokens: Tokens) -> tuple[list[int], ...]:
    """The column of the IOB2 tag at the first token of each word, and NO_TAG at all other tokens.

    Words are those of the tokenizer, which may cut a word of the data into several (at punctuation, say), as it also
    does with the strings that the model will meet.
    """
    tokenizer: Any = tokens.tokenizer
    if not tokenizer.is_fast:
        raise ConfigurationError(
            f"training on entities needs a fast tokenizer, which knows the characters of its tokens, and "
            f"{type(tokenizer).__name__} is not one; choose another backbone."
        )
    columns = {tag: i for i, tag in enumerate(classes(dataset))}
    rows = []
    for example, (features,) in zip(dataset.examples, tokens.rows, strict=True):
        text, row = strings(example.text)[0], [NO_TAG] * len(features["input_ids"])
        encoded = tokenizer(text, truncation=True, max_length=len(row), return_offsets_mapping=True, verbose=False)
        words: dict[int, tuple[int, int, int]] = {}  # word -> its first token, and its characters
        for i, (word, (start, end)) in enumerate(zip(encoded.word_ids(), encoded["offset_mapping"], strict=True)):
            if word is not None and start != end:
                first, begin, _ = words.get(word, (i, start, end))
                words[word] = first, begin, end
        places = [(start, end) for _, start, end in words.values()]
        for (i, _, _), tag in zip(words.values(), tags_of_spans(places, example.entities or ()), strict=True):
            row[i] = columns[tag]
        rows.append(row)
    return tuple(rows)


class LengthGrouped(LengthGroupedSampler):  # type: ignore[misc]
    """Draws rows of similar length into one batch, in a new order each epoch.

    The order is a function of seed and epoch (the data loader calls `set_epoch`), so a resumed run sees the batches
    that it would have seen. The sampler of transformers draws on from where the last epoch ended.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        super().__init__(batch_size, lengths=list(lengths), generator=torch.Generator())
        self._seed, self._epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(2**20 * self._seed + self._epoch)
        order: Iterator[int] = super().__iter__()
        return order


@dataclass(frozen=True)
class Target:
    """What a classifier of one kind of answers is trained towards."""

    of: Callable[[Dataset, Tokens], Labels]
    """what the loss compares the logits of each row with"""
    classes: Callable[[Dataset], tuple[str, ...]]
    """what the classifier has columns for"""
    base_rates: bool = False
    """whether the biases of a new head begin at the log-odds of the labels"""


def _without_scope(dataset: Dataset) -> tuple[str, ...]:
    return tuple(label for i, label in enumerate(dataset.labels) if i != dataset.out_of_scope)


_CLASS = Target(class_columns, _without_scope)

TARGETS: Mapping[Kind, Target] = {
    "one": _CLASS,
    "choice": _CLASS,
    "labels": Target(label_vectors, _without_scope, base_rates=True),
    "entities": Target(token_tags, lambda dataset: tags_for(dataset.labels)),
}


def classes(dataset: Dataset) -> tuple[str, ...]:
    """What a classifier of the data set has columns for: its labels but 'none of these', or the tags of its types."""
    return TARGETS[kind_of(dataset)].classes(dataset)


def kind_of(dataset: Dataset) -> Kind:
    """The kind of gold that the rows of a data set have, by the first of them."""
    first = dataset.examples[0]
    if first.entities is not None:
        return "entities"
    if first.labels is not None:
        return "labels"
    return "choice" if isinstance(first.text, Choices) else "one"
