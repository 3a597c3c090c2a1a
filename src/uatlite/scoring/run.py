"""Scoring a file: read it block by block, score each block into a part on disk, put the output together.

A killed run is resumed: it reads its input again, compares the digests of its blocks with those of the parts it has,
and scores the blocks that are missing. The output is written when all parts are there, whole or not at all.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.classifier.entities import ENTITY_EXAMPLE
from uatlite.classifier.evidence import CalibrationRecord
from uatlite.classifier.predictions import MEASURES
from uatlite.classifier.product import Product
from uatlite.errors import StoreError, check_choice
from uatlite.scoring.blocks import TextShape, blocks, open_rows, read_items
from uatlite.scoring.job import Job, Progress, Summary
from uatlite.scoring.parts import Parts, ScoredBlock, score_block
from uatlite.text.files import format_of
from uatlite.text.pieces import read_record, write_record
from uatlite.text.rows import Reject, Row
from uatlite.text.write import WRITERS, row_writer
from uatlite.trust.shift import ShiftReference, ShiftReport

OnProgress = Callable[[Progress], None]

NUMBERS = (*MEASURES, "above_threshold")
"""Columns of numbers that may be empty in the first rows and not in later ones."""
EXAMPLES = {"entities": ENTITY_EXAMPLE, "missed_at": [0, 3]}
"""Columns of lists that may be empty in the first rows and not in later ones, with a value that shows their type."""
SAMPLE = 10_000
"""Rows that are compared for a shift. More would show little more: the calibration rows are fewer than this."""


def score_file(
    classifier: Product[Any],
    job: Job,
    on_progress: OnProgress = lambda progress: None,
    *,
    rows: Iterator[Row | Reject] | None = None,
) -> Summary:
    """Score every row of a file; the output holds each row once, in the order of the input.

    `rows` is `open_rows(job)`, from a caller that opened the input before it loaded the model.
    """
    check_output(job)
    predictor = classifier.predictor()
    record = job.record(predictor)
    if (summary := finished(job, record)) is not None:
        return summary
    rows = open_rows(job) if rows is None else rows
    run = ScoringRun(job, record, predictor.calibration)
    for block in blocks(read_items(rows, TextShape.of(classifier), job)):
        on_progress(run.add(score_block(predictor, block, run.parts, job)))
    return run.finish()


def check_output(job: Job) -> None:
    """Raise where the output cannot be written in its format, or exists and may not be replaced."""
    check_choice(f"the format of {job.output.name}", format_of(job.output), WRITERS)
    if job.output.exists() and not job.overwrite and not job.resume:
        raise _exists(job)


def finished(job: Job, record: Mapping[str, Any]) -> Summary | None:
    """The summary of an output that an earlier run of the same job finished; None where there is work to do."""
    if not job.output.exists() or job.overwrite or Parts(job.output).directory.exists():
        return None
    values = read_record(job.summary_path)
    if values is None or values.get("job") != record:
        raise _exists(job)
    return Summary.from_dict(values)


def _exists(job: Job) -> StoreError:
    return StoreError(f"{job.output} exists; give another name, or --overwrite to replace it.")


class ScoringRun:
    """A job under way: counts the scored blocks, in any order and from any process, and writes the output."""

    def __init__(self, job: Job, record: Mapping[str, Any], calibration: CalibrationRecord | None) -> None:
        self.parts = Parts(job.output)
        self.parts.open(record, resume=job.resume, overwrite=job.overwrite)
        self._job = job
        self._record = record
        self._rule = None if calibration is None else calibration.rule
        self._monitor = ShiftMonitor(None if calibration is None else calibration.shift)
        self._progress = Progress()
        self._blocks = 0

    def add(self, scored: ScoredBlock) -> Progress:
        """Count a block whose part is on disk."""
        if scored.sample is not None:
            self._monitor.add(scored.sample.positions, scored.sample.scores, scored.sample.scope)
        self._progress = self._progress.after(scored.counts, resumed=scored.resumed)
        self._blocks += 1
        return self._progress

    def finish(self) -> Summary:
        """Write the output, once every block of the input was added."""
        if len(self.parts) != self._blocks:
            raise self.parts.changed(self._job.input)
        progress = self._progress
        summary = Summary(
            job=self._record,
            rows=progress.rows,
            rejected=progress.rejected,
            abstained=None if self._rule is None else progress.abstained,
            truncated_texts=progress.truncated_texts,
            truncated_tokens=progress.truncated_tokens,
            reasons=progress.reasons,
            shift=self._monitor.report(),
            promise=None if self._rule is None else self._rule.describe(),
            rejects=str(self._job.rejects_path) if progress.rejected else None,
        )
        _write_output(self.parts, self._job, summary)
        return summary


def _write_output(parts: Parts, job: Job, summary: Summary) -> None:
    """Write summary, rejects and output. The output gets its name last: where it exists, the others do."""
    job.rejects_path.unlink(missing_ok=True)
    write_record(job.summary_path, summary.to_dict())
    with (
        row_writer(job.output, numbers=NUMBERS, examples=EXAMPLES) as write,
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
