"""A stream of rows in blocks of bounded size: what is in memory at once, and sorted by length inside.

The rows of a job's input: what can be scored, and what cannot with the reason.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import DataError, InputError
from uatlite.scoring.job import Job
from uatlite.text.examples import example_of, require_columns, text_fault
from uatlite.text.files import STDIN, is_remote, open_bytes, row_files
from uatlite.text.rows import Reject, Row, excerpt, read_rows
from uatlite.values import Choices, Example, strings

BLOCK_ROWS = 512
"""Enough texts that batches of like length waste little padding; what a kill costs at most."""
BLOCK_CHARACTERS = 4_000_000

Item = Example | Reject


@dataclass(frozen=True)
class Block:
    """Consecutive rows of the input, and its place among the blocks."""

    number: int
    first: int
    """how many rows of the input stand before it"""
    items: tuple[Item, ...]

    @property
    def examples(self) -> list[Example]:
        """The rows that can be scored."""
        return [item for item in self.items if isinstance(item, Example)]

    @property
    def rejects(self) -> list[Reject]:
        """The rows that cannot."""
        return [item for item in self.items if isinstance(item, Reject)]

    @property
    def digest(self) -> str:
        """SHA-256 of all that its output depends on: ids, texts, kept columns, rejects."""
        digest = hashlib.sha256()
        for item in self.items:
            whole = [item.id, strings(item.text), dict(item.meta)] if isinstance(item, Example) else item.as_row()
            digest.update(json.dumps(whole, default=str).encode() + b"\n")
        return digest.hexdigest()


def blocks(items: Iterable[Item], rows: int = BLOCK_ROWS, characters: int = BLOCK_CHARACTERS) -> Iterator[Block]:
    """Cut a stream into blocks of at most so many rows, closed early where the texts are long."""
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


READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Accepted:
    """Which texts a classifier can take: all that a reader has to know of it."""

    chooses: bool
    """whether they are questions with options"""
    options: int | None
    """how many, as in calibration; None leaves it to the first question"""

    @classmethod
    def by(cls, classifier: UncertaintyClassifier) -> "Accepted":
        """What this classifier takes."""
        return cls(classifier.chooses, len(classifier.class_names) or None if classifier.chooses else None)


def read_items(accepted: Accepted, job: Job) -> Iterator[Item]:
    """Examples and rejects, as a stream. An input that cannot be read at all is an error here and now."""
    rows = require_columns(read_rows(job.input, format=job.format), job.layout, with_label=False)
    return _items(rows, accepted, job)


def _items(rows: Iterator[Row | Reject], accepted: Accepted, job: Job) -> Iterator[Item]:
    for row in rows:
        item = row if isinstance(row, Reject) else _item(row, accepted, job)
        if accepted.options is None and isinstance(item, Example) and isinstance(item.text, Choices):
            accepted = replace(accepted, options=len(item.text.options))
        if isinstance(item, Reject) and job.strict:
            raise DataError(f"{item.file}, line {item.line}: {item.reason}. Without --strict such rows are set aside.")
        yield item


def _item(row: Row, accepted: Accepted, job: Job) -> Item:
    try:
        example = example_of(row.values, job.layout, None, unnamed=f"{row.file}:{row.line}")
        if fault := text_fault(example.text, chooses=accepted.chooses, options=accepted.options):
            raise InputError(fault)
    except InputError as error:
        return Reject(row.file, row.line, str(error), excerpt(row.values))
    return example


def estimate_rows(job: Job) -> int | None:
    """About how many rows the input has, to tell the time left: line ends, or what Parquet says.

    None for what can be read only once, or would have to be fetched first.
    """
    if job.input == STDIN or is_remote(job.input):
        return None
    return sum(_file_rows(Path(str(path)), name) for path, name in row_files(job.input, job.format))


def _file_rows(path: Path, name: str) -> int:
    if name == "parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    lines = 0
    with (
        suppress(OSError, EOFError, DataError),
        open_bytes(path) as file,
    ):  # whoever reads the rows will say what is wrong
        while read := file.read(READ_BYTES):
            lines += read.count(b"\n")
    return lines - (name != "jsonl")
