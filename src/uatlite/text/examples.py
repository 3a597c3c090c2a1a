"""Label names: which column of a model's output is which class of a task.

Names decide, never positions. Two names are the same when they fold to the same form: case, '-', '_' and
spaces do not count, and the synonyms below are one name. A permutation found by name is applied and
reported; anything else is an error that shows both lists.

From a row to an example, by a layout: the texts, the label, and what is wrong with a row that has none.

One row's fault is an InputError with the reason alone. `read_examples` turns it into a Reject with file and
line; tasks, which must be whole, turn it into a DataError.

What a user hands in, checked: the texts, and the labels as names or numbers.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import DataError, InputError, nearest
from uatlite.text.rows import Reject, Row, excerpt, read_rows
from uatlite.text.schema import Layout, Task
from uatlite.values import Choices, Example, Text, strings

# folded name -> the folded name that it means
SYNONYMS = {
    "neg": "negative",
    "pos": "positive",
    "entail": "entailment",
    "entailed": "entailment",
    "contradict": "contradiction",
    "not entailment": "non entailment",
    "not entailed": "non entailment",
    "nonentailment": "non entailment",
    "out of scope": "oos",
    "has answer": "answerable",
    "no answer": "unanswerable",
    "not answerable": "unanswerable",
}
_PLACEHOLDER = re.compile(r"label[ _-]?(\d+)", re.IGNORECASE)


@lru_cache(maxsize=4096)  # called for every row, on the few names that a task has
def fold(name: str) -> str:
    """The form by which names are compared: 'Not_Entailment' and 'non-entailment' both give 'non entailment'.

    transformers' placeholder 'LABEL_3' gives '3': it says class number 3 and nothing more.
    """
    if placeholder := _PLACEHOLDER.fullmatch(name.strip()):
        return placeholder[1]
    folded = " ".join(re.split(r"[\s_-]+", name.strip().casefold())).strip()
    return SYNONYMS.get(folded, folded)


@dataclass(frozen=True)
class Alignment:
    """How a model's classes become a task's: class `labels[i]` is the sum of the model's columns `columns[i]`.

    A permutation has one column each; HANS sums neutral and contradiction into non-entailment. `labels` are the
    task's, without the out-of-scope one where the model does not know it.
    """

    columns: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    note: str

    def apply(self, probabilities: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """Probabilities after softmax, (..., model classes), as (..., labels)."""
        return np.stack([probabilities[..., list(columns)].sum(-1) for columns in self.columns], -1)


def align_labels(
    task_labels: Sequence[str],
    id2label: Mapping[int, str],
    *,
    label_order: Sequence[str] | None = None,
    out_of_scope: str | None = None,
) -> tuple[int, ...]:
    """The model's column for each task label, by name: `logits[..., list(order)]` is in the task's order.

    `label_order` names the model's classes, in the model's order, where its own id2label does not (LABEL_0,
    ...). `out_of_scope` is a task label that the model need not have; it is left out of the answer then.
    """
    names = _model_names(id2label, label_order)
    column = {fold(name): index for index, name in enumerate(names)}
    wanted = [label for label in task_labels if label != out_of_scope or fold(label) in column]
    if len(column) != len(names) or {fold(label) for label in wanted} != set(column):
        raise DataError(_mismatch(task_labels, names))
    return tuple(column[fold(label)] for label in wanted)


def align_task(task: Task, id2label: Mapping[int, str], *, label_order: Sequence[str] | None = None) -> Alignment:
    """How the model's classes become those of `task`, with a note to print: what was done and why."""
    if task.kind == "choice":  # the classes are the options of each question: there are no names to compare
        own = tuple((index,) for index in range(len(task.labels)))
        return Alignment(own, task.labels, "options in the order of the question")
    if task.collapse and len(id2label) == len(task.collapse):
        order = align_labels(tuple(task.collapse), id2label, label_order=label_order)
        return _collapsed(task, order)
    order = align_labels(task.labels, id2label, label_order=label_order, out_of_scope=task.out_of_scope)
    known = tuple(label for label in task.labels if label != task.out_of_scope or len(order) == len(task.labels))
    columns = tuple((col,) for col in order)
    if order == tuple(range(len(order))):
        return Alignment(columns, known, "labels in the model's order")
    moved = ", ".join(f"{label} = column {col}" for label, col in zip(known, order, strict=True))
    return Alignment(columns, known, f"the model's columns are reordered by name: {moved}")


def _collapsed(task: Task, order: Sequence[int]) -> Alignment:
    """The finer classes of a model, at the columns `order`, summed into those of the task."""
    column = dict(zip(task.collapse, order, strict=True))
    finer = [[name for name, into in task.collapse.items() if into == label] for label in task.labels]
    columns = tuple(tuple(column[name] for name in names) for names in finer)
    sums = "; ".join(f"{' + '.join(names)} → {label}" for names, label in zip(finer, task.labels, strict=True))
    return Alignment(columns, task.labels, f"classes summed after softmax: {sums}")


def _model_names(id2label: Mapping[int, str], label_order: Sequence[str] | None) -> tuple[str, ...]:
    """The model's class names by column. A config that went through JSON has its keys as strings."""
    names = {int(key): str(name) for key, name in id2label.items()}
    if sorted(names) != list(range(len(names))):
        raise DataError(f"id2label has the keys {sorted(names)}; they must be 0 to {len(names) - 1}.")
    if label_order is None:
        return tuple(names[index] for index in range(len(names)))
    if len(label_order) != len(names):
        raise DataError(f"label_order={','.join(label_order)} names {len(label_order)} of {len(names)} classes.")
    return tuple(label_order)


def _mismatch(task_labels: Sequence[str], names: Sequence[str]) -> str:
    both = f"task: {_listing(task_labels)}; model: {_listing(names)}"
    if all(_PLACEHOLDER.fullmatch(name) for name in names):
        return (
            f"The model's labels are placeholders that say nothing about the classes ({both}). "
            "Set model.config.id2label, or name its classes in its order: --label-order "
            f"{','.join(task_labels[: len(names)])}"
        )
    return (
        f"The model's labels are not the task's ({both}). "
        "If they mean the same, name the model's classes in its order with --label-order."
    )


def _listing(names: Sequence[str], most: int = 12) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


LOOK_AHEAD = 100  # rows of a JSONL file that may lack a column before the column counts as missing


def read_examples(
    source: str | Path, layout: Layout, labels: Sequence[str] | None = None, *, format: str | None = None
) -> Iterator[Example | Reject]:
    """Examples from a file, a directory or standard input, as a stream; rows that cannot be used are Rejects.

    Without `labels` no label is read. A row without an id is named by its place, 'reviews.csv:17'; `meta`
    says file and line, and holds the layout's `meta` columns.
    """
    index = label_index(labels) if labels is not None else None
    rows = require_columns(read_rows(source, format=format), layout, with_label=index is not None)
    return (row if isinstance(row, Reject) else _example_or_reject(row, layout, index) for row in rows)


def _example_or_reject(row: Row, layout: Layout, index: Mapping[str, int] | None) -> Example | Reject:
    try:
        example = example_of(row.values, layout, index, unnamed=f"{row.file}:{row.line}")
    except InputError as error:
        return Reject(row.file, row.line, str(error), excerpt(row.values))
    return replace(example, meta={"file": row.file, "line": row.line} | dict(example.meta))


def example_of(
    values: Mapping[str, object],
    layout: Layout,
    index: Mapping[str, int] | None,
    *,
    unnamed: str | None = None,
) -> Example:
    """The example that a row is, or an InputError with what is wrong with it. Without `index` no label is read.

    A row without an id is called `unnamed`, or by the hash of its words.
    """
    text = text_of(values, layout)
    label = label_of(values, layout, index) if index is not None else None
    if isinstance(text, Choices) and label is not None and label >= len(text.options):
        raise InputError(f"the label is option {label + 1} of {len(text.options)}")
    name = id_of(values, layout) or unnamed or content_key(text)[:16]
    return Example(name, text, label, meta_of(values, layout))


def require_columns(rows: Iterable[Row | Reject], layout: Layout, *, with_label: bool = True) -> Iterator[Row | Reject]:
    """The same rows; a column that none of the first of them has is an error that lists those there are."""
    needed = [layout.text, layout.pair, layout.options, layout.label if with_label else None, layout.group]
    missing = dict.fromkeys(column for column in needed if column is not None)
    there: dict[str, None] = {}
    ahead: list[Row | Reject] = []
    rows = iter(rows)
    for row in rows:
        ahead.append(row)
        if isinstance(row, Row):
            there |= dict.fromkeys(row.values)
            missing = {column: None for column in missing if not has_column(row.values, column)}
        if not missing or len(ahead) == LOOK_AHEAD:
            break
    if missing and there:
        column = next(iter(missing))
        hint = nearest(column, there)
        raise DataError(f"There is no column {column!r}; the columns are: {', '.join(there)}.{hint}")
    return chain(ahead, rows)


def has_column(values: Mapping[str, object], column: str) -> bool:
    """Whether the row has the column, or the nested one that a dotted name reaches."""
    if column in values:
        return True
    outer, _, inner = column.partition(".")
    nested = values.get(outer)
    return bool(inner) and isinstance(nested, Mapping) and has_column(nested, inner)


def value_at(values: Mapping[str, object], column: str) -> object:
    """The value of a column, dotted or not; None where there is none."""
    if column in values:
        return values[column]
    outer, _, inner = column.partition(".")
    nested = values.get(outer)
    return value_at(nested, inner) if inner and isinstance(nested, Mapping) else None


def text_of(values: Mapping[str, object], layout: Layout) -> Text:
    """The text that the layout makes of a row: a string, a pair, or a question with its options."""
    first = _string(values, layout.text, layout)
    if layout.options is not None:
        return Choices(first, _options(value_at(values, layout.options), layout))
    return first if layout.pair is None else (first, _string(values, layout.pair, layout))


def _string(values: Mapping[str, object], column: str, layout: Layout) -> str:
    value = value_at(values, column)
    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        value = " ".join(value)  # an abstract in sections
    return _clean(value, f"column {column!r}", layout)


def _clean(value: object, place: str, layout: Layout) -> str:
    if value is None:
        raise InputError(f"no text in {place}")
    if not isinstance(value, str):
        raise InputError(f"{place} holds a {type(value).__name__}, not text")
    for markup, instead in layout.replace:
        value = value.replace(markup, instead)
    value = value.strip()
    if not value:
        raise InputError(f"no text in {place}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place} holds half a surrogate pair, which is not text") from error
    return value


def _options(value: object, layout: Layout) -> tuple[str, ...]:
    """A list, or an object in the order of its keys; CSV and TSV write either as JSON."""
    place = f"column {layout.options!r}"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"{place} is not a list or an object in JSON") from error
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value) if value[key] is not None]
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise InputError(f"{place} does not hold two or more options")
    return tuple(_clean(option, f"an option in {place}", layout) for option in value)


def label_index(labels: Sequence[str]) -> dict[str, int]:
    """Folded label name -> class."""
    index = {fold(label): position for position, label in enumerate(labels)}
    if len(index) != len(labels):
        raise DataError(f"Two of the labels are one name: {', '.join(labels)}.")
    return index


def label_of(values: Mapping[str, object], layout: Layout, index: Mapping[str, int]) -> int:
    """The class of a row. An integer is looked up in the layout's codes where it has them, else a name."""
    if layout.label is None:
        raise InputError("no label column")
    value = value_at(values, layout.label)
    if layout.presence is not None:
        return index[fold(layout.presence[0 if value else 1])]
    name = label_name(value)
    if layout.codes and name.isdecimal() and fold(name) not in index:
        code = int(name)
        if code >= len(layout.codes):
            raise InputError(f"label {code} in column {layout.label!r}, where there are 0 to {len(layout.codes) - 1}")
        name = layout.codes[code]
    if fold(name) not in index:
        raise InputError(f"unknown label {name!r} in column {layout.label!r}")
    return index[fold(name)]


def label_name(value: object) -> str:
    """A label as a name: text as it is, whole numbers and truth values as their digits and words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return str(int(value))
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError("no label")
    if not isinstance(value, str):
        raise InputError(f"the label is a {type(value).__name__} ({value!r}), not a name or a whole number")
    return value.strip()


def id_of(values: Mapping[str, object], layout: Layout) -> str | None:
    """The row's own id, where its layout names a column for it and the row has one."""
    value = value_at(values, layout.id) if layout.id is not None else None
    return None if value is None or value == "" else str(value)


def meta_of(values: Mapping[str, object], layout: Layout) -> dict[str, object]:
    return {column: value_at(values, column) for column in layout.meta if has_column(values, column)}


def content_key(text: Text) -> str:
    """32 hex digits that depend on the words of a text alone: not on its place, its file or its spacing."""
    words = "\x1f".join(" ".join(part.split()) for part in strings(text))  # split() drops \x1f: it can mark the joints
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def check_texts(texts: Iterable[object], *, chooses: bool, options: int | None = None) -> list[Text]:
    """The texts as a list, each of them one that the model can take; else an error that names the first that is not.

    `chooses` says whether the model is one for multiple choice, `options` how many options its questions have.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, even of one: [text].")
    if isinstance(texts, tuple):
        raise InputError(
            "texts is a tuple, which could be one pair or two texts; give a list: [(premise, hypothesis)] or [a, b]."
        )
    if not isinstance(texts, Iterable):
        raise InputError(f"texts is a {type(texts).__name__}; give a list of texts.")
    # NumPy arrays and pandas columns as Python's own; a row of a two-column array becomes a list, a pair.
    listed: list[Any] = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    checked: list[Text] = [tuple(text) if isinstance(text, list) else text for text in listed]
    for place, text in enumerate(checked):
        if options is None and isinstance(text, Choices):
            options = len(text.options)
        if fault := text_fault(text, chooses=chooses, options=options):
            raise InputError(f"texts[{place}]: {fault}.")
    return checked


def as_text(first: str, second: str | None = None, options: Sequence[str] = ()) -> Text:
    """A text from its strings: alone, with a second as a pair, or with options as a question."""
    if options and second is not None:
        raise InputError("a second text and options were given together; a question has options, a pair has none.")
    if options:
        return Choices(first, tuple(options))
    return first if second is None else (first, second)


def check_text(text: object, *, chooses: bool, options: int | None = None) -> Text:
    """One text that the model can take; else an error that says why it cannot."""
    one: Any = tuple(text) if isinstance(text, list) else text
    if fault := text_fault(one, chooses=chooses, options=options):
        raise InputError(f"this is {fault}.")
    found: Text = one
    return found


def text_fault(text: object, *, chooses: bool, options: int | None = None) -> str | None:
    """Why the model cannot take this text, in a few words; None where it can."""
    if isinstance(text, Choices):
        if not chooses:
            return "a question with options, and the model is none for multiple choice"
        if not 2 <= len(text.options) <= len(ascii_uppercase):
            return f"{len(text.options)} options, where 2 to {len(ascii_uppercase)} are allowed"
        if options is not None and len(text.options) != options:
            return f"{len(text.options)} options, where the other questions have {options}"
    elif not isinstance(text, str) and not (
        isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)
    ):
        return f"{text!r:.80} is not a text; allowed are a string, a pair of strings, or Choices(question, options)"
    elif chooses:
        return "no options, and the model is one for multiple choice; give Choices(question, options)"
    if not all(part.strip() for part in strings(text)):
        return "an empty text; drop it, or say what stands for a missing text"
    return None


def option_names(options: int) -> tuple[str, ...]:
    """What the classes of a multiple choice are called: A, B, C, ..."""
    return tuple(ascii_uppercase[:options])


def class_indices(labels: Iterable[Any], classes: Sequence[str]) -> NDArray[np.int64]:
    """Labels (rows,) as columns of the model: whole numbers are columns, names are compared by `fold`."""
    given = np.asarray(labels if hasattr(labels, "__array__") else list(labels))
    if given.ndim != 1:
        raise InputError(f"labels have the shape {given.shape}; give one label for each text, (rows,).")
    if given.size == 0:
        return np.zeros(0, dtype=np.int64)
    if given.dtype.kind in "iub":
        indices = given.astype(np.int64)
        outside = indices[(indices < 0) | (indices >= len(classes))]
        if outside.size:
            raise InputError(
                f"label {outside[0]} is not a column of the model, 0 to {len(classes) - 1} ({_some(classes)})."
            )
        return indices
    index = label_index(classes)
    return np.array(
        [_index_of(label, index, classes, place) for place, label in enumerate(given.tolist())], dtype=np.int64
    )


def _index_of(label: object, index: dict[str, int], classes: Sequence[str], place: int) -> int:
    if isinstance(label, int) and 0 <= label < len(classes):  # whole numbers in an array of objects
        return int(label)
    if not isinstance(label, str) or fold(label) not in index:
        raise InputError(
            f"labels[{place}] is {label!r}; allowed are the model's classes ({_some(classes)}) "
            f"or their columns, 0 to {len(classes) - 1}.{nearest(label, classes)}"
        )
    return index[fold(label)]


def _some(classes: Sequence[str], most: int = 8) -> str:
    return ", ".join(classes[:most]) + (", …" if len(classes) > most else "")
