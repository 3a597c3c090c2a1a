"""Reading a job's input: each row as an example or a reject, in blocks of bounded size.

A block is what is in memory at once. Its digest tells a resumed run whether its rows are still the same.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from uatlite.classifier.product import Product
from uatlite.errors import DataError, InputError
from uatlite.scoring.job import Job
from uatlite.text.examples import (
    LOOK_AHEAD,
    example_of,
    find_layout,
    has_column,
    read_examples,
    require_columns,
    text_fault,
)
from uatlite.text.files import STDIN, is_remote, open_bytes, row_files
from uatlite.text.rows import Reject, Row, excerpt, read_rows
from uatlite.text.schema import TAGS, Layout
from uatlite.text.write import write_rejects
from uatlite.values import Choices, Example, Span, Text, Words, strings

BLOCK_ROWS = 512
"""Enough texts for batches of similar length, which need little padding. A killed run loses at most one block."""
BLOCK_CHARACTERS = 4_000_000
READ_BYTES = 1 << 20

Item = Example | Reject


@dataclass(frozen=True)
class TextShape:
    """Which texts a classifier accepts."""

    chooses: bool
    """whether they are questions with options"""
    options: int | None
    """options of every question; None where the first question decides"""
    tags: bool = False
    """whether they are texts, or words, in which entities are sought"""

    @classmethod
    def of(cls, classifier: Product[Any]) -> "TextShape":
        """The texts that this classifier accepts."""
        options = len(classifier.class_names) or None if classifier.chooses else None
        return cls(classifier.chooses, options, classifier.kind.name == "entities")

    def fault(self, text: Text) -> str | None:
        """Why a text is not accepted; None where it is."""
        if self.tags and not isinstance(text, str | Words):
            return "a pair of texts or a question, and entities are sought in one text"
        return text_fault(strings(text)[0] if self.tags else text, chooses=self.chooses, options=self.options)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of the input, numbered from 0."""

    number: int
    first: int
    """rows of the input before this block"""
    items: tuple[Item, ...]

    @property
    def examples(self) -> list[Example]:
        """The rows that can be scored."""
        return [item for item in self.items if isinstance(item, Example)]

    @property
    def rejects(self) -> list[Reject]:
        """The rows that cannot be scored."""
        return [item for item in self.items if isinstance(item, Reject)]

    @property
    def digest(self) -> str:
        """SHA-256 of all that its output depends on: ids, texts, kept columns, rejects."""
        digest = hashlib.sha256()
        for item in self.items:
            whole = [item.id, _parts(item.text), dict(item.meta)] if isinstance(item, Example) else item.as_row()
            digest.update(json.dumps(whole, default=str).encode() + b"\n")
        return digest.hexdigest()


def _parts(text: Text) -> tuple[str, ...]:
    """All that decides what a model reads of a text: the same words, cut in another way, are another text."""
    return ("", *text.tokens) if isinstance(text, Words) else strings(text)


def remembered_layout(
    source: str, layout: Layout, asked: Mapping[str, str | None], remembered: Mapping[str, str], *, format: str | None
) -> Layout:
    """The layout with the columns that a user asked for, or else with those of the calibration rows.

    Roles are those of `Layout.columns`. A remembered column that the file does not have is left aside: the usual one of
    the layout stands. What comes by standard input can be read only once and is taken to be as the calibration rows.
    """
    known = dict(remembered)
    if source != STDIN and set(known.items()) - set(layout.columns.items()):
        first = [row for row in islice(read_rows(source, format=format), LOOK_AHEAD) if isinstance(row, Row)]
        there = {column for row in first for column in known.values() if has_column(row.values, column)}
        known = {role: column for role, column in known.items() if column in there}
    found: dict[str, Any] = {role: column or known.get(role) for role, column in asked.items()}
    return replace(layout, **{role: column for role, column in found.items() if column is not None})


def tagged_layout(source: str, layout: Layout, *, format: str | None = None) -> Layout:
    """The layout of rows in which entities are sought: a text, or words in the column `tokens`.

    Where the column of the text was not named, the first row decides.
    """
    words = layout.text == TAGS.text
    if layout.text == Layout().text and source != STDIN:
        first = next((row for row in read_rows(source, format=format) if isinstance(row, Row)), None)
        words = first is not None and layout.text not in first.values and TAGS.text in first.values
    return replace(layout, text=TAGS.text if words else layout.text, gold=TAGS.gold if words else "entities")


def entity_layout(source: str, layout: Layout, *, format: str | None = None) -> Layout:
    """The layout of rows with gold entities, as the first rows have them: tokens and tags, or text and entities."""
    found = layout if source == STDIN else find_layout(read_rows(source, format=format), layout)
    if found.kind != "entities":
        raise DataError(
            f"{source} has no gold entities; give rows with tokens and tags, or text and entities, or name the "
            "columns: --text tokens --label tags."
        )
    return replace(found, codes=())


def open_rows(job: Job) -> Iterator[Row | Reject]:
    """The rows of the input, as a stream. An input that cannot be read, or lacks a column, is an error at once."""
    rows = read_rows(job.input, format=job.format)
    return require_columns(rows, job.layout, with_label=False, also=job.named)


def read_items(rows: Iterable[Row | Reject], shape: TextShape, job: Job) -> Iterator[Item]:
    """Each row as an example that the classifier accepts, or as a reject; with `job.strict` a reject is an error."""
    for row in rows:
        item = row if isinstance(row, Reject) else _item(row, shape, job)
        if shape.options is None and isinstance(item, Example) and isinstance(item.text, Choices):
            shape = replace(shape, options=len(item.text.options))
        if isinstance(item, Reject) and job.strict:
            raise _strict_error(item)
        yield item


def _item(row: Row, shape: TextShape, job: Job) -> Item:
    try:
        layout = replace(job.layout, meta=job.kept)
        example = example_of(row.values, layout, None, unnamed=f"{row.file}:{row.line}")
        if fault := shape.fault(example.text):
            raise InputError(fault)
    except InputError as error:
        return Reject(row.file, row.line, str(error), excerpt(row.values))
    return example


def _strict_error(reject: Reject) -> DataError:
    return DataError(
        f"{reject.file}, line {reject.line}: {reject.reason}. Without --strict such rows are listed and skipped."
    )


def blocks(items: Iterable[Item], rows: int = BLOCK_ROWS, characters: int = BLOCK_CHARACTERS) -> Iterator[Block]:
    """Cut a stream into blocks of at most `rows` rows; a block ends early once its texts reach `characters`."""
    number = first = length = 0
    held: list[Item] = []
    for item in items:
        held.append(item)
        length += sum(map(len, strings(item.text))) if isinstance(item, Example) else len(item.raw)
        if len(held) == rows or length >= characters:
            yield Block(number, first, tuple(held))
            number, first, length, held = number + 1, first + len(held), 0, []
    if held:
        yield Block(number, first, tuple(held))


def estimate_rows(job: Job) -> int | None:
    """About how many rows the input has: line ends, or the number in a Parquet file.

    None for standard input, which can be read only once, and for remote files, which would have to be fetched.
    """
    if job.input == STDIN or is_remote(job.input):
        return None
    return sum(_file_rows(Path(str(path)), name) for path, name in row_files(job.input, job.format))


def _file_rows(path: Path, name: str) -> int:
    if name == "parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    lines, end = 0, b"\n\n" if name == "conll" else b"\n"
    with suppress(OSError, EOFError, DataError), open_bytes(path) as file:  # reading the rows reports what is wrong
        while read := file.read(READ_BYTES):
            lines += read.count(end)
    return lines - (name not in ("jsonl", "conll"))


@dataclass(frozen=True)
class LabelledRows:
    """Texts and their gold to calibrate with, (rows,) each, and the rejected rows.

    By the layout the gold is in one of three: `labels`, `entities` or `label_sets`; the other two are empty.
    """

    texts: list[Text]
    labels: list[int]
    rejects: list[Reject]
    meta: list[Mapping[str, object]] = field(default_factory=list)
    """the layout's `meta` columns of each row"""
    entities: list[tuple[Span, ...]] = field(default_factory=list)
    label_sets: list[tuple[int, ...]] = field(default_factory=list)
    """columns of the labels of each row, ascending; empty where none applies"""

    def write_rejects(self, path: Path) -> None:
        """List the rejected rows with line and reason; no file where there are none."""
        write_rejects(path, self.rejects)


def read_labelled(
    source: str, layout: Layout, classes: Sequence[str], *, format: str | None = None, strict: bool = False
) -> LabelledRows:
    """Every row with a text and gold of the model's classes; the others are rejects.

    `classes` are labels, or the types of entities where the layout's gold is tags or entities (`find_layout` tells
    what a file holds). With `strict` the first reject is an error. A file without any usable row always is.
    """
    texts: list[Text] = []
    labels: list[int] = []
    rejects: list[Reject] = []
    meta: list[Mapping[str, object]] = []
    entities: list[tuple[Span, ...]] = []
    label_sets: list[tuple[int, ...]] = []
    for item in read_examples(source, layout, classes, format=format):
        if isinstance(item, Reject):
            if strict:
                raise _strict_error(item)
            rejects.append(item)
            continue
        texts.append(item.text)
        meta.append(item.meta)
        if item.entities is not None:
            entities.append(item.entities)
        elif item.labels is not None:
            label_sets.append(item.labels)
        elif item.label is not None:
            labels.append(item.label)
    if not texts:
        first = f"; the first: line {rejects[0].line}, {rejects[0].reason}" if rejects else ""
        known = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
        raise DataError(
            f"{source} has no usable row ({len(rejects)} rejected{first}). A label is one of the model's classes, "
            f"{known}, or its number from 0; if the data use other names, give these in the model's order to "
            "'uatlite calibrate': --label-order a,b"
        )
    return LabelledRows(texts, labels, rejects, meta, entities, label_sets)


def read_texts(source: str, layout: Layout, *, format: str | None = None, strict: bool = False) -> list[Text]:
    """The texts of every usable row; labels are not read. With `strict` the first unusable row is an error."""
    texts: list[Text] = []
    rejected = 0
    for item in read_examples(source, replace(layout, label=None), format=format):
        if isinstance(item, Reject):
            if strict:
                raise _strict_error(item)
            rejected += 1
        else:
            texts.append(item.text)
    if not texts:
        raise DataError(f"{source} has no usable text ({rejected} rows rejected); is the column {layout.text!r} right?")
    return texts
