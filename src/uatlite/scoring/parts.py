"""The unfinished output: one file for each block that is done, kept until the whole can be put together.

    predictions.csv.unfinished/
      job.json            what is being computed: a run goes on only with parts of the same job
      part-000000.jsonl   a line of counts, then each row of output and each reject, as JSON

A part appears under its name when it is whole, so after a kill there are whole parts and nothing else.

One block of rows through a classifier into a part: what every engine does, wherever its workers are.
"""

import json
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.predictions import MEASURES
from uatlite.errors import DataError, StoreError
from uatlite.scoring.blocks import Block
from uatlite.scoring.job import Counts, Job
from uatlite.text.files import format_of
from uatlite.text.write import atomic_file
from uatlite.trust.rule import trust
from uatlite.values import Example

JOB = "job.json"
Row = dict[str, Any]


class Parts:
    """The directory of finished parts beside an output file."""

    def __init__(self, output: Path) -> None:
        self.directory = output.with_name(f"{output.name}.unfinished")

    def __len__(self) -> int:
        return sum(1 for _ in self.directory.glob("part-*.jsonl"))

    def open(self, job: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        """Make the directory for a job, or find it as the same job left it."""
        if self.directory.exists() and overwrite and not resume:
            self.remove()
        if not self.directory.exists():
            try:
                self.directory.mkdir(parents=True)
            except OSError as error:
                raise DataError(f"{self.directory} cannot be made: {error.strerror}.") from error
        elif not resume:
            raise StoreError(
                f"{self.directory} holds {len(self)} parts of an unfinished run; go on with it by --resume, "
                "or start again by --overwrite."
            )
        self._agree(job)

    def _agree(self, job: Mapping[str, object]) -> None:
        path = self.directory / JOB
        if not path.exists():
            if len(self):
                raise StoreError(f"{self.directory} has parts and no {JOB}; start again by --overwrite.")
            with atomic_file(path) as file:
                file.write(json.dumps(job, indent=2).encode())
            return
        differs = self._differences(job)
        if differs:
            raise StoreError(
                f"{self.directory} is of another run: {', '.join(differs)} differ. Run that one with --resume, "
                "or start again by --overwrite."
            )

    def is_of(self, job: Mapping[str, object]) -> bool:
        """Whether the directory is there and of this job."""
        return (self.directory / JOB).is_file() and not self._differences(job)

    def _differences(self, job: Mapping[str, object]) -> list[str]:
        before = json.loads((self.directory / JOB).read_text(encoding="utf-8"))
        return [name for name in job if before.get(name) != json.loads(json.dumps(job[name]))]

    def changed(self, source: str) -> StoreError:
        """What to raise where the parts are not of the rows that `source` has now."""
        return StoreError(
            f"{source} is not what it was when {self.directory.name} was begun; start again by --overwrite."
        )

    def path(self, number: int) -> Path:
        return self.directory / f"part-{number:06d}.jsonl"

    def write(self, number: int, counts: Counts, rows: list[Row], rejects: list[Row]) -> None:
        """Write a part, whole or not at all."""
        with atomic_file(self.path(number)) as file:
            for kind, value in [("counts", asdict(counts)), *_tagged("row", rows), *_tagged("reject", rejects)]:
                file.write(json.dumps([kind, value], ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n")

    def counts(self, number: int) -> Counts | None:
        """The counts of a part; None where it is not done."""
        try:
            return Counts(**next(self._lines(number, "counts")))
        except FileNotFoundError:
            return None

    def rows(self, number: int) -> Iterator[Row]:
        """The rows of output of a part."""
        return self._lines(number, "row")

    def rejects(self, number: int) -> Iterator[Row]:
        """The rows of the input that a part could not score."""
        return self._lines(number, "reject")

    def _lines(self, number: int, wanted: str) -> Iterator[Row]:
        with open(self.path(number), encoding="utf-8") as file:
            for line in file:
                kind, value = json.loads(line)
                if kind == wanted:
                    yield value

    def remove(self) -> None:
        """Remove the directory and all parts; out of the way first, so that a kill leaves no half of it."""
        aside = self.directory.with_name(f"{self.directory.name}.{secrets.token_hex(4)}.removed")
        self.directory.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _tagged(kind: str, rows: list[Row]) -> list[tuple[str, Row]]:
    return [(kind, row) for row in rows]


CLASH = "input_"
"""What a carried-along column is prefixed with where the output has a column of its name."""


@dataclass(frozen=True, eq=False)
class Glimpse:
    """What a shift monitor sees of a block."""

    places: NDArray[np.int64]
    """(rows,): where they stand in the input"""
    scores: NDArray[np.float64]
    """(rows,): what the rule abstains by"""
    distances: NDArray[np.float64] | None
    """(rows,): squared, from the calibration rows"""


@dataclass(frozen=True, eq=False)
class Scored:
    """What became of one block: it is a part on disk, these are its counts."""

    counts: Counts
    resumed: bool
    """whether an earlier run had done it"""
    glimpse: Glimpse | None
    """None where there is no calibration to compare with, or no row"""


def score_block(classifier: UncertaintyClassifier, block: Block, parts: Parts, job: Job) -> Scored:
    """Make a block a part, unless it is one already; a part that is of other rows is an error."""
    known = parts.counts(block.number)
    if known is not None and known.digest != block.digest:
        raise parts.changed(job.input)
    counts = _score(classifier, block, parts, job) if known is None else known
    return Scored(counts, known is not None, _glimpse(classifier, block, parts))


def _score(classifier: UncertaintyClassifier, block: Block, parts: Parts, job: Job) -> Counts:
    examples = block.examples
    predictions = classifier.predict([example.text for example in examples], check_shift=False)
    rows = [_row(example, row, job) for example, row in zip(examples, predictions.rows(), strict=True)]
    counts = Counts(
        digest=block.digest,
        rows=len(examples),
        rejected=len(block.rejects),
        abstained=0 if predictions.rule is None else int(predictions.abstain.sum()),
        truncated_texts=predictions.truncated_texts,
        truncated_tokens=predictions.truncated_tokens,
    )
    parts.write(block.number, counts, rows, [reject.as_row() for reject in block.rejects])
    return counts


def _row(example: Example, prediction: Row, job: Job) -> Row:
    """The id, the columns to carry along, the prediction."""
    row: Row = {"id": example.id}
    for column in job.layout.meta:
        value = example.meta.get(column)
        if isinstance(value, float) and not math.isfinite(value):
            value = None  # as a table's missing number reaches us, and JSON has no word for it
        if format_of(job.output) == "parquet" and value is not None and not isinstance(value, str):
            value = json.dumps(value, default=str)  # a Parquet column has one type, and a later row may have another
        row[f"{CLASH}{column}" if column in {"id", *prediction} else column] = value
    return row | prediction


def _glimpse(classifier: UncertaintyClassifier, block: Block, parts: Parts) -> Glimpse | None:
    """A part as it is on disk, so that a resumed run sees what the first one saw."""
    calibration = classifier.calibration_
    if calibration is None or calibration.shift is None or not block.examples:
        return None
    rows = list(parts.rows(block.number))
    columns = {name: np.array([row[name] for row in rows]) for name in MEASURES}
    places = [block.first + place for place, item in enumerate(block.items) if isinstance(item, Example)]
    return Glimpse(
        places=np.array(places, dtype=np.int64),
        scores=trust(calibration.shift.score, SimpleNamespace(**columns)),
        distances=np.array([row["distance"] for row in rows]) if "distance" in rows[0] else None,
    )
