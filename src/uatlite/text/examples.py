"""From rows to examples by a layout, and the check of texts that a user hands in.

A fault of one row is an InputError with the reason alone. `example_or_reject` turns it into a Reject with file and
line; tasks, in which every row must be usable, turn that into a DataError.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from string import ascii_uppercase
from typing import Any

from uatlite.errors import DataError, InputError, nearest
from uatlite.text.gold import GOLD, json_list, list_of_strings
from uatlite.text.labels import label_index
from uatlite.text.rows import Reject, Row
from uatlite.text.schema import TAGS, Layout
from uatlite.values import Choices, Example, ScoredText, Text, Words, strings

_MISSING = object()
LOOK_AHEAD = 100  # rows of a JSONL file that may lack a column before the column counts as missing


def example_or_reject(
    row: Row | Reject, layout: Layout, labels: Sequence[str] | None, *, unnamed: str | None = None
) -> Example | Reject:
    """A row as an example, or as a reject with the reason."""
    if isinstance(row, Reject):
        return row
    try:
        return example_of(row.values, layout, labels, unnamed=unnamed)
    except InputError as error:
        return row.rejected(error)


def example_of(
    values: Mapping[str, object], layout: Layout, labels: Sequence[str] | None, *, unnamed: str | None = None
) -> Example:
    """A row as an example, or an InputError with the reason. Without `labels` no gold is read.

    The id of a row without one is `unnamed`, or else a hash of its words.
    """
    text, gold, answer = text_of(values, layout), GOLD[layout.kind], {}
    if labels is not None:
        value = None if layout.label is None else value_at(values, layout.label)
        answer[gold.field] = gold.parse(value, text, layout, label_index(tuple(labels), layout.codes))
    meta = {column: value_at(values, column) for column in layout.meta if has_column(values, column)}
    given = None if layout.id is None else value_at(values, layout.id)
    name = (unnamed or content_key(text)[:16]) if given in (None, "") else str(given)
    return Example(name, text, meta=meta, **answer)


def find_layout(rows: Iterable[Row | Reject], layout: Layout) -> Layout:
    """The layout with `gold` as the first rows have it: a list in the label column is never one class.

    Where the user named no columns, these are looked for: `tokens` and `tags`; else `entities` or `labels`, where
    there is no column `label`. A layout that says what its gold is stays as it is.
    """
    if layout.gold != "class" or layout.pair is not None or layout.options is not None:
        return layout
    first = [row.values for row in islice(rows, LOOK_AHEAD) if isinstance(row, Row)]
    usual = Layout()
    named = {column for values in first for column in values}
    if (layout.text, layout.label) == (usual.text, usual.label) and usual.label not in named:
        if {TAGS.text, TAGS.label} <= named:
            return replace(layout, text=TAGS.text, label=TAGS.label, gold="tags")
        for column in ("entities", "labels"):
            if column in named:
                return replace(layout, label=column, gold=column)
    for values in first:
        value, text = (value_at(values, column) for column in (str(layout.label), layout.text))
        if gold := json_list(value):
            words = bool(json_list(text))
            return replace(layout, gold="entities" if isinstance(gold[0], Mapping) else "tags" if words else "labels")
    return layout


def require_columns(
    rows: Iterable[Row | Reject], layout: Layout, *, with_label: bool = True, also: Iterable[str] = ()
) -> Iterator[Row | Reject]:
    """The same rows; a column that none of the first rows has is an error that lists the columns.

    `also` are columns that a user named besides those of the texts and the label.
    """
    texts = (layout.text, layout.pair, layout.options) if layout.scores is None else layout.scores.needed
    needed = [*texts, layout.label if with_label else None, layout.group, *also]
    missing = dict.fromkeys(column for column in needed if column is not None)
    columns: dict[str, None] = {}
    ahead: list[Row | Reject] = []
    rows = iter(rows)
    for row in rows:
        ahead.append(row)
        if isinstance(row, Row):
            columns |= dict.fromkeys(row.values)
            missing = {column: None for column in missing if not has_column(row.values, column)}
        if not missing or len(ahead) == LOOK_AHEAD:
            break
    if missing and columns:
        column = next(iter(missing))
        hint = nearest(column, columns)
        raise DataError(f"There is no column {column!r}; the columns are: {', '.join(columns)}.{hint}")
    return chain(ahead, rows)


def value_at(values: Mapping[str, object], column: str, missing: object = None) -> object:
    """The value of a column, or `missing`. A dotted name reaches into a nested column."""
    if column in values:
        return values[column]
    outer, _, inner = column.partition(".")
    nested = values.get(outer)
    return value_at(nested, inner, missing) if inner and isinstance(nested, Mapping) else missing


def has_column(values: Mapping[str, object], column: str) -> bool:
    """Whether the row has the column."""
    return value_at(values, column, _MISSING) is not _MISSING


def text_of(values: Mapping[str, object], layout: Layout) -> Text:
    """The text of a row: a string, a pair, a question with its options, or words.

    Entities are counted in characters, so their texts are left as they are, space at both ends included.
    """
    if layout.scores is not None:
        return layout.scores.read(values, str(value_at(values, layout.text) or ""))
    if GOLD[layout.kind].in_place:
        value, where = value_at(values, layout.text), f"column {layout.text!r}"
        if isinstance(value, list | tuple) or layout.gold == "tags":
            return _words(value, where)
        _clean(value, where)
        return str(value)
    first = _string(values, layout.text, layout)
    if layout.options is not None:
        return Choices(first, _options(value_at(values, layout.options), layout))
    return first if layout.pair is None else (first, _string(values, layout.pair, layout))


def _string(values: Mapping[str, object], column: str, layout: Layout) -> str:
    value = value_at(values, column)
    if isinstance(value, list | tuple) and all(isinstance(section, str) for section in value):
        value = " ".join(value)  # an abstract in sections
    return _clean(value, f"column {column!r}", layout.replace)


def _words(value: object, where: str) -> Words:
    tokens = list_of_strings(value, where)
    for number, token in enumerate(tokens, start=1):
        if not token.strip():
            raise InputError(f"word {number} of {len(tokens)} in {where} is empty")
    if not tokens:
        raise InputError(f"no words in {where}")
    _check_unicode("".join(tokens), where)
    return Words(tuple(tokens))


def _clean(value: object, where: str, replacements: Sequence[tuple[str, str]] = ()) -> str:
    if value is None or value != value:
        raise InputError(f"no text in {where}{'' if value is None else ': it holds nan, a missing number'}")
    if not isinstance(value, str):
        raise InputError(f"{where} holds {value!r:.40}, which is no text")
    for markup, instead in replacements:
        value = value.replace(markup, instead)
    value = value.strip()
    if not value:
        raise InputError(f"no text in {where}")
    _check_unicode(value, where)
    return value


def _check_unicode(value: str, where: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where} holds half a surrogate pair, which is not text") from error


def _options(value: object, layout: Layout) -> tuple[str, ...]:
    """A list, or an object in the order of its keys; CSV and TSV write either as JSON."""
    where = f"column {layout.options!r}"
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InputError(f"{where} is not a list or an object in JSON") from error
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value) if value[key] is not None]
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise InputError(f"{where} does not hold two or more options")
    return tuple(_clean(option, f"an option in {where}", layout.replace) for option in value)


def content_key(text: Text) -> str:
    """32 hex digits that depend only on the words of a text, not on its place, its file or its spacing."""
    # split() drops \x1f: it can mark the joints.
    words = "\x1f".join(" ".join(string.split()) for string in strings(text))
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def check_texts(
    texts: Iterable[object], fault: Callable[[Any, Sequence[str]], str | None], classes: Sequence[str]
) -> list[Text]:
    """The texts as a list, or an error that names the first that the model cannot take.

    `fault` says why it cannot, by the classes; where these are options and not known, the first question says how many.
    """
    if isinstance(texts, str):
        raise InputError("texts is one string; give a list of texts, even of one: [text].")
    if isinstance(texts, tuple):
        raise InputError(
            "texts is a tuple, which could be one pair or two texts; give a list: [(premise, hypothesis)] or [a, b]."
        )
    if not isinstance(texts, Iterable):
        raise InputError(f"texts is a {type(texts).__name__}; give a list of texts.")
    # NumPy arrays and pandas columns as lists; a row of a two-column array is then a list of two, a pair.
    listed: list[Any] = texts.tolist() if hasattr(texts, "tolist") else list(texts)
    checked: list[Text] = [tuple(text) if isinstance(text, list) else text for text in listed]
    for i, text in enumerate(checked):
        if not classes and isinstance(text, Choices):
            classes = ascii_uppercase[: len(text.options)]
        if reason := fault(text, classes):
            raise InputError(f"texts[{i}]: {reason}.")
    return checked


def as_text(first: str, second: str | None = None, options: Sequence[str] = ()) -> Text:
    """A text from its strings: alone, with a second as a pair, or with options as a question."""
    if options and second is not None:
        raise InputError("a second text and options were given together; a question has options, a pair has none.")
    if options:
        return Choices(first, tuple(options))
    return first if second is None else (first, second)


def text_fault(text: object, *, chooses: bool, options: int | None = None) -> str | None:
    """Why the model cannot take this text, in a few words; None where it can."""
    if isinstance(text, ScoredText):
        return None  # it is checked where it is read
    if isinstance(text, Choices):
        if not chooses:
            return "a question with options, and the model is not for multiple choice"
        if not 2 <= len(text.options) <= len(ascii_uppercase):
            return f"{len(text.options)} options, where 2 to {len(ascii_uppercase)} are allowed"
        if options is not None and len(text.options) != options:
            return f"{len(text.options)} options, where the other questions have {options}"
    elif not isinstance(text, str) and not (
        isinstance(text, tuple) and len(text) == 2 and all(isinstance(string, str) for string in text)
    ):
        return f"{text!r:.80} is not a text; allowed are a string, a pair of strings, or Choices(question, options)"
    elif chooses:
        return "no options, and the model is for multiple choice; give Choices(question, options)"
    if not all(string.strip() for string in strings(text)):
        return "an empty text; drop it, or put a word in its place"
    return None
