"""The rows of a job's input: what can be scored, and what cannot with the reason."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from uatlite.classifier import UncertaintyClassifier
from uatlite.classifier.inputs import text_fault
from uatlite.data.conversion import example_of, require_columns
from uatlite.data.files import STDIN, open_bytes, row_files
from uatlite.data.reading import Reject, Row, excerpt, read_rows
from uatlite.data.remote import is_remote
from uatlite.errors import DataError, InputError
from uatlite.scoring.blocks import Item
from uatlite.scoring.job import Job
from uatlite.values import Choices, Example

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
