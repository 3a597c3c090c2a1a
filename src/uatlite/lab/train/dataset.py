"""Training rows, from a task or a user's file, and the batches of tokens that the Trainer draws from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import get_length_grouped_indices

from uatlite.errors import ConfigurationError, DataError
from uatlite.model.tokens import Tokens, longest, tokenize
from uatlite.scoring.blocks import LabelledRows, read_labelled
from uatlite.text.examples import find_layout, require_columns
from uatlite.text.gold import tags_for, tags_of_spans
from uatlite.text.rows import read_rows
from uatlite.text.schema import Layout
from uatlite.text.tasks import check_source, labels_in, load, sample, take_share, unless_default
from uatlite.text.write import row_writer
from uatlite.values import Choices, Dataset, Example, Kind, Words, strings

NO_TAG = -100
"""The target of a token that is not trained on: the index that cross-entropy leaves out."""
HELD_OUT, REJECTS = "held-out.jsonl", "rejects.jsonl"


@dataclass(frozen=True)
class TrainingData:
    """The rows to train on, those that early stopping watches, and the held-out rows and rejects of a user's file."""

    train: Dataset
    validation: Dataset | None = None
    held_out: Dataset | None = None
    layout: Layout | None = None
    file: LabelledRows | None = None

    def write(self, directory: Path) -> list[str]:
        """Write the rows that were not trained on beside the model; returns a sentence about each file."""
        notes = []
        if self.held_out is not None and self.layout is not None:
            path = directory / HELD_OUT
            columns = [column for column in (self.layout.text, self.layout.pair) if column]
            with row_writer(path) as write:
                for example in self.held_out.examples:
                    texts = [list(example.text.tokens)] if isinstance(example.text, Words) else strings(example.text)
                    row = dict(zip(columns, texts, strict=False))
                    write({**row, str(self.layout.label): gold_of(example, self.held_out.labels, self.layout)})
            pair = f" --text-pair {self.layout.pair}" if self.layout.pair else ""
            notes.append(
                f"{len(self.held_out):,} rows were held out. Calibrate on them: uatlite calibrate {directory} {path} "
                f"--text {self.layout.text}{pair} --label {self.layout.label} -o DIR"
            )
        if self.file is not None and self.file.rejects:
            self.file.write_rejects(directory / REJECTS)
            notes.append(
                f"{len(self.file.rejects):,} rows rejected; line numbers and reasons are in {directory / REJECTS}"
            )
        return notes


def training_data(
    task: str | None,
    data: Path | None,
    layout: Layout,
    *,
    data_dir: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    early_stopping: bool = False,
    **options: Any,
) -> TrainingData:
    """The rows of a task, or of a user's file; `layout` and `options` are for `file_data`.

    Early stopping watches the calibration split of a task.
    """
    only = {name: options.get(name) for name in ("validation", "label_order")}
    check_source(task, data, **unless_default(layout), **only)
    if data is not None:
        return file_data(data, layout, limit=limit, seed=seed, early_stopping=early_stopping, **options)
    validation = load(str(task), "calibration", data_dir) if early_stopping else None
    return TrainingData(load(str(task), "train", data_dir, limit=limit, seed=seed), validation)


def file_data(
    path: Path,
    layout: Layout,
    *,
    label_order: Sequence[str] | None = None,
    held_out: float = 0.2,
    validation: Path | None = None,
    limit: int | None = None,
    seed: int = 0,
    early_stopping: bool = False,
    strict: bool = False,
) -> TrainingData:
    """A user's labelled file as training rows; the share `held_out` of it is kept for calibration.

    `label_order` gives the classes of the model in order; without it they are read from the file, numbers in their
    order and names in alphabetical order. Early stopping watches the rows of the file `validation`, or else the
    held-out rows. Unusable rows are set aside, or with `strict` an error.
    """
    if not 0 <= held_out < 1:
        raise ConfigurationError(f"--held-out {held_out} is not allowed: a share from 0 to below 1, as in 0.2.")
    if next(iter(read_rows(path)), None) is None:
        raise DataError(f"{path} holds no row; give a file with a text and a label in every row.")
    layout = find_layout(read_rows(path), layout)
    labels = tuple(label_order or labels_in(require_columns(read_rows(path), layout), layout, strict=False))
    layout = replace(layout, codes=labels)
    rows = read_labelled(str(path), layout, labels, strict=strict)
    whole = _dataset(path, "train", labels, rows)
    cut = round(100 * (1 - held_out))
    train = replace(
        whole,
        examples=tuple(sample(take_share(whole.examples, (0, cut)), limit, seed)),
        source=f"{path.name}, {cut} % of {len(whole):,} rows",
    )
    rest = tuple(take_share(whole.examples, (cut, 100))) if cut < 100 else ()
    kept = replace(whole, split="held-out", examples=rest) if rest else None
    there = answers_in(train)
    for label in labels:
        if label not in there:
            raise DataError(
                f"{path}: none of the {len(train):,} rows to train on has the label {label!r}. Add rows of it, or "
                "train on more of the file: a lower --held-out, a higher --limit."
            )
    watched = kept if early_stopping else None
    if validation is not None:
        others = read_labelled(str(validation), layout, labels, strict=strict)
        watched = _dataset(validation, "validation", labels, others)
    return TrainingData(train, watched, kept, layout, rows)


def _dataset(path: Path, split: str, labels: tuple[str, ...], rows: LabelledRows) -> Dataset:
    golds: dict[str, list[Any]] = {"label": rows.labels, "entities": rows.entities, "labels": rows.label_sets}
    [(name, gold)] = [(name, gold) for name, gold in golds.items() if gold]
    pairs = enumerate(zip(rows.texts, gold, strict=True))
    examples = tuple(Example(str(place), text, **{name: one}) for place, (text, one) in pairs)
    return Dataset(path.name.split(".")[0], split, labels, examples, path.name)


def answers_in(dataset: Dataset) -> set[str]:
    """The labels, or types of entities, that some row has."""
    types = {span.label for example in dataset.examples for span in example.entities or ()}
    places = {place for example in dataset.examples for place in example.labels or ()} | set(dataset.gold)
    return types | {dataset.labels[place] for place in places if place is not None}


def gold_of(example: Example, labels: Sequence[str], layout: Layout) -> object:
    """The gold of a row as the label column of its file has it."""
    if layout.gold == "tags" and isinstance(example.text, Words):
        return tags_of_spans(example.text.spans, example.entities or ())
    if layout.gold == "entities":
        return [span._asdict() for span in example.entities or ()]
    if layout.gold == "labels":
        return [labels[place] for place in example.labels or ()]
    return labels[example.label or 0]


@dataclass(frozen=True, eq=False)
class TrainingRows(torch.utils.data.Dataset["tuple[TrainingRows, int]"]):
    """Tokens and labels, (rows,) each. An item is a place in them; `collate` makes a padded batch of several.

    The labels of a row are its class, or 0 or 1 for each of several labels, or a tag for each of its tokens.
    """

    tokens: Tokens
    labels: tuple[int, ...] | tuple[list[float], ...] | tuple[list[int], ...]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> "tuple[TrainingRows, int]":
        return self, place

    def batches(self) -> Iterator[dict[str, Tensor]]:
        """All rows in batches of similar length, with their labels."""
        for batch in self.tokens.batches():
            yield collate([(self, place) for place in batch.rows])


def training_rows(
    dataset: Dataset, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int | None
) -> TrainingRows:
    """The in-scope rows of a data set as tokens; a row without a label is an error."""
    kind, most = kind_of(dataset), longest(model, tokenizer, max_length)
    if kind in ("labels", "entities"):
        tokens = tokenize(tokenizer, dataset.texts, most)
        return TrainingRows(tokens, token_tags(dataset, tokens) if kind == "entities" else label_vectors(dataset))
    inside = dataset.in_scope()
    column = {dataset.labels.index(label): place for place, label in enumerate(classes(dataset))}
    labels = []
    for example in inside.examples:
        if example.label is None:
            raise DataError(f"{dataset.name}/{dataset.split}: row {example.id} has no label; training needs them all.")
        labels.append(column[example.label])
    if not labels:
        raise DataError(f"{dataset.name}/{dataset.split} holds no row to train on.")
    return TrainingRows(tokenize(tokenizer, inside.texts, most), tuple(labels))


def label_vectors(dataset: Dataset) -> tuple[list[float], ...]:
    """1.0 for each label that a row has and 0.0 for the others: the target of the binary cross-entropy."""
    vectors = []
    for example in dataset.examples:
        if example.labels is None:
            raise _no_gold(dataset, example)
        vectors.append([float(place in example.labels) for place in range(len(dataset.labels))])
    return tuple(vectors)


def token_tags(dataset: Dataset, tokens: Tokens) -> tuple[list[int], ...]:
    """The column of the IOB2 tag at the first token of each word, and NO_TAG at all other tokens.

    Words are those of the tokenizer, which may cut a word of the data into several (at punctuation, say), as it also
    does with the strings that the model will meet.
    """
    column = {tag: place for place, tag in enumerate(classes(dataset))}
    found = []
    for example, (features,) in zip(dataset.examples, tokens.rows, strict=True):
        if example.entities is None:
            raise _no_gold(dataset, example)
        firsts = first_tokens(tokens.tokenizer, strings(example.text)[0], len(features["input_ids"]))
        tags = tags_of_spans(list(firsts.values()), example.entities)
        row = [NO_TAG] * len(features["input_ids"])
        for position, tag in zip(firsts, tags, strict=True):
            row[position] = column[tag]
        found.append(row)
    return tuple(found)


def first_tokens(tokenizer: Any, text: str, length: int) -> dict[int, tuple[int, int]]:
    """For each word of the tokenizer, the position of its first token and the word's characters (start, end).

    The words of the first `length` tokens, special tokens counted.
    """
    if not tokenizer.is_fast:
        raise ConfigurationError(
            f"training on entities needs a fast tokenizer, which knows the characters of its tokens, and "
            f"{type(tokenizer).__name__} is not one; choose another backbone."
        )
    encoded = tokenizer(text, truncation=True, max_length=length, return_offsets_mapping=True, verbose=False)
    firsts: dict[int, tuple[int, int]] = {}
    before, position = None, 0
    for place, (word, (start, end)) in enumerate(zip(encoded.word_ids(), encoded["offset_mapping"], strict=True)):
        if word is None or start == end:
            continue
        if word != before:
            before, position = word, place
            firsts[place] = start, end
        else:
            firsts[position] = firsts[position][0], end
    return firsts


def _no_gold(dataset: Dataset, example: Example) -> DataError:
    return DataError(f"{dataset.name}/{dataset.split}: row {example.id} has no label; training needs them all.")


def collate(items: Sequence[tuple[TrainingRows, int]]) -> dict[str, Tensor]:
    """The model's inputs (batch, [choices,] tokens), as wide as their longest sequence, and `labels`.

    Labels are (batch,), (batch, labels) as floats, or (batch, tokens) with NO_TAG at the padding.
    """
    source = items[0][0]
    places = [place for _, place in items]
    inputs = source.tokens.pad(places)
    labels: list[Any] = [source.labels[place] for place in places]
    if isinstance(labels[0], list) and isinstance(labels[0][0], int):
        width = inputs["input_ids"].shape[1]
        labels = [row + [NO_TAG] * (width - len(row)) for row in labels]
    return {**inputs, "labels": torch.tensor(labels)}


class LengthGrouped(torch.utils.data.Sampler[int]):
    """Draws rows of similar length into one batch, in a new order each epoch.

    The order is a function of seed and epoch (the data loader calls `set_epoch`), so a resumed run sees the batches
    that it would have seen. The sampler of transformers draws from torch's global state.
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


def classes(dataset: Dataset) -> tuple[str, ...]:
    """What a classifier of the data set has columns for: its labels but 'none of these', or the tags of its types."""
    if kind_of(dataset) == "entities":
        return tags_for(dataset.labels)
    return tuple(label for index, label in enumerate(dataset.labels) if index != dataset.out_of_scope)


def kind_of(dataset: Dataset) -> Kind:
    """What the rows of a data set are, by the first of them."""
    first = dataset.examples[0]
    if first.entities is not None:
        return "entities"
    if first.labels is not None:
        return "labels"
    return "choice" if isinstance(first.text, Choices) else "one"
