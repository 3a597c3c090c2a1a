"""The values that every room shares (a text, an example, a data set, a word), and the checks of arrays.

A check returns the array in the type and shape that the callers compute with, or raises an error that names the first
fault. Nothing here reads files, tokenizes or runs a model.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import ConfigurationError, InputError

Kind = Literal["one", "choice", "labels", "entities"]
"""What a model says about a text: one class, one option of a question, any number of labels, or entities.

A room that treats them differently has one table with these keys; nothing else asks for the kind.
"""


@dataclass(frozen=True, slots=True)
class Choices:
    """A multiple-choice question: the class of an example is the index of the right option."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """A text that is given as its words, none of them empty. Characters are counted in `text`."""

    tokens: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words, joined by one space."""
        return " ".join(self.tokens)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The start and the end of each word in `text`."""
        ends = list(accumulate(len(token) + 1 for token in self.tokens))
        return [(end - 1 - len(token), end - 1) for token, end in zip(self.tokens, ends, strict=True)]


@dataclass(frozen=True, slots=True)
class ScoredText:
    """What another classifier says of a text, which stands for the text where no model reads it."""

    logits: tuple[float, ...]
    """by class; log-probabilities are logits too"""
    vector: bytes = b""
    """the text's embedding in float32, where there is one"""
    text: str = ""
    """to show to a reader, where it is known"""

    def columns(self, *, vector: bool = True) -> dict[str, object]:
        """As `predict` and `pick` write them, to be read again."""
        listed = {"embedding": np.frombuffer(self.vector, np.float32).tolist()} if self.vector and vector else {}
        return {"logits": list(self.logits), **listed}


class Span(NamedTuple):
    """An entity of a text: the characters from `start` to before `end`, and its type."""

    start: int
    end: int
    label: str


# What is classified: one text, as a string or as words; a pair (premise and hypothesis, question and context); choices;
# or the scores that another classifier gave it.
Text = str | tuple[str, str] | Choices | Words | ScoredText


def counted(number: int, what: str = "row", others: str = "") -> str:
    """'1 row', '1,200 rows'; `others` is the plural where it is no s."""
    return f"{number:,} {what if number == 1 else others or what + 's'}"


def strings(text: Text) -> tuple[str, ...]:
    """Every string of a text, in order: one, two, or the question followed by its options. Words are one string."""
    if isinstance(text, Choices):
        return (text.question, *text.options)
    if isinstance(text, Words | ScoredText):
        return (text.text,)
    return (text,) if isinstance(text, str) else text


@dataclass(frozen=True, slots=True)
class Example:
    """One row to classify, and its gold answer: a class, or for some tasks several entities or several labels.

    `label` and `labels` index the labels of the data set; all three are None where a row has no such gold.
    """

    id: str
    text: Text
    label: int | None = None
    meta: Mapping[str, object] = field(default_factory=dict, hash=False)
    entities: tuple[Span, ...] | None = None
    """in order of their start, without overlap"""
    labels: tuple[int, ...] | None = None
    """ascending; may be empty"""


@dataclass(frozen=True)
class Dataset:
    """One split of a task, in memory.

    `source` says where the rows come from, to print and to store beside a result.
    `out_of_scope` is the index of the label that means "none of these classes", where the task has one.
    """

    name: str
    split: str
    labels: tuple[str, ...]
    examples: tuple[Example, ...]
    source: str
    out_of_scope: int | None = None

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def ids(self) -> list[str]:
        return [example.id for example in self.examples]

    @property
    def texts(self) -> list[Text]:
        return [example.text for example in self.examples]

    @property
    def gold(self) -> list[int | None]:
        return [example.label for example in self.examples]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the labels and of each example's id, text and gold, in order; meta is left out."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        for example in self.examples:
            kind = type(example.text).__name__
            parts = example.text.tokens if isinstance(example.text, Words) else strings(example.text)
            several = [gold for gold in (example.entities, example.labels) if gold is not None]
            row = [example.id, kind, parts, example.label, *several]
            digest.update(b"\n" + json.dumps(row).encode())
        return digest.hexdigest()

    def in_scope(self) -> "Dataset":
        """The data set without its out-of-scope rows; a model that does not know that class trains on these."""
        if self.out_of_scope is None:
            return self
        kept = tuple(example for example in self.examples if example.label != self.out_of_scope)
        return replace(self, examples=kept, source=f"{self.source}, in-scope rows only")


@dataclass(frozen=True)
class Word:
    """A word with the positions of its tokens, or one special token."""

    text: str
    tokens: tuple[int, ...]
    """positions in the row of tokens, padding included; the options of a question are one row, joined in order"""
    special: bool


@dataclass(frozen=True)
class WordAttribution:
    """How much one word, or one special token, contributes to the uncertainty of a text."""

    word: Word
    uncertainty: float
    """U, the mean over its tokens"""
    variance: float
    """its part of the first-order Var(y), the sum over its tokens"""
    share: float
    """that part divided by Var(y)"""
    masked_confidence: float | None
    """in the predicted class when the word is masked; None for special tokens, or where no word was masked"""


FP32 = "fp32"
"""The precision that every device computes in."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]

SUM_TOLERANCE = 1e-3
"""How far the probabilities of a row may sum from 1: users give probabilities rounded to four or five decimals."""


def check_array(name: str, values: ArrayLike, axes: Mapping[str, int], *, advice: str = "") -> Floats:
    """Values as float64, all finite; `axes` names the axes with the smallest size of each. `advice` ends the error."""
    given = np.asarray(values)
    if given.ndim != len(axes) or any(size < least for size, least in zip(given.shape, axes.values(), strict=True)):
        sizes = ", ".join(f"{axis} ≥ {least}" for axis, least in axes.items() if least)
        raise InputError(f"{name} have shape {given.shape}; allowed is {_spelt(axes)}{sizes and ', '}{sizes}. {advice}")
    if given.dtype.kind not in "fiub":
        raise InputError(f"{name} have type {given.dtype}; allowed are real numbers. Convert them first.")
    array = np.asarray(given, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = ~np.isfinite(array)
        index = np.argwhere(bad)[0].tolist()
        rows = list(axes).index("rows")
        count = int(bad.any(axis=tuple(axis for axis in range(bad.ndim) if axis != rows)).sum())
        raise InputError(
            f"{name}{index} is {array[tuple(index)]}; allowed are finite numbers. {count} of {array.shape[rows]} rows "
            "hold NaN or infinity: drop them, or run the model again in float32."
        )
    return array


def _spelt(axes: Mapping[str, int]) -> str:
    return "(" + ", ".join(axes) + (",)" if len(axes) == 1 else ")")


def check_logits(logits: ArrayLike, *, classes: int | None = None) -> Floats:
    """Mean logits as float64 (rows, classes), finite; `classes` is the number that a calibrator was fitted on."""
    advice = "Average logits of shape (passes, rows, classes) over the passes first."
    array = check_array("logits", logits, {"rows": 0, "classes": 2}, advice=advice)
    if classes is not None and array.shape[1] != classes:
        raise InputError(
            f"logits have {array.shape[1]} classes, the calibrator was fitted on {classes}; "
            "fit it again on logits of this model."
        )
    return array


def check_probabilities(probabilities: ArrayLike, *, rows: int = 0) -> Floats:
    """Probabilities as float64 (rows, classes), with at least `rows` rows, used as given and not renormalised.

    Each row must sum to 1 within `SUM_TOLERANCE`, 1e-3. That accepts a float32 softmax, which is off by about 1e-6, and
    probabilities rounded to four or five decimals. Logits, percentages and a softmax in bfloat16 are off by more.
    """
    advice = "For a single column p of a binary task pass np.column_stack([1 - p, p])."
    array = check_array("probabilities", probabilities, {"rows": rows, "classes": 1}, advice=advice)
    if (array < 0).any():
        index = np.argwhere(array < 0)[0].tolist()
        raise InputError(
            f"probabilities{index} is {array[tuple(index)]}; allowed are numbers from 0 to 1. "
            "Pass the softmax of the logits, not the logits."
        )
    off = np.abs(array.sum(axis=1) - 1)
    if (off > SUM_TOLERANCE).any():
        row = int(off.argmax())
        raise InputError(
            f"probabilities[{row}] sums to {array[row].sum():.6g}; allowed is 1 within {SUM_TOLERANCE:g}. "
            "Pass the softmax of the logits, computed in float32 or better."
        )
    return array


def check_labels(labels: ArrayLike, *, rows: int, classes: int) -> Integers:
    """Labels as int64 (rows,), each from 0 to classes - 1."""
    given = np.asarray(labels)
    if given.shape != (rows,):
        raise InputError(f"labels have shape {given.shape}; allowed is ({rows},), one label for each row.")
    if given.dtype.kind not in "iu":
        raise InputError(
            f"labels have type {given.dtype}; allowed are integers, the column of the true class. "
            "Map names to columns, or convert with labels.astype(int)."
        )
    outside = (given < 0) | (given >= classes)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"labels[{row}] is {given[row]}; allowed are 0 to {classes - 1} for {classes} classes ({outside.sum()} "
            "such rows). Drop rows without a label; score out-of-scope rows with auroc, aupr or fpr95."
        )
    return given.astype(np.int64)


def check_scores(scores: ArrayLike) -> Floats:
    """Scores as float64 (rows,), finite."""
    return check_array("scores", scores, {"rows": 0}, advice="Give one score for each row.")


def check_marks(name: str, marks: ArrayLike, rows: int, *, advice: str = "Give one for each.") -> Marks:
    """Marks as bool (rows,); `advice` ends the error."""
    given = np.asarray(marks)
    if given.dtype != np.bool_ or given.shape != (rows,):
        raise InputError(
            f"{name} has type {given.dtype} and shape {given.shape}; allowed is bool and ({rows},). {advice}"
        )
    return given


def check_share(name: str, value: float) -> None:
    """Raise unless 0 < value < 1."""
    if not 0.0 < value < 1.0:
        raise ConfigurationError(f"{name}={value!r} is not between 0 and 1; five percent is 0.05.")
