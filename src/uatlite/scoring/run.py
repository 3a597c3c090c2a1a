"""Scoring a file: read it block by block, score each block into a part on disk, put the output together.

A killed run is resumed: it reads its input again, compares the digests of its blocks with those of the parts it has,
and scores the blocks that are missing. The output is written when all parts are there, whole or not at all.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.classifier.answer_kind import AnswerKind
from uatlite.classifier.entities import ENTITY_EXAMPLE
from uatlite.classifier.predictions import MEASURES
from uatlite.classifier.product import Predictor, Product
from uatlite.errors import StoreError, check_choice
from uatlite.scoring.job import Job, Summary, Tally
from uatlite.scoring.parts import Part, Parts, Row
from uatlite.scoring.scored_rows import INPUT_PREFIX, ScoredRow
from uatlite.scoring.source import Block, Item, Source, blocks
from uatlite.text.files import format_of
from uatlite.text.write import WRITERS, read_record, row_writer, write_record
from uatlite.trust.shift import ShiftReference, ShiftReport
from uatlite.values import Example, Floats, Integers

OnProgress = Callable[[Tally], None]

NUMBERS = dict.fromkeys((*MEASURES, "above_threshold"), 0.0)
EXAMPLES = NUMBERS | {"entities": ENTITY_EXAMPLE, "missed_at": [0, 3]}
"""Columns that may be empty in the first rows and not in later ones, with a value that shows their type."""
SAMPLE = 10_000
"""Rows that are compared for a shift. More would show little more: the calibration rows are fewer than this."""


def score_file(
    classifier: Product[Any],
    job: Job,
    on_progress: OnProgress = lambda tally: None,
    *,
    source: Source | None = None,
) -> Summary:
    """Score every row of a file; the output holds each row once, in the order of the input.

    `source` is the input, from a caller that opened it before the model was loaded.
    """
    check_output(job)
    predictor = classifier.predictor()
    run = ScoringRun(job, predictor)
    if (summary := run.finished()) is not None:
        return summary
    items = scored_items(job, source or Source(job.input, format=job.format), predictor.kind, predictor.class_names)
    run.begin()
    for block in blocks(items):
        on_progress(run.add(score_block(predictor, block, run.parts, job)))
    return run.finish()


def scored_items(job: Job, source: Source, kind: AnswerKind, classes: Sequence[str]) -> Iterator[Item]:
    """The rows of a job's input for a model of this kind; raises at once where a column is missing."""
    source.check(job.layout, also=job.named)
    return source.items(replace(job.layout, meta=job.kept), kind=kind, classes=classes, strict=job.strict)


def check_output(job: Job) -> None:
    """Raise where the output cannot be written in its format, or exists and may not be replaced."""
    check_choice(f"the format of {job.output.name}", format_of(job.output), WRITERS)
    if job.output.exists() and not job.overwrite and not job.resume:
        raise _exists(job)


def _exists(job: Job) -> StoreError:
    return StoreError(f"{job.output} exists; give another name, or --overwrite to replace it.")


@dataclass(frozen=True, eq=False)
class ScoredBlock:
    """A block whose part is on disk: its counts, and what a shift is told by, (rows,) each."""

    tally: Tally
    positions: Integers
    """of the rows in the input"""
    scores: Floats | None
    """None where there are no calibration rows to compare with"""
    scope: Floats | None
    """p-values of being in scope; None where these are not known"""


def score_block(predictor: Predictor, block: Block, parts: Parts, job: Job) -> ScoredBlock:
    """Write the part of a block, unless it is there already; a part of other rows is an error."""
    digest = block.digest
    part = parts.read(block.number)
    if part is not None:
        if part.digest != digest:
            raise parts.changed(job.input)
        return _scored_block(predictor, block, replace(part.tally, resumed=part.tally.seen), part.rows)
    examples = block.examples
    predictions = predictor.predict([example.text for example in examples])
    tally = Tally(
        rows=len(examples),
        rejected=len(block.rejects),
        abstained=int(predictions.abstain.sum()) if predictions.rules else None,
        truncated_texts=predictions.truncated_texts,
        truncated_tokens=predictions.truncated_tokens,
        reasons=dict(Counter(predictions.reasons)),
    )
    rows = [_row(example, row, job) for example, row in zip(examples, predictions.rows(), strict=True)]
    parts.write(block.number, Part(digest, tally, rows, [reject.as_row() for reject in block.rejects]))
    return _scored_block(predictor, block, tally, rows)


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


def _scored_block(predictor: Predictor, block: Block, tally: Tally, rows: Sequence[Row]) -> ScoredBlock:
    shift = None if predictor.calibration is None else predictor.calibration.shift
    positions = [block.first + i for i, item in enumerate(block.items) if isinstance(item, Example)]
    scores = None if shift is None else np.array([ScoredRow(row).score(shift.score) for row in rows])
    scope = np.array([row["scope"] for row in rows]) if rows and "scope" in rows[0] else None
    return ScoredBlock(tally, np.array(positions, dtype=np.int64), scores, scope)


class ScoringRun:
    """A job under way: counts the scored blocks, in any order and from any process, and writes the output."""

    def __init__(self, job: Job, predictor: Predictor) -> None:
        self.record = job.record(predictor)
        self.parts = Parts(job.output)
        self._job = job
        calibration = predictor.calibration
        self._rules = () if calibration is None else calibration.rules
        self._monitor = ShiftMonitor(None if calibration is None else calibration.shift)
        self._tally = Tally(abstained=0 if self._rules else None)
        self._blocks = 0

    def finished(self) -> Summary | None:
        """The summary of an output that an earlier run of the same job finished; None where there is work to do."""
        job = self._job
        if not job.output.exists() or job.overwrite or self.parts.directory.exists():
            return None
        values = read_record(job.summary_path)
        if values is None or values.get("job") != self.record:
            raise _exists(job)
        return Summary.from_dict(values)

    def begin(self) -> None:
        """Make the directory of parts, or continue that of the same job."""
        self.parts.open(self.record, resume=self._job.resume, overwrite=self._job.overwrite)

    def add(self, scored: ScoredBlock) -> Tally:
        """Count a block whose part is on disk."""
        if scored.scores is not None and len(scored.scores):
            self._monitor.add(scored.positions, scored.scores, scored.scope)
        self._tally = self._tally + scored.tally
        self._blocks += 1
        return self._tally

    def finish(self) -> Summary:
        """Write the output, once every block of the input was added."""
        if len(self.parts) != self._blocks:
            raise self.parts.changed(self._job.input)
        broken = [rule for rule in self._rules if not rule.promised]
        summary = Summary(
            **vars(self._tally),
            job=self.record,
            shift=self._monitor.report(),
            promise=" ".join(rule.describe() for rule in broken or self._rules) or None,
            promised=not broken if self._rules else None,
            rejects=str(self._job.rejects_path) if self._tally.rejected else None,
        )
        _write_output(self.parts, self._job, summary)
        return summary


def _write_output(parts: Parts, job: Job, summary: Summary) -> None:
    """Write summary, rejects and output. The output gets its name last: where it exists, the others do."""
    job.rejects_path.unlink(missing_ok=True)
    write_record(job.summary_path, summary.to_dict())
    with (
        row_writer(job.output, examples=EXAMPLES) as write,
        row_writer(job.rejects_path) if summary.rejected else nullcontext(write) as write_reject,
    ):
        for number in range(len(parts)):
            part = parts.read(number)
            if part is None:
                raise StoreError(f"{parts.path(number)} is missing or broken; run again with --resume to replace it.")
            for row in part.rows:
                write(row)
            for reject in part.rejects:
                write_reject(reject)
    parts.remove()


class ShiftMonitor:
    """Compares a stream with the calibration rows by a uniform sample of at most `size` rows.

    A row is in the sample if a hash of its position is among the smallest. So the sample does not depend on how the
    stream was cut or resumed.
    """

    def __init__(self, reference: ShiftReference | None, size: int = SAMPLE) -> None:
        self._reference = reference
        self._size = size
        self._keys: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._values: NDArray[np.float64] = np.zeros((0, 2))

    def add(self, positions: ArrayLike, scores: ArrayLike, scope: ArrayLike | None) -> None:
        """Add rows of the stream: positions in it, scores and p-values of being in scope, (rows,) each."""
        if self._reference is None:
            return
        s = np.asarray(scores, dtype=np.float64)
        d = np.full(len(s), np.nan) if scope is None else np.asarray(scope, dtype=np.float64)
        keys = np.concatenate([self._keys, hashed(np.asarray(positions, dtype=np.uint64))])
        values = np.concatenate([self._values, np.column_stack([s, d])])
        kept = np.argsort(keys, kind="stable")[: self._size]
        self._keys, self._values = keys[kept], values[kept]

    def report(self) -> ShiftReport | None:
        """Whether the stream is like the calibration rows; None without a reference."""
        if self._reference is None:
            return None
        scores, scope = self._values.T
        known = len(scores) > 0 and not np.isnan(scope).any()
        return self._reference.check(scores, scope if known else None)


def hashed(positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection of 64-bit integers whose results look random."""
    with np.errstate(over="ignore"):
        z = positions + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
