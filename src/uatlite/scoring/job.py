"""The values of a scoring run: the job, the counts so far, and the summary written beside the output."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from uatlite.classifier.display import ABSTAINING
from uatlite.classifier.product import Predictor
from uatlite.classifier.record import Calibration
from uatlite.codec import NOT_STORED, Arrays, dump, load
from uatlite.errors import StoreError, check_choice
from uatlite.text.files import STDIN, format_of, is_remote
from uatlite.text.schema import Layout
from uatlite.text.write import WRITERS, rejected_line
from uatlite.trust.shift import ShiftReport
from uatlite.values import counted


@dataclass(frozen=True)
class Job:
    """What to score (a file, a directory, an address, or '-'), which columns to read, and where the output goes."""

    input: str
    output: Path
    layout: Layout = field(default_factory=lambda: Layout(label=None))
    """the columns of the text and the id; those in `meta` are kept in the output"""
    format: str | None = None
    rejects: Path | None = None
    """the file that lists rejected rows; by default beside the output"""
    texts: bool | None = None
    """whether the columns of the text are kept too; by default in CSV, which people read"""
    strict: bool = False
    """whether a row that cannot be scored is an error"""
    resume: bool = False
    overwrite: bool = False
    tokens: bool = False
    """whether the tokens of each text are written too, with the U of each"""
    reviews: int | None = None
    """how many texts are left to a person, whatever the rule says; None: the rule decides"""

    @cached_property
    def carries(self) -> bool:
        """Whether the texts stand in the output too."""
        return format_of(self.output) == "csv" if self.texts is None else self.texts

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The columns of the input that are copied to the output: those of the text, then those in `layout.meta`."""
        layout = self.layout
        texts = [name for name in (layout.text, layout.pair, layout.options) if name]
        named = dict.fromkeys([*(texts if self.carries else ()), *layout.meta])
        return tuple(name for name in named if name != "id" or layout.id != "id")  # else it stands in the output as id

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that the input must have besides the text: those to keep, and the id where its column was chosen."""
        id = self.layout.id
        return self.kept if id is None or id == Layout().id else (*self.kept, id)

    @property
    def review_path(self) -> Path:
        return self.output.with_name(f"{self.output.name}.review.csv")

    @property
    def rejects_path(self) -> Path:
        return self.rejects or self.output.with_name(f"{self.output.name}.rejects.jsonl")

    @property
    def summary_path(self) -> Path:
        return self.output.with_name(f"{self.output.name}.summary.json")

    @property
    def source(self) -> str:
        """The input; a path is made absolute, so that it means the same in every working directory."""
        return self.input if self.input == STDIN or is_remote(self.input) else str(Path(self.input).absolute())

    def check_output(self) -> None:
        """Raise where the output cannot be written in its format, or exists and may not be replaced."""
        check_choice(f"the format of {self.output.name}", format_of(self.output), WRITERS)
        if self.output.exists() and not self.overwrite and not self.resume:
            raise self.exists

    @property
    def exists(self) -> StoreError:
        """The error for an output that may not be replaced."""
        return StoreError(f"{self.output} exists; give another name, or --overwrite to replace it.")

    def record(self, predictor: Predictor) -> dict[str, Any]:
        """Everything that decides the output except the rows, as plain JSON values."""
        calibration = predictor.calibration
        return {
            "input": self.source,
            "columns": dump(replace(self.layout, meta=self.kept)),
            "model": predictor.model_hash,
            "settings": predictor.settings.to_dict(),
            "calibration": None if calibration is None else calibration_digest(calibration),
            **({"tokens": True} if self.tokens else {}),
            **({"reviews": self.reviews} if self.reviews else {}),
        }


def calibration_digest(calibration: Calibration) -> str:
    """SHA-256 of all that calibration learned, as it is stored: calibrator, rules, scope, what a shift is told by."""
    arrays = Arrays()
    state = [calibration.settings.to_dict(arrays), dump(calibration, arrays)]
    digest = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts of rows of the input; the sum of two is the counts over both."""

    rows: int = 0
    """rows of output"""
    rejected: int = 0
    abstained: int | None = None
    """None without an abstention rule"""
    truncated_texts: int = 0
    truncated_tokens: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """how many rows have each reason"""
    resumed: int = field(default=0, metadata=NOT_STORED)
    """rows, rejects counted, that an earlier run did"""

    def __add__(self, other: "Tally") -> "Tally":
        abstained = [count for count in (self.abstained, other.abstained) if count is not None]
        summed = ("rows", "rejected", "truncated_texts", "truncated_tokens", "resumed")
        return Tally(
            **{name: getattr(self, name) + getattr(other, name) for name in summed},
            abstained=sum(abstained) if abstained else None,
            reasons=dict(Counter(self.reasons) + Counter(other.reasons)),
        )

    @property
    def seen(self) -> int:
        """Rows of the input that were scored or rejected."""
        return self.rows + self.rejected


@dataclass(frozen=True, kw_only=True)
class Summary(Tally):
    """The outcome of a run: counts of rows, the shift report, and the record of the job."""

    job: Mapping[str, Any]
    shift: ShiftReport | None
    promise: str | None
    """what the rules promise for rows like the calibration rows, or which of them promise nothing"""
    promised: bool | None
    """whether all that was asked for can be promised; None without a rule"""
    rejects: str | None
    """the file that lists the rejected rows; None without any"""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the shift report with its verdict in words and its level."""
        return {**dump(self), "shift": None if self.shift is None else self.shift.as_row()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Summary":
        """The summary that `to_dict` described."""
        shift = dict(values.get("shift") or {})
        stored = {name: value for name, value in shift.items() if name not in ("verdict", "level")}
        return load(cls, {**values, "shift": stored or None}, advice="score again, with --overwrite.")

    def describe(self) -> list[str]:
        """Lines for a terminal; the verdict on a shift, which has a colour, is not among them."""
        lines = [f"{counted(self.rows)} scored"]
        if self.abstained is not None and self.rows:
            lines[0] += f", {self.abstained:,} abstained ({self.abstained / self.rows:.1%})"
            why = [f"{self.reasons[name]:,} {name}" for name in ABSTAINING if self.reasons.get(name)]
            lines[0] += f": {', '.join(why)}" if why else ""
        lines += rejected_line(self.rejected, self.rejects)
        if self.truncated_texts:
            texts, tokens = counted(self.truncated_texts, "text was", "texts were"), self.truncated_tokens
            how = "--windows" if self.job["calibration"] is None else "a classifier of calibrate --windows"
            lines.append(f"{texts} cut, {counted(tokens, 'token')} in all; {how} reads them whole")
        return lines
