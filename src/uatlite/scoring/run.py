"""Watching a stream for a shift: a bounded sample of its scores and distances, compared once at the end.

Running a job: read, score block by block, put the output together.

Each block becomes a part on disk before the next is read. A run that was killed reads its input again, finds by a
digest that the blocks it has are of the same rows, and goes on with the first that is missing. Only when all are
there is the output written, under a temporary name, and then given its own.
"""

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import StoreError, check_choice
from uatlite.scoring.blocks import Accepted, blocks, read_items
from uatlite.scoring.job import Job, Progress, Summary
from uatlite.scoring.parts import Parts, Scored, score_block
from uatlite.text.files import format_of
from uatlite.text.write import WRITERS, atomic_file, row_writer
from uatlite.trust.shift import ShiftReference, ShiftReport

SAMPLE = 10_000
"""Rows that are compared. The calibration rows are fewer, and they limit what a test can see."""


class ShiftMonitor:
    """A uniform sample of at most `SAMPLE` rows of a stream.

    A row is in the sample if a hash of its place is among the smallest, so the sample is the same however the stream
    was cut and however often it was resumed.
    """

    def __init__(self, reference: ShiftReference | None, size: int = SAMPLE) -> None:
        self._reference = reference
        self._size = size
        self._keys: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._values: NDArray[np.float64] = np.zeros((0, 2))

    def add(self, places: ArrayLike, scores: ArrayLike, distances: ArrayLike | None) -> None:
        """Look at rows of the stream: their places in it (rows,), scores (rows,) and squared distances (rows,)."""
        if self._reference is None:
            return
        s = np.asarray(scores, dtype=np.float64)
        d = np.full(len(s), np.nan) if distances is None else np.asarray(distances, dtype=np.float64)
        keys = np.concatenate([self._keys, hashed(np.asarray(places, dtype=np.uint64))])
        values = np.concatenate([self._values, np.column_stack([s, d])])
        kept = np.argsort(keys, kind="stable")[: self._size]
        self._keys, self._values = keys[kept], values[kept]

    def report(self) -> ShiftReport | None:
        """Whether the rows seen are like the calibration rows; None without a summary of these."""
        if self._reference is None:
            return None
        scores, distances = self._values.T
        known = self._reference.ellipsoid is not None and len(scores) > 0 and not np.isnan(distances).any()
        return self._reference.check(scores, distances=distances if known else None)


def hashed(places: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a one-to-one map of 64 bits that leaves no order in them."""
    with np.errstate(over="ignore"):
        z = places + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


OnProgress = Callable[[Progress], None]


def score_file(classifier: UncertaintyClassifier, job: Job, on_progress: OnProgress = lambda progress: None) -> Summary:
    """Score every row of a file; the output holds each row once, in the order of the input."""
    if (whole := finished(classifier, job)) is not None:
        return whole
    items = read_items(Accepted.by(classifier), job)
    run = Run(classifier, job)
    for block in blocks(items):
        on_progress(run.add(score_block(classifier, block, run.parts, job)))
    return run.finish()


def finished(classifier: UncertaintyClassifier, job: Job) -> Summary | None:
    """The summary of an output that is there, where the run is to be resumed and it is of this very job.

    None where there is something to do; an output that must not be replaced is an error.
    """
    check_choice(f"the format of {job.output.name}", format_of(job.output), WRITERS)
    if not job.output.exists() or job.overwrite or (job.resume and Parts(job.output).directory.exists()):
        return None
    if job.resume and job.summary_path.is_file():
        values = json.loads(job.summary_path.read_text(encoding="utf-8"))
        if values.get("job") == job.describe(classifier):
            return Summary.from_dict(values)
    raise StoreError(f"{job.output} exists; give another name, or --overwrite to replace it.")


class Run:
    """A job under way: it counts the blocks that became parts, in any order, and puts the output together.

    Which process scored a block is nothing to it.
    """

    def __init__(self, classifier: UncertaintyClassifier, job: Job) -> None:
        self.parts = Parts(job.output)
        self._classifier = classifier
        self._job = job
        self._described = job.describe(classifier)
        self.parts.open(self._described, resume=job.resume, overwrite=job.overwrite)
        calibration = classifier.predictor().calibration
        self._monitor = ShiftMonitor(None if calibration is None else calibration.shift)
        self._progress = Progress()
        self._done = 0

    def add(self, scored: Scored) -> Progress:
        """Count a block that is a part now."""
        if scored.glimpse is not None:
            self._monitor.add(scored.glimpse.places, scored.glimpse.scores, scored.glimpse.distances)
        self._progress = self._progress.after(scored.counts, resumed=scored.resumed)
        self._done += 1
        return self._progress

    def finish(self) -> Summary:
        """Put the output together once every block of the input was added."""
        if len(self.parts) != self._done:
            raise self.parts.changed(self._job.input)
        summary = self._summary()
        _assemble(self.parts, self._job, summary)
        return summary

    def _summary(self) -> Summary:
        rule = None if self._classifier.calibration_ is None else self._classifier.calibration_.rule
        progress = self._progress
        return Summary(
            job=self._described,
            rows=progress.rows,
            rejected=progress.rejected,
            abstained=None if rule is None else progress.abstained,
            truncated_texts=progress.truncated_texts,
            truncated_tokens=progress.truncated_tokens,
            shift=self._monitor.report(),
            promise=None if rule is None else rule.describe(),
            rejects=str(self._job.rejects_path) if progress.rejected else None,
        )


def _assemble(parts: Parts, job: Job, summary: Summary) -> None:
    """Rejects and summary first: when the output is there under its name, so is all that belongs to it."""
    numbers = range(len(parts))
    job.rejects_path.unlink(missing_ok=True)
    if summary.rejected:
        with row_writer(job.rejects_path) as write:
            for number in numbers:
                for reject in parts.rejects(number):
                    write(reject)
    with atomic_file(job.summary_path) as file:
        file.write(json.dumps(summary.to_dict(), indent=2, ensure_ascii=False).encode() + b"\n")
    with row_writer(job.output) as write:
        for number in numbers:
            for row in parts.rows(number):
                write(row)
    parts.remove()
