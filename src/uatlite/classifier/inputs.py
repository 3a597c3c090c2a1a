"""What a user hands in, checked: the texts, and the labels as names or numbers."""

from collections.abc import Iterable, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.data.conversion import label_index
from uatlite.data.labels import fold
from uatlite.errors import InputError, nearest
from uatlite.values import Choices, Text, strings


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
