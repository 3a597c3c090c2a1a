"""One block of rows through a classifier into a part: what every engine does, wherever its workers are."""

import json
import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier import UncertaintyClassifier
from uatlite.classifier.prediction import MEASURES
from uatlite.data.files import format_of
from uatlite.decision import trust
from uatlite.scoring.blocks import Block
from uatlite.scoring.job import Job
from uatlite.scoring.parts import Counts, Parts, Row
from uatlite.values import Example

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
