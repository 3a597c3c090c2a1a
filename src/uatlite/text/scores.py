"""Scores of another classifier: which columns of a row hold them, and a row of them as what stands for its text.

    p_no, p_yes              probabilities; so are logit_no … logits and logprob_no … log-probabilities
    probs, logits, logprobs  one column: {"no": 0.2, "yes": 0.8}, or a list in the order of the classes
    predicted, confidence    a class, and how sure of it

Logits are taken as they are, all else becomes log-probabilities. Classes that a row leaves out share what is left of
its mass equally, each a little less likely than the least likely class that is given; a confidence is of one class, and
all others are left out. A probability of 0 counts as half of the smallest one that the calibration rows have above 0.
"""

import ast
import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from uatlite.errors import DataError, InputError
from uatlite.values import SUM_TOLERANCE, ScoredText, counted

Form = Literal["logit", "logprob", "p", "confidence"]
SPELT: dict[Form, str] = {
    "logit": "logits", "logprob": "log-probabilities", "p": "probabilities", "confidence": "a class and its confidence"
}  # fmt: skip
PACKED: dict[Form, tuple[str, ...]] = {
    "logit": ("logits",),
    "logprob": ("logprobs", "top_logprobs", "log_probs"),
    "p": ("probs", "probabilities", "scores"),
}
"""Form -> the names of one column that holds all of them; other forms have a column for each class, as p_yes."""
_PREDICTED, _CONFIDENCE = ("predicted", "prediction", "label"), ("confidence", "score", "probability")
LOGITS_COLUMN, EMBEDDING_COLUMN = WRITTEN = ("logits", "embedding")
"""The columns by which `predict` keeps a row of scores, and `recheck` reads it."""
_NAMES, _NUMBERS = ("label", "token"), ("score", "logprob", "probability")
"""What the entries of a list of objects call the class and its number."""


@dataclass(frozen=True, kw_only=True)
class ScoreColumns:
    """Where the scores of a row stand, and what they are of."""

    form: Form
    columns: tuple[str, ...]
    """one for each class, or one with all, or those of a class and its confidence"""
    classes: tuple[str, ...]
    embedding: str | None = None
    """the column of the text's embedding"""
    width: int = 0
    """of an embedding"""
    least: float = -math.inf
    """the logarithm of what a probability of 0 counts as"""

    @property
    def packed(self) -> bool:
        """Whether one column holds all scores."""
        return len(self.columns) == 1

    @property
    def kept(self) -> "ScoreColumns":
        """The same as `predict` keeps it."""
        return replace(self, form="logit", columns=(LOGITS_COLUMN,), embedding=self.embedding and EMBEDDING_COLUMN)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that a file must have."""
        return (*self.columns, *([self.embedding] if self.embedding else ()))

    def describe(self) -> str:
        """What is read, in one sentence."""
        vectors = f", with embeddings of {self.width} numbers ({self.embedding})" if self.embedding else ""
        columns = ", ".join(self.columns[:8]) + (", …" if len(self.columns) > 8 else "")
        return f"Scores: {SPELT[self.form]} of {len(self.classes)} classes ({columns}){vectors}."

    def matched(self, names: Collection[str]) -> "ScoreColumns":
        """Where they stand in a file with columns of these names; raises where it has scores of other classes, or in
        another form."""
        columns = self.kept if LOGITS_COLUMN in names else self
        if missing := [name for name in columns.needed if name not in names]:
            raise DataError(
                f"There is no column {missing[0]!r}; the columns are: {', '.join(names)}. At calibration: "
                f"{self.describe()} Scores of another model, or in another form, need a calibration of their own; "
                "embeddings are given by --embeddings, and kept by uatlite predict … --keep-text."
            )
        unseen = [name for name in names if name.startswith(f"{self.form}_") and name not in self.columns]
        if unseen and not columns.packed:
            raise DataError(
                f"The column {unseen[0]!r} is of a class that the calibration has never seen; it knows "
                f"{', '.join(self.classes)}. Calibrate again, on rows with that class."
            )
        return columns

    def read(self, values: Mapping[str, object], text: str = "") -> ScoredText:
        """A row; an InputError says why it cannot be used."""
        logits = self._logits(self._predicted(values) if self.form == "confidence" else self._cells(values))
        vector = b"" if self.embedding is None else _vector(values.get(self.embedding), self.embedding, self.width)
        return ScoredText(tuple(self.least if logit == -math.inf else logit for logit in logits), vector, text)

    def _predicted(self, values: Mapping[str, object]) -> list[float | None]:
        """The confidence of the predicted class; all others are left out."""
        name, column = str(values.get(self.columns[0], "")).strip(), self.columns[1]
        if name not in self.classes:
            raise InputError(f"{self.columns[0]} is {name!r}, which is none of {', '.join(self.classes)}")
        return [_number(values.get(column), column) if name == each else None for each in self.classes]

    def _cells(self, values: Mapping[str, object]) -> list[float | None]:
        """The number of each class in a row; None where the class is left out."""
        cells: Sequence[Any] = [values.get(name) for name in self.columns]
        if self.packed:
            cells = _listed(cells[0], self.columns[0])
            if isinstance(cells, Mapping):
                if unseen := [name for name in cells if name not in self.classes]:
                    listed = ", ".join(self.classes)
                    raise InputError(f"{self.columns[0]} has the class {unseen[0]!r}, which is none of {listed}")
                cells = [cells.get(name) for name in self.classes]
            elif len(cells) != len(self.classes):
                raise InputError(f"{self.columns[0]} has {len(cells)} numbers, for {len(self.classes)} classes")
        names = self.columns * (len(self.classes) if self.packed else 1)
        pairs = zip(cells, names, strict=True)
        row = [None if cell is None or cell == "" else _number(cell, name) for cell, name in pairs]
        for name, number in zip(self.classes, row, strict=True):
            if number is not None and not math.isfinite(number) and (self.form, number) != ("logprob", -math.inf):
                raise InputError(f"the score of {name!r} is {number}, not a finite number")
        return row

    def _logits(self, row: Sequence[float | None]) -> list[float]:
        """By class: logits as they are, or log-probabilities, with those of classes that are left out."""
        given = [number for number in row if number is not None]
        if not given or (self.form == "logit" and len(given) < len(row)):
            raise InputError(f"no score of {self.classes[row.index(None)]!r} in {', '.join(self.columns[:8])}")
        if self.form == "logit":
            return given
        logs = self.form == "logprob"
        if bad := [number for number in given if not (number <= SUM_TOLERANCE if logs else 0.0 <= number <= 1.001)]:
            what, wanted = ("log-probability", "above 0") if logs else ("probability", "not from 0 to 1")
            raise InputError(f"the {what} of {self.classes[row.index(bad[0])]!r} is {bad[0]:g}: {wanted}")
        probs = list(map(math.exp, given)) if logs else given
        total, missing = sum(probs), len(row) - len(given)
        incomplete = missing or logs  # a language model has other words too
        if total > 1.0 + SUM_TOLERANCE or (total < 1.0 - SUM_TOLERANCE and not incomplete):
            raise InputError(f"the probabilities sum to {total:.6g}, not to 1")
        # Less likely than what is given, so that a class with a confidence below chance is still the predicted one.
        filled = min(max(1.0 - total, 0.0) / missing, (1.0 - 1e-6) * min(probs)) if missing else 0.0
        return [_log(filled) if number is None else number if logs else _log(number) for number in row]


def find_columns(
    rows: Sequence[Mapping[str, object]], *, gold: str, order: Sequence[str] | None = None, embedding: str | None = None
) -> ScoreColumns:
    """The columns of calibration rows that hold scores; `order` names the classes, and `embedding` its column."""
    names = dict.fromkeys(name for row in rows[:100] for name in row)
    form, columns = _form_of(list(names), gold)
    classes = tuple(order) if order else _classes(rows, form, columns, gold)
    if order and len(columns) > 1 and form != "confidence":
        columns = tuple(f"{form}_{name}" for name in order)
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise DataError(f"The scores are of {counted(len(classes), 'class', 'classes')}; it takes two or more.")
    embedding = embedding or next((name for name in (EMBEDDING_COLUMN, "embeddings") if name in names), None)
    scores = ScoreColumns(form=form, columns=columns, classes=classes, embedding=embedding)
    smallest, width = math.inf, 0
    for row in rows:
        with suppress(InputError):  # a row that cannot be read is listed later
            read = scores.read(row)
            smallest = min([smallest, *(value for value in read.logits if value > -math.inf)])
            width = width or len(read.vector) // 4
    least = -math.inf if form == "logit" or smallest == math.inf else smallest - math.log(2.0)
    return replace(scores, width=width, least=least)


def _form_of(names: Sequence[str], gold: str) -> tuple[Form, tuple[str, ...]]:
    """The form of the scores in a file with these columns, and the columns that hold them."""
    for form, packed in PACKED.items():
        single = [name for name in packed if name in names]
        several = [name for name in names if name.startswith(f"{form}_") and name not in single]
        if single or len(several) > 1:
            return form, tuple(single[:1] or several)
    label, number = (
        next((name for name in usual if name in names and name != gold), None) for usual in (_PREDICTED, _CONFIDENCE)
    )
    if label is None or number is None:
        raise DataError(
            f"No scores in the columns {', '.join(names)}; they are known as p_CLASS, logit_CLASS or logprob_CLASS, as "
            "one column probs, logits or logprobs, or as predicted with confidence. Rename yours."
        )
    return "confidence", (label, number)


def _classes(rows: Sequence[Mapping[str, object]], form: Form, columns: tuple[str, ...], gold: str) -> tuple[str, ...]:
    """The names of the classes: those of the columns, of the keys, or that were ever predicted or are gold."""
    if form == "confidence":
        named = {str(row.get(name, "")).strip() for row in rows for name in (columns[0], gold)}
        return tuple(sorted(named - {"", "None"}))
    if len(columns) > 1:
        return tuple(name.removeprefix(f"{form}_") for name in columns)
    keys: set[str] = set()
    for row in rows:
        with suppress(InputError):
            cell = _listed(row.get(columns[0]), columns[0])
            keys |= set(cell) if isinstance(cell, Mapping) else set()
    if not keys:
        raise DataError(f"The lists in {columns[0]} do not name their classes; name them in order: --label-order a,b")
    return tuple(sorted(keys))


def _listed(cell: object, column: str) -> Any:
    """The list or the object of a cell, by its class; text is read as JSON or as Python writes it."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError:
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                cell = ast.literal_eval(str(cell))
    cell = cell.tolist() if isinstance(cell, np.ndarray) else cell
    if isinstance(cell, list | tuple) and cell and isinstance(cell[0], Mapping):
        return {str(_first(entry, _NAMES)).strip(): _first(entry, _NUMBERS) for entry in cell}
    if not isinstance(cell, list | tuple | Mapping) or not cell:
        raise InputError(f"{column} holds {cell!r:.40}, which is neither a list nor an object of scores")
    return cell


def _first(entry: Mapping[str, object], names: Sequence[str]) -> object:
    return next((entry[name] for name in names if name in entry), None)


def _number(cell: Any, column: str) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{column} holds {cell!r:.40}, where a number is needed") from error


def _log(number: float) -> float:
    return math.log(number) if number > 0.0 else -math.inf


def _vector(cell: object, column: str, width: int) -> bytes:
    """An embedding as float32."""
    try:
        row = np.array(_listed(cell, column), dtype=np.float32)
    except (TypeError, ValueError):
        row = np.array(np.nan)
    if row.ndim != 1 or not np.isfinite(row).all():
        raise InputError(f"{column} is not a list of finite numbers")
    if width and len(row) != width:
        raise InputError(f"{column} has {len(row)} numbers, and at calibration it had {width}")
    return row.tobytes()
