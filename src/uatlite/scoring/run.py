"""Running a job: read, score block by block, put the output together.

Each block becomes a part on disk before the next is read. A run that was killed reads its input again, finds by a
digest that the blocks it has are of the same rows, and goes on with the first that is missing. Only when all are
there is the output written, under a temporary name, and then given its own.
"""

import json
from collections.abc import Callable

from uatlite.classifier import UncertaintyClassifier
from uatlite.data.files import format_of
from uatlite.data.writing import WRITERS, atomic_file, row_writer
from uatlite.errors import StoreError, check_choice
from uatlite.scoring.blocks import blocks
from uatlite.scoring.job import Job, Progress
from uatlite.scoring.monitor import ShiftMonitor
from uatlite.scoring.parts import Parts
from uatlite.scoring.reading import Accepted, read_items
from uatlite.scoring.scored import Scored, score_block
from uatlite.scoring.summary import Summary

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
        calibration = classifier.checked_calibration()
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
