"""The unfinished output of a job: one part on disk for each scored block.

    predictions.csv.unfinished/
      job.json            the record of the job: only the same job continues it
      part-000000.jsonl   a line of counts, then the rows of output and the rejects of a block, as JSON

A part appears under its name when it is complete, so a killed run leaves complete parts only.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.predictions import MEASURES
from uatlite.classifier.predictor import Predictor
from uatlite.classifier.several import TOP_LOG_ODDS
from uatlite.errors import StoreError
from uatlite.scoring.blocks import Block
from uatlite.scoring.job import Job, PartCounts
from uatlite.scoring.scored_rows import INPUT_PREFIX
from uatlite.text.files import format_of
from uatlite.text.pieces import Pieces
from uatlite.trust.rule import trust
from uatlite.values import Example, Floats

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """What a scored block gives."""

    counts: PartCounts
    rows: list[Row]
    """the rows of output"""
    rejects: list[Row]
    """the rows of the input that cannot be scored"""


class Parts:
    """The directory of finished parts beside an output file."""

    def __init__(self, output: Path) -> None:
        self._pieces = Pieces(output.with_name(f"{output.name}.unfinished"), record="job.json")
        self.directory = self._pieces.directory

    def __len__(self) -> int:
        return len(self._pieces.names("part-*.jsonl"))

    def open(self, record: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        """Create the directory for a job or, with `resume`, continue that of the same job."""
        if overwrite and not resume:
            self.remove()
        if self.directory.exists() and not resume:
            raise StoreError(
                f"{self.directory} holds {len(self)} parts of an unfinished run; continue it with --resume, "
                "or start again with --overwrite."
            )
        if not self._pieces.begun:
            if len(self):
                raise StoreError(
                    f"{self.directory} has parts and no {self._pieces.record}; start again with --overwrite."
                )
            self._pieces.begin(record)
        elif differences := self._pieces.differences(record):
            raise StoreError(
                f"{self.directory} belongs to another run: {', '.join(differences)} differ. Resume that run, "
                "or start again with --overwrite."
            )

    def belongs_to(self, record: Mapping[str, object]) -> bool:
        """Whether the directory exists and is of this job."""
        return self._pieces.begun and not self._pieces.differences(record)

    def changed(self, source: str) -> StoreError:
        """The error for parts of other rows than `source` has now."""
        return StoreError(f"{source} has changed since {self.directory.name} was begun; start again with --overwrite.")

    def path(self, number: int) -> Path:
        """Where the part of this number is, or will be."""
        return self._pieces.path(_name(number))

    def write(self, number: int, part: Part) -> None:
        """Write a part, whole or not at all."""
        rows, rejects = (("row", row) for row in part.rows), (("reject", row) for row in part.rejects)
        with self._pieces.write(_name(number)) as file:
            for line in (("counts", asdict(part.counts)), *rows, *rejects):
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n")

    def read(self, number: int) -> Part | None:
        """A part; None where it is missing or broken, so that its block is scored again."""
        return self._pieces.read(_name(number), _read_part)

    def remove(self) -> None:
        """Remove the directory and all its parts."""
        self._pieces.remove()


def _name(number: int) -> str:
    return f"part-{number:06d}.jsonl"


def _read_part(path: Path) -> Part:
    values: dict[str, list[Row]] = {"counts": [], "row": [], "reject": []}
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, value = json.loads(line)
            values[kind].append(value)
    (counts,) = values["counts"]
    return Part(PartCounts(**counts), values["row"], values["reject"])


@dataclass(frozen=True, eq=False)
class ShiftSample:
    """The rows of a block as a shift monitor needs them."""

    positions: NDArray[np.int64]
    """(rows,): positions in the input"""
    scores: NDArray[np.float64]
    """(rows,): the score of the abstention rule"""
    scope: NDArray[np.float64] | None
    """(rows,): p-values of being in scope"""


@dataclass(frozen=True, eq=False)
class ScoredBlock:
    """A block whose part is on disk."""

    counts: PartCounts
    resumed: bool
    """whether an earlier run scored it"""
    sample: ShiftSample | None
    """None where there is no row, or no calibration to compare with"""


def score_block(predictor: Predictor, block: Block, parts: Parts, job: Job) -> ScoredBlock:
    """Write the part of a block, unless it is there already; a part of other rows is an error."""
    digest = block.digest
    part = parts.read(block.number)
    if part is not None:
        if part.counts.digest != digest:
            raise parts.changed(job.input)
        return ScoredBlock(part.counts, True, _sample(predictor, block, measures_of(part.rows)))
    examples = block.examples
    predictions = predictor.predict([example.text for example in examples])
    counts = PartCounts(
        digest=digest,
        rows=len(examples),
        rejected=len(block.rejects),
        abstained=0 if predictions.rule is None else int(predictions.abstain.sum()),
        truncated_texts=predictions.truncated_texts,
        truncated_tokens=predictions.truncated_tokens,
        reasons=dict(Counter(predictions.reasons)),
    )
    rows = [_row(example, row, job) for example, row in zip(examples, predictions.rows(), strict=True)]
    parts.write(block.number, Part(counts, rows, [reject.as_row() for reject in block.rejects]))
    return ScoredBlock(counts, False, _sample(predictor, block, predictions))


def _row(example: Example, prediction: Row, job: Job) -> Row:
    """A row of output: the id, the kept columns, the prediction."""
    row: Row = {"id": example.id}
    for column in job.kept:
        value = example.meta.get(column)
        if isinstance(value, float) and not math.isfinite(value):
            value = None  # a table's missing number, which JSON cannot write
        if format_of(job.output) == "parquet" and value is not None and not isinstance(value, str):
            value = json.dumps(value, default=str)  # a Parquet column has one type, and a later row may have another
        row[f"{INPUT_PREFIX}{column}" if column in {"id", *prediction} else column] = value
    return row | prediction


def measures_of(rows: Sequence[Row]) -> SimpleNamespace:
    """The measures and p-values of rows of output, (rows,) each, named as in `Predictions`; NaN where not known."""
    measures = [name for name in (*MEASURES, TOP_LOG_ODDS) if rows and name in rows[0]]
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in measures}
    known = bool(rows) and "scope" in rows[0]
    return SimpleNamespace(**columns, scope=np.array([row["scope"] for row in rows]) if known else None)


def _sample(predictor: Predictor, block: Block, measures: Any) -> ShiftSample | None:
    """The sample of a block, from its predictions or from the columns of its part."""
    shift = None if predictor.calibration is None else predictor.calibration.shift
    positions = [block.first + place for place, item in enumerate(block.items) if isinstance(item, Example)]
    if shift is None or not positions:
        return None
    scores = shift_scores(shift.score, measures)
    return ShiftSample(np.array(positions, dtype=np.int64), scores, measures.scope)


def shift_scores(name: str, measures: Any) -> Floats:
    """What tells a shift, (rows,), from predictions or the measures of rows: a score of trust, or the log-odds."""
    return np.asarray(measures.log_odds) if name == TOP_LOG_ODDS else trust(name, measures)
