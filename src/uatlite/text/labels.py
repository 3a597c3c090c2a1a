"""Label names: which column of a model's output is which class of a task, and which class a given label is.

Labels are matched by name, never by position. Two names are the same when they fold to the same form: case, '-', '_'
and spaces do not count, and synonyms (labels.toml) are one name. A permutation found by name is applied and reported;
anything else is an error that shows both lists.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import DataError, InputError, nearest
from uatlite.text.schema import Task, read_tables
from uatlite.values import Integers

SYNONYMS: dict[str, str] = read_tables(Path(__file__).with_suffix(".toml"))
_PLACEHOLDER = re.compile(r"label[ _-]?(\d+)", re.IGNORECASE)


@lru_cache(maxsize=4096)  # called for every row, on the few names that a task has
def fold(name: str) -> str:
    """The form by which names are compared: 'Not_Entailment' and 'non-entailment' both give 'non entailment'.

    The placeholder of transformers, 'LABEL_3', gives '3', the number of the class.
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
    ...). `out_of_scope` is a task label that the model need not have; it is then left out of the result.
    """
    names = _model_names(id2label, label_order)
    column = {fold(name): index for index, name in enumerate(names)}
    wanted = [label for label in task_labels if label != out_of_scope or fold(label) in column]
    if len(column) != len(names) or {fold(label) for label in wanted} != set(column):
        raise DataError(_mismatch(task_labels, names))
    return tuple(column[fold(label)] for label in wanted)


def align_task(task: Task, id2label: Mapping[int, str], *, label_order: Sequence[str] | None = None) -> Alignment:
    """How the model's classes become those of `task`, with a note to print: what was done and why."""
    if task.layout.options is not None:  # the classes are the options of each question: no names to compare
        columns = tuple((index,) for index in range(len(task.labels)))
        return Alignment(columns, task.labels, "options in the order of the question")
    if task.collapse and len(id2label) == len(task.collapse):  # finer classes are summed
        order = align_labels(tuple(task.collapse), id2label, label_order=label_order)
        column = dict(zip(task.collapse, order, strict=True))
        finer = [[name for name, into in task.collapse.items() if into == label] for label in task.labels]
        summed = tuple(tuple(column[name] for name in names) for names in finer)
        sums = "; ".join(f"{' + '.join(names)} → {label}" for names, label in zip(finer, task.labels, strict=True))
        return Alignment(summed, task.labels, f"classes summed after softmax: {sums}")
    order = align_labels(task.labels, id2label, label_order=label_order, out_of_scope=task.out_of_scope)
    labels = tuple(label for label in task.labels if label != task.out_of_scope or len(order) == len(task.labels))
    columns = tuple((col,) for col in order)
    if order == tuple(range(len(order))):
        return Alignment(columns, labels, "labels in the model's order")
    moved = ", ".join(f"{label} = column {col}" for label, col in zip(labels, order, strict=True))
    return Alignment(columns, labels, f"the model's columns are reordered by name: {moved}")


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
    both = f"task: {listing(task_labels, 12)}; model: {listing(names, 12)}"
    if all(_PLACEHOLDER.fullmatch(name) for name in names):
        return (
            f"The model's labels are placeholders that do not name the classes ({both}). "
            "Set model.config.id2label, or name its classes in its order: --label-order "
            f"{','.join(task_labels[: len(names)])}"
        )
    return (
        f"The model's labels are not the task's ({both}). "
        "If they mean the same, name the model's classes in its order with --label-order."
    )


def listing(names: Sequence[str], most: int = 8) -> str:
    """The first names, for an error: 'a, b, c, …'."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


@dataclass(frozen=True)
class LabelIndex:
    """Which class a label means, by its name or its number in `codes`; see `label_index`."""

    labels: tuple[str, ...]
    codes: tuple[str, ...] = ()

    @cached_property
    def classes(self) -> Mapping[str, int]:
        """Folded name -> class; two labels that count as the same name are an error."""
        classes = {fold(label): i for i, label in enumerate(self.labels)}
        if len(classes) != len(self.labels):
            raise DataError(f"Two labels count as the same name: {', '.join(self.labels)}.")
        return classes

    def find(self, name: str, column: str | None) -> int:
        """The class of a label in a file; a whole number that is no name is looked up in `codes`."""
        if self.codes and name.isdecimal() and fold(name) not in self.classes:
            if int(name) >= len(self.codes):
                raise InputError(f"label {name} in column {column!r}, where there are 0 to {len(self.codes) - 1}")
            name = self.codes[int(name)]
        if fold(name) not in self.classes:
            raise InputError(f"unknown label {name!r} in column {column!r}; allowed are {listing(self.labels)}")
        return self.classes[fold(name)]

    def column(self, label: object, i: int) -> int:
        """The column of a model's output that `labels[i]` means, by its name or as that column."""
        if isinstance(label, int) and 0 <= label < len(self.labels):
            return int(label)
        if not isinstance(label, str) or fold(label) not in self.classes:
            raise InputError(
                f"labels[{i}] is {label!r}; allowed are the model's classes ({listing(self.labels)}) "
                f"or their columns, 0 to {len(self.labels) - 1}.{nearest(label, self.labels)}"
            )
        return self.classes[fold(label)]


label_index = lru_cache(maxsize=64)(LabelIndex)
"""`LabelIndex`, kept for the rows to come."""


def option_names(options: int) -> tuple[str, ...]:
    """The names of the classes of a multiple choice: A, B, C, ..."""
    return tuple(ascii_uppercase[:options])


def class_indices(labels: Iterable[Any], classes: Sequence[str]) -> Integers:
    """Labels (rows,) as columns of the model: whole numbers are columns, names are compared by `fold`."""
    given = np.asarray(labels if hasattr(labels, "__array__") else list(labels))
    if given.ndim != 1:
        raise InputError(f"labels have the shape {given.shape}; give one label for each text, (rows,).")
    index = LabelIndex(tuple(classes))
    return np.array([index.column(label, i) for i, label in enumerate(given.tolist())], dtype=np.int64)


def label_matrix(labels: Any, classes: Sequence[str]) -> NDArray[np.bool_]:
    """Label sets as a matrix (rows, labels): from lists of names or columns, or from rows of 0 and 1.

    Rows that are all as long as there are classes, with nothing but 0 and 1 in them, are such a matrix. A row may be
    empty: no label applies.
    """
    rows = list(labels)
    for i, row in enumerate(rows):
        if isinstance(row, str) or not hasattr(row, "__iter__"):
            raise InputError(
                f"labels[{i}] is {row!r:.60}; allowed is a list of labels for each text, which may be empty, or a "
                f"row of 0 and 1 for the {len(classes)} labels."
            )
    rows = [list(row) for row in rows]
    flags = (not isinstance(value, str) and value in (0, 1) for row in rows for value in row)
    if rows and all(len(row) == len(classes) for row in rows) and all(flags):
        return np.array(rows, dtype=np.float64) > 0
    matrix = np.zeros((len(rows), len(classes)), dtype=np.bool_)
    index = LabelIndex(tuple(classes))
    for i, row in enumerate(rows):
        matrix[i, [index.column(label, i) for label in row]] = True
    return matrix
