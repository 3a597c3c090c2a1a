"""Scoring a file: read it block by block, score each block into a part on disk, put the output together.

    predictions.csv.unfinished/
      job.json            the record of the job: only the same job continues it
      part-000000.jsonl   a line of counts, then the rows of output and the rejects of a block, as JSON

A killed run is resumed: it reads its input again, compares the digests of its blocks with those of the parts it has,
and scores the blocks that are missing. The output is written when all parts are there, whole or not at all.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.display import ABSTAINING
from uatlite.classifier.entities import ENTITY_EXAMPLE
from uatlite.classifier.predictions import MEASURES
from uatlite.classifier.product import Predictor, Product
from uatlite.classifier.record import Calibration
from uatlite.codec import dump, load
from uatlite.errors import StoreError
from uatlite.scoring.job import Job, Summary, Tally
from uatlite.scoring.scored_rows import INPUT_PREFIX, ScoredRow
from uatlite.scoring.source import Block, Source, blocks
from uatlite.scoring.workload import Workload, check_reviews
from uatlite.text.files import format_of
from uatlite.text.write import Pieces, read_record, row_writer, write_record
from uatlite.trust.shift import ShiftReport, these
from uatlite.values import Example, ScoredText

Columns = dict[str, Any]
Line = tuple[str, Columns]
"""("row", a row of output) or ("reject", a row of the input that cannot be scored)"""
OnProgress = Callable[[Tally], None]

EXAMPLES = dict.fromkeys((*MEASURES, "above_threshold"), 0.0) | {"entities": ENTITY_EXAMPLE, "missed_at": [0, 3]}
"""Columns that may be empty in the first rows and not in later ones, with a value that shows their type."""
SAMPLE = 10_000
"""Rows that are compared for a shift. More would show little more: the calibration rows are fewer than this."""


def score_file(
    classifier: Product[Any], job: Job, on_progress: OnProgress = lambda tally: None, *, source: Source | None = None
) -> Summary:
    """Score every row of a file; the output holds each row once, in the order of the input.

    `source` is the input, from a caller that opened it before the model was loaded.
    """
    predictor = classifier.predictor()
    run = ScoringRun(job, predictor, source or Source(job.input, format=job.format))
    return run.by(lambda blocks: (score_block(predictor, block, run.parts, run.job) for block in blocks), on_progress)


@dataclass(frozen=True)
class Part:
    """What a scored block gives: the block's digest, its counts, and a line for each of its rows, in their order."""

    digest: str
    tally: Tally
    lines: list[Line]


@dataclass(frozen=True)
class Parts(Pieces):
    """The directory of finished parts beside an output; a part appears under its name when it is complete."""

    record: str = "job.json"

    @classmethod
    def of(cls, output: Path) -> Self:
        """The parts of an output file."""
        return cls(output.with_name(f"{output.name}.unfinished"))

    def __len__(self) -> int:
        return len(self.names("part-*.jsonl"))

    @staticmethod
    def name(number: int) -> str:
        """That of the part of a block."""
        return f"part-{number:06d}.jsonl"

    def open(self, record: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        """Create the directory for a job or, with `resume`, continue that of the same job."""
        if overwrite and not resume:
            self.remove()
        if self.directory.exists() and not resume:
            raise StoreError(
                f"{self.directory} holds {len(self)} parts of an unfinished run; continue it with --resume, "
                "or start again with --overwrite."
            )
        if not self.begun:
            if len(self):
                raise StoreError(f"{self.directory} has parts and no {self.record}; start again with --overwrite.")
            self.begin(record)
        elif differences := self.differences(record):
            raise StoreError(
                f"{self.directory} belongs to another run: {', '.join(differences)} differ. Resume that run, "
                "or start again with --overwrite."
            )

    def changed(self, source: str) -> StoreError:
        """The error for parts of other rows than `source` has now."""
        return StoreError(f"{source} has changed since {self.directory.name} was begun; start again with --overwrite.")

    def put(self, number: int, scored: Part) -> None:
        """Write a part, whole or not at all."""
        with self.write(self.name(number)) as file:
            for line in (("counts", {"digest": scored.digest, **dump(scored.tally)}), *scored.lines):
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n")

    def get(self, number: int) -> Part | None:
        """A part; None where it is missing or broken, so that its block is scored again."""
        return self.read(self.name(number), _read_part)


def _read_part(path: Path) -> Part:
    with open(path, encoding="utf-8") as file:
        (_, counts), *lines = ((kind, values) for kind, values in map(json.loads, file))
    digest = str(counts.pop("digest"))
    return Part(digest, load(Tally, counts, advice="score its rows again."), lines)


def score_block(predictor: Predictor, block: Block, parts: Parts, job: Job) -> Tally:
    """Write the part of a block, unless it is there already, and count it; a part of other rows is an error."""
    digest, scored, examples = block.digest, parts.get(block.number), block.examples
    if scored is not None:
        if scored.digest != digest:
            raise parts.changed(job.input)
        return replace(scored.tally, resumed=scored.tally.seen)
    texts = [example.text for example in examples]
    predictions = predictor.predict(texts)
    tally = Tally(
        rows=len(examples),
        rejected=len(block.items) - len(examples),
        abstained=int(predictions.abstain.sum()) if predictions.rules else None,
        truncated_texts=predictions.truncated_texts,
        truncated_tokens=predictions.truncated_tokens,
        reasons=dict(Counter(predictions.reasons)),
    )
    rows = predictions.rows()
    if job.tokens:
        rows = (row | {"tokens": of} for row, of in zip(rows, predictor.tokens(texts), strict=True))
    lines = [
        ("row", _row(item, next(rows), job)) if isinstance(item, Example) else ("reject", item.as_row())
        for item in block.items
    ]
    parts.put(block.number, Part(digest, tally, lines))
    return tally


def _row(example: Example, prediction: Columns, job: Job) -> Columns:
    """A row of output: the id, the kept columns, the prediction."""
    row: Columns = {"id": example.id}
    for column in job.kept:
        value = example.meta.get(column)
        if isinstance(value, float) and not math.isfinite(value):
            value = None  # a table's missing number, which JSON cannot write
        if format_of(job.output) == "parquet" and value is not None and not isinstance(value, str):
            value = json.dumps(value, default=str)  # a Parquet column has one type, and a later row may have another
        row[f"{INPUT_PREFIX}{column}" if column in {"id", *prediction} else column] = value
    if isinstance(example.text, ScoredText) and job.carries:
        row |= example.text.columns(vector=bool(job.texts))
    return row | prediction


class ScoringRun:
    """A job under way: cuts its input, counts the scored blocks, in any order and from any process, writes the output.

    A missing column, or an output that may not be written, is an error at once.
    """

    def __init__(self, job: Job, predictor: Predictor, source: Source) -> None:
        job.check_output()
        kind, classes = predictor.kind, predictor.class_names
        self.job = job = replace(job, layout=source.text_layout(job.layout, kind.name))
        source.check(job.layout, also=job.named)
        if job.tokens:
            predictor.tokens(())  # raises before anything is written
        layout = replace(job.layout, meta=job.kept)
        self.items = source.items(layout, kind=kind, classes=classes, strict=job.strict)
        self.record = job.record(predictor)
        self.parts = Parts.of(job.output)
        calibration = predictor.calibration
        self._rules = () if calibration is None else calibration.rules
        self._sample = None if job.reviews is None else check_reviews(calibration)
        self._shift = None if calibration is None or calibration.shift is None else ShiftMonitor(calibration)

    def by(self, score: Callable[[Iterator[Block]], Iterable[Tally]], on_progress: OnProgress) -> Summary:
        """Count every block of the input once `score` has its part on disk, and write the output.

        Of an output that an earlier run of the same job finished the summary is read.
        """
        job = self.job
        if job.output.exists() and not job.overwrite and not self.parts.directory.exists():
            summary = read_record(job.summary_path)
            if summary is None or summary.get("job") != self.record:
                raise job.exists
            return Summary.from_dict(summary)
        self.parts.open(self.record, resume=job.resume, overwrite=job.overwrite)
        tally, count = Tally(abstained=0 if self._rules else None), 0
        for of_block in score(blocks(self.items)):
            tally, count = tally + of_block, count + 1
            on_progress(tally)
        if len(self.parts) != count:
            raise self.parts.changed(job.input)
        return self._write_output(tally)

    def _lines(self) -> Iterator[list[Line]]:
        """The lines of each part, in the order of the input."""
        for number in range(len(self.parts)):
            scored = self.parts.get(number)
            if scored is None:
                path = self.parts.path(self.parts.name(number))
                raise StoreError(f"{path} is missing or broken; run again with --resume to replace it.")
            yield scored.lines

    def _write_output(self, tally: Tally) -> Summary:
        """Write rows, rejects and summary. The output gets its name last: where it exists, the others do."""
        job, position, reviews = self.job, 0, None
        if self._sample is not None and job.reviews is not None:
            rows = (ScoredRow(values) for lines in self._lines() for kind, values in lines if kind == "row")
            reviews = Workload.of(self._sample, rows, job.reviews)
            tally = replace(tally, abstained=0, reasons={})
            if self._shift is not None:
                self._shift.calibration = replace(self._shift.calibration, rules=(reviews.rule,))
        job.rejects_path.unlink(missing_ok=True)
        with (
            row_writer(job.output, examples=EXAMPLES) as write,
            row_writer(job.rejects_path) if tally.rejected else nullcontext(write) as write_reject,
        ):
            for lines in self._lines():
                if reviews is not None:
                    lines = [(kind, reviews.decided(values) if kind == "row" else values) for kind, values in lines]
                    reasons = Counter(values["reason"] for kind, values in lines if kind == "row")
                    tally += Tally(abstained=sum(reasons[why] for why in ABSTAINING), reasons=reasons)
                for kind, values in lines:
                    (write if kind == "row" else write_reject)(values)
                if self._shift is not None:
                    self._shift.add(lines, position)
                position += len(lines)
            broken = [] if reviews else [rule for rule in self._rules if not rule.promised]
            told = [rule.describe() for rule in broken or self._rules] if reviews is None else [reviews.describe()]
            summary = Summary(
                **vars(tally),
                job=self.record,
                shift=None if self._shift is None else self._shift.report(),
                promise=" ".join(told) or None,
                promised=not broken if told else None,
                rejects=str(job.rejects_path) if tally.rejected else None,
            )
            write_record(job.summary_path, summary.to_dict())
        self.parts.remove()
        return summary


class ShiftMonitor:
    """Compares a stream with the calibration rows by a uniform sample of at most `size` rows.

    What a change means for the answers is told by all rows.

    A row is in the sample if a hash of its position is among the smallest. So the sample does not depend on how the
    stream was cut or resumed.
    """

    def __init__(self, calibration: Calibration, size: int = SAMPLE) -> None:
        assert calibration.shift is not None
        self.calibration, self.reference = calibration, calibration.shift
        self._size = size
        self._rows = self._answers = 0
        self._wrong = 0.0
        self._keys: NDArray[np.uint64] = np.zeros(0, dtype=np.uint64)
        self._values: NDArray[np.float64] = np.zeros((0, 2))

    def add(self, lines: Sequence[Line], position: int) -> None:
        """Add the rows among the lines of a part, the first of which has this position in the stream."""
        rows = [(i, ScoredRow(values)) for i, (kind, values) in enumerate(lines, position) if kind == "row"]
        if not rows:
            return
        self._rows += len(rows)
        for wrong in chain.from_iterable(row.wrong for _, row in rows):  # one by one: no sum depends on the parts
            self._answers, self._wrong = self._answers + 1, self._wrong + wrong
        scored = [
            (row.score(self.reference.score), row.number("scope") if "scope" in row.values else np.nan)
            for _, row in rows
        ]
        keys = np.concatenate([self._keys, hashed(np.array([i for i, _ in rows], dtype=np.uint64))])
        kept = np.argsort(keys, kind="stable")[: self._size]
        self._keys, self._values = keys[kept], np.concatenate([self._values, scored])[kept]

    def report(self) -> ShiftReport:
        """Whether the stream is like the calibration rows."""
        scores, scope = self._values.T
        has_scope = len(scores) > 0 and not np.isnan(scope).any()
        report = self.reference.check(scores, scope if has_scope else None)
        return self.calibration.judged(report, these(self._rows), self._rows, self._answers, self._wrong)


def hashed(positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection of 64-bit integers whose results look random."""
    with np.errstate(over="ignore"):
        z = positions + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
