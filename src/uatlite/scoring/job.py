"""The values of a scoring run: the job, its progress, and the summary written beside the output."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from uatlite.classifier.predictor import Predictor
from uatlite.classifier.reasons import ABSTAINING
from uatlite.text.files import STDIN, format_of, is_remote
from uatlite.text.schema import Layout
from uatlite.trust.shift import ShiftReport


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

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns of the input that are copied to the output: those of the text, then those in `layout.meta`."""
        layout = self.layout
        texts = [name for name in (layout.text, layout.pair, layout.options) if name is not None]
        carried = format_of(self.output) == "csv" if self.texts is None else self.texts
        return tuple(dict.fromkeys([*(texts if carried else ()), *layout.meta]))

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that the input must have besides the text: those to keep, and the id where its column was chosen."""
        own_id = self.layout.id
        return self.kept if own_id is None or own_id == Layout().id else (*self.kept, own_id)

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

    def record(self, predictor: Predictor) -> dict[str, Any]:
        """Everything that decides the output except the rows, as plain JSON values."""
        learned = {} if predictor.calibration is None else predictor.calibration.to_dict()
        record: dict[str, Any] = {
            "input": self.source,
            "columns": {**asdict(self.layout), "meta": self.kept},
            "model": predictor.model_hash,
            "settings": predictor.settings.to_dict(),
            "calibration": {name: learned.get(name) for name in ("calibrator", "rule", "label_sets")},
        }
        if "extra" in learned:  # of products with several answers a text
            record["calibration"]["extra"] = learned["extra"]
        plain: dict[str, Any] = json.loads(json.dumps(record))  # tuples as lists, as they are on disk
        return plain


@dataclass(frozen=True)
class PartCounts:
    """The first line of a part: the digest of its block, and how many rows it has of each kind."""

    digest: str
    rows: int
    rejected: int
    abstained: int
    truncated_texts: int
    truncated_tokens: int
    reasons: Mapping[str, int]
    """how many rows have each reason"""


@dataclass(frozen=True)
class Progress:
    """Rows done so far; `resumed` of them, rejects counted, were done by an earlier run."""

    rows: int = 0
    rejected: int = 0
    abstained: int = 0
    truncated_texts: int = 0
    truncated_tokens: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    resumed: int = 0

    def after(self, counts: PartCounts, *, resumed: bool) -> "Progress":
        """The progress with one more part."""
        names = ("rows", "rejected", "abstained", "truncated_texts", "truncated_tokens")
        added = {name: getattr(self, name) + getattr(counts, name) for name in names}
        before = counts.rows + counts.rejected if resumed else 0
        reasons = Counter(self.reasons) + Counter(counts.reasons)
        return replace(self, **added, reasons=dict(reasons), resumed=self.resumed + before)

    @property
    def seen(self) -> int:
        """Rows of the input that were scored or rejected."""
        return self.rows + self.rejected


@dataclass(frozen=True)
class Summary:
    """The outcome of a run: counts of rows, the shift report, and the record of the job."""

    job: Mapping[str, Any]
    rows: int
    """rows of output"""
    rejected: int
    abstained: int | None
    """None without an abstention rule"""
    truncated_texts: int
    truncated_tokens: int
    reasons: Mapping[str, int]
    """how many rows have each reason"""
    shift: ShiftReport | None
    promise: str | None
    """what the rule promises for rows like the calibration rows"""
    rejects: str | None
    """the file that lists the rejected rows; None without any"""

    @property
    def calibrated(self) -> bool:
        """Whether the classifier was calibrated."""
        return self.job["calibration"]["calibrator"] is not None

    @property
    def promises_nothing(self) -> bool:
        """Whether there is a rule, and it abstains on all because nothing can be promised."""
        rule = self.job["calibration"]["rule"]
        return rule is not None and not rule["promised"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; the shift report with its verdict in words."""
        values = asdict(self)
        if self.shift is not None:
            values["shift"] = {"verdict": self.shift.describe(), **self.shift.to_dict()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Summary":
        """The summary that `to_dict` described."""
        shift = values["shift"]
        report = None if shift is None else ShiftReport(**{name: shift[name] for name in shift if name != "verdict"})
        return cls(**{**values, "shift": report})

    def describe(self) -> list[str]:
        """Lines for a terminal."""
        lines = [f"{self.rows:,} row{'' if self.rows == 1 else 's'} scored"]
        if self.abstained is not None and self.rows:
            lines[0] += f", {self.abstained:,} abstained ({self.abstained / self.rows:.1%})"
            why = [f"{self.reasons[name]:,} {name}" for name in ABSTAINING if self.reasons.get(name)]
            lines[0] += f": {', '.join(why)}" if why else ""
        if self.rejected:
            lines.append(f"{self.rejected:,} rows rejected; line numbers and reasons are in {self.rejects}")
        if self.truncated_texts:
            cut = f"{self.truncated_texts:,} texts were cut, {self.truncated_tokens:,} tokens in all"
            lines.append(f"{cut}; --windows reads them whole")
        if self.shift is not None:
            lines.append(self.shift.describe())
        return lines
