"""From a row to an example, by a layout: the texts, the label, and what is wrong with a row that has none.

One row's fault is an InputError with the reason alone. `read_examples` turns it into a Reject with file and
line; tasks, which must be whole, turn it into a DataError.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from uatlite.data.labels import fold
from uatlite.data.reading import Reject, Row, excerpt, read_rows
from uatlite.data.schema import Layout
from uatlite.errors import DataError, InputError, nearest
from uatlite.values import Choices, Example, Text, strings

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
