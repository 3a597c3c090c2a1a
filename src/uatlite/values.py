"""The frozen values that flow: a text, an example, a data set, a word and what it does.

Nothing here reads, tokenizes or computes; every room imports these and they import nothing of ours.

What every calibrator accepts: the checks of logits, labels, variances and passes, in one place.

What every rule accepts: the checks of scores, errors and shares, in one place.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, ConfigurationError, InputError


@dataclass(frozen=True, slots=True)
class Choices:
    """A multiple-choice question: the class of an example is the index of the right option."""

    question: str
    options: tuple[str, ...]


# What is classified: one text, a pair (premise and hypothesis, question and context), or choices.
Text = str | tuple[str, str] | Choices


def strings(text: Text) -> tuple[str, ...]:
    """Every string of a text, in order: one, two, or the question followed by its options."""
    if isinstance(text, Choices):
        return (text.question, *text.options)
    return (text,) if isinstance(text, str) else text


def map_strings(text: Text, change: Callable[[str], str]) -> Text:
    """The same text with `change` applied to every string of it but the options of a question."""
    if isinstance(text, Choices):
        return replace(text, question=change(text.question))
    return change(text) if isinstance(text, str) else (change(text[0]), change(text[1]))


@dataclass(frozen=True, slots=True)
class Example:
    """One row to classify. `label` indexes the labels of its data set; None is a row without a gold label."""

    id: str
    text: Text
    label: int | None = None
    meta: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Dataset:
    """One split of a task, in memory.

    `source` says in words where the rows came from, so that it can be printed and stored beside a result.
    `out_of_scope` is the index of the label that stands for "none of these classes", where a task has one.
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
        """SHA-256 of the labels and of each example's id, text and label, in order; meta is left out."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        for example in self.examples:
            kind = type(example.text).__name__
            row = [example.id, kind, strings(example.text), example.label]
            digest.update(b"\n" + json.dumps(row).encode())
        return digest.hexdigest()

    def in_scope(self) -> "Dataset":
        """The same data set without its out-of-scope rows: what the other classes are trained on."""
        if self.out_of_scope is None:
            return self
        kept = tuple(example for example in self.examples if example.label != self.out_of_scope)
        return replace(self, examples=kept, source=f"{self.source}, in-scope rows only")


@dataclass(frozen=True)
class Word:
    """Some tokens that make a word, or one special token."""

    text: str
    tokens: tuple[int, ...]
    """where its pieces stand in the row of tokens, padding counted; the choices of a question follow one another"""
    special: bool


@dataclass(frozen=True)
class WordAttribution:
    """What one word, or one special token, of a text does to the uncertainty."""

    word: Word
    uncertainty: float
    """U, the mean over its pieces"""
    variance: float
    """its part of the first-order Var(y), the sum over its pieces"""
    share: float
    """that part over the whole"""
    confidence_change: float | None
    """of the predicted class when the word is masked, after minus before; None for special tokens"""


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def check_logits(logits: ArrayLike, *, classes: int | None = None) -> FloatArray:
    """Mean logits as float64 of shape (rows, classes), finite, with the classes that were fitted."""
    array = np.asarray(logits, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(
            f"logits have the shape {array.shape}; they must be (rows, classes) with two classes or more. "
            "Average logits of shape (passes, rows, classes) over the passes first."
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise InputError(f"{bad} of {len(array)} rows of logits hold NaN or infinity; drop or rescore them.")
    if classes is not None and array.shape[1] != classes:
        raise InputError(
            f"logits have {array.shape[1]} classes, the calibrator was fitted on {classes}; "
            "fit it again on logits of this model."
        )
    return array


def check_labels(labels: ArrayLike, *, rows: int, classes: int) -> IntArray:
    """Labels as int64 of shape (rows,), each in 0 .. classes-1."""
    array = np.asarray(labels)
    if array.shape != (rows,):
        raise InputError(f"labels have the shape {array.shape}; {rows} rows of logits need the shape ({rows},).")
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"labels have the type {array.dtype}; give class indices 0 .. {classes - 1} as integers.")
    outside = array[(array < 0) | (array >= classes)]
    if outside.size:
        raise InputError(
            f"label {int(outside[0])} is outside 0 .. {classes - 1} ({outside.size} such rows); "
            "map the labels to the columns of the logits and drop unlabelled rows."
        )
    return array.astype(np.int64)


def check_fit(
    logits: ArrayLike, labels: ArrayLike, *, name: str, minimum_rows: int, every_class: bool
) -> tuple[FloatArray, IntArray]:
    """Logits (rows, classes) and labels (rows,) that a calibrator can learn from, else an error with the reason."""
    z = check_logits(logits)
    y = check_labels(labels, rows=len(z), classes=z.shape[1])
    if len(z) < minimum_rows:
        raise CalibrationError(
            f"{len(z)} labelled rows are too few for the calibrator {name!r}, which needs {minimum_rows}; "
            "label more rows, or use 'none'."
        )
    seen = np.unique(y)
    if len(seen) < 2:
        raise CalibrationError(
            f"all {len(y)} labels are {int(seen[0])}: such rows are no sample of the data; "
            "give validation rows of at least two classes."
        )
    if every_class and len(seen) < z.shape[1]:
        absent = np.setdiff1d(np.arange(z.shape[1]), seen).tolist()
        raise CalibrationError(
            f"the calibrator {name!r} fits each class by itself and no row has the label {absent}; "
            "add rows of it, or use 'temperature'."
        )
    return z, y


def check_variance(variance: ArrayLike | None, *, rows: int) -> FloatArray:
    """The margin's variance as float64 of shape (rows,), finite and not negative."""
    if variance is None:
        raise InputError(
            "the calibrator 'input-temperature' needs the margin's variance of each row; "
            "pass variance=margin_variance(logits of every pass), or use 'temperature'."
        )
    array = np.asarray(variance, dtype=np.float64)
    if array.shape != (rows,):
        raise InputError(f"variance has the shape {array.shape}; {rows} rows of logits need the shape ({rows},).")
    if not np.isfinite(array).all() or (array < 0).any():
        raise InputError("variance holds a negative number, NaN or infinity; give a variance, not a log or a std.")
    return array


def check_passes(logits: ArrayLike, *, minimum: int) -> FloatArray:
    """Logits of every pass as float64, (passes, rows, classes), finite, with `minimum` passes or more."""
    array = np.asarray(logits, dtype=np.float64)
    if array.ndim != 3 or array.shape[2] < 2:
        raise InputError(
            f"logits of every pass have the shape {array.shape}; they must be (passes, rows, classes) "
            "with two classes or more."
        )
    if array.shape[0] < minimum:
        raise InputError(
            f"{array.shape[0]} pass gives no spread over passes; run at least {minimum} passes, "
            "or use a method that gives its variance without sampling."
        )
    if not np.isfinite(array).all():
        raise InputError("logits of the passes hold NaN or infinity; drop or rescore those rows.")
    return array


def check_fitted(calibrator: Any, attribute: str) -> None:
    """Raise unless `fit` has run."""
    if not hasattr(calibrator, attribute):
        raise CalibrationError(
            f"{type(calibrator).__name__} is not fitted; call fit(logits, labels) on validation rows first."
        )


def check_scores(scores: ArrayLike) -> FloatArray:
    """Scores as float64 of shape (rows,), without NaN."""
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"scores have the shape {array.shape}; give one score for each row, (rows,).")
    if np.isnan(array).any():
        count = int(np.isnan(array).sum())
        raise InputError(f"{count} of {len(array)} scores are NaN; drop or rescore those rows.")
    return array


def check_rows(scores: ArrayLike, errors: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Scores (rows,) and errors (rows,), True where the prediction is wrong, of at least one row."""
    s, e = check_scores(scores), np.asarray(errors)
    if e.dtype != np.bool_ or e.shape != s.shape:
        raise InputError(
            f"errors have the type {e.dtype} and the shape {e.shape}; {len(s)} scores need the type bool and the "
            f"shape ({len(s)},): predicted != label."
        )
    if len(s) == 0:
        raise CalibrationError("there are no calibration rows; give labelled rows that the model was not trained on.")
    return s, e


def check_share(name: str, value: float) -> None:
    """Raise unless 0 < value < 1."""
    if not 0.0 < value < 1.0:
        raise ConfigurationError(f"{name}={value!r} is not between 0 and 1; five percent is 0.05.")


def check_tells_apart(scores: FloatArray, name: str) -> None:
    """Raise if every row has the same score: no threshold can then choose among them."""
    if (scores == scores[0]).all():
        raise CalibrationError(
            f"all {len(scores)} rows have the {name} score {scores[0]:g}, so it cannot tell whom to answer; "
            "use 'confidence', or two passes or more for a score over passes."
        )
