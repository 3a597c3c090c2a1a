"""Running a job: read, score block by block, put the output together.

Each block becomes a part on disk before the next is read. A run that was killed reads its input again, finds by a
digest that the blocks it has are of the same rows, and goes on with the first that is missing. Only when all are
there is the output written, under a temporary name, and then given its own.
"""

import json
import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from uatlite.classifier import UncertaintyClassifier
from uatlite.classifier.prediction import MEASURES
from uatlite.data.files import format_of
from uatlite.data.writing import WRITERS, atomic_file, row_writer
from uatlite.decision import trust
from uatlite.errors import StoreError, check_choice
from uatlite.scoring.blocks import Block, blocks
from uatlite.scoring.job import Job, Progress
from uatlite.scoring.monitor import ShiftMonitor
from uatlite.scoring.parts import Counts, Parts, Row
from uatlite.scoring.reading import read_items
from uatlite.scoring.summary import Summary
from uatlite.values import Example

CLASH = "input_"
"""What a carried-along column is prefixed with where the output has a column of its name."""


def score_file(
    classifier: UncertaintyClassifier, job: Job, on_progress: Callable[[Progress], None] = lambda progress: None
) -> Summary:
    """Score every row of a file; the output holds each row once, in the order of the input."""
    check_choice(f"the format of {job.output.name}", format_of(job.output), WRITERS)
    parts = Parts(job.output)
    if job.output.exists() and not job.overwrite and not (job.resume and parts.directory.exists()):
        return _already_whole(classifier, job)
    items = read_items(classifier, job)
    parts.open(job.describe(classifier), resume=job.resume, overwrite=job.overwrite)
    calibration = classifier.checked_calibration()
    monitor = ShiftMonitor(None if calibration is None else calibration.shift)
    progress, done = Progress(), 0
    for block in blocks(items):
        known = parts.counts(block.number)
        if known is not None and known.digest != block.digest:
            raise _changed(parts, job)
        counts = _score(classifier, block, parts, job) if known is None else known
        _watch(classifier, block, parts, monitor)
        progress = progress.after(counts, resumed=known is not None)
        done = block.number + 1
        on_progress(progress)
    if len(parts) != done:
        raise _changed(parts, job)
    summary = _summary(classifier, job, progress, monitor)
    _assemble(parts, job, summary)
    return summary


def _already_whole(classifier: UncertaintyClassifier, job: Job) -> Summary:
    """The summary of an output that is there, if the run is to be resumed and it is of this very job."""
    if job.resume and job.summary_path.is_file():
        values = json.loads(job.summary_path.read_text(encoding="utf-8"))
        if values.get("job") == job.describe(classifier):
            return Summary.from_dict(values)
    raise StoreError(f"{job.output} exists; give another name, or --overwrite to replace it.")


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


def _watch(classifier: UncertaintyClassifier, block: Block, parts: Parts, monitor: ShiftMonitor) -> None:
    """Let the monitor see a part as it is on disk, so that a resumed run sees what the first one saw."""
    calibration = classifier.calibration_
    rows = [] if calibration is None or calibration.shift is None else list(parts.rows(block.number))
    if not rows or calibration is None or calibration.shift is None:
        return
    columns = {name: np.array([row[name] for row in rows]) for name in MEASURES}
    distances = [row["distance"] for row in rows] if "distance" in rows[0] else None
    places = [block.first + place for place, item in enumerate(block.items) if isinstance(item, Example)]
    monitor.add(places, trust(calibration.shift.score, SimpleNamespace(**columns)), distances)


def _summary(classifier: UncertaintyClassifier, job: Job, progress: Progress, monitor: ShiftMonitor) -> Summary:
    rule = None if classifier.calibration_ is None else classifier.calibration_.rule
    return Summary(
        job=job.describe(classifier),
        rows=progress.rows,
        rejected=progress.rejected,
        abstained=None if rule is None else progress.abstained,
        truncated_texts=progress.truncated_texts,
        truncated_tokens=progress.truncated_tokens,
        shift=monitor.report(),
        promise=None if rule is None else rule.describe(),
        rejects=str(job.rejects_path) if progress.rejected else None,
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


def _changed(parts: Parts, job: Job) -> StoreError:
    return StoreError(
        f"{job.input} is not what it was when {parts.directory.name} was begun; start again by --overwrite."
    )
