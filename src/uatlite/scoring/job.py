"""What is to be scored and where the output goes, and how far a run has come: plain values.

What became of a file that was scored, for a person and for the file beside the output.

Labelled rows of a file, in memory: what calibration learns from.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import DataError
from uatlite.model.load import model_hash
from uatlite.text.examples import read_examples
from uatlite.text.files import STDIN, is_remote
from uatlite.text.rows import Reject
from uatlite.text.schema import Layout
from uatlite.text.write import row_writer
from uatlite.trust.shift import ShiftReport
from uatlite.values import Text


@dataclass(frozen=True)
class Counts:
    """The first line of a part: which input it is of, and what became of it."""

    digest: str
    rows: int
    rejected: int
    abstained: int
    truncated_texts: int
    truncated_tokens: int


@dataclass(frozen=True)
class Job:
    """A file (a directory, an address, or '-') to score, which columns to read, and where the output goes."""

    input: str
    output: Path
    layout: Layout = field(default_factory=lambda: Layout(label=None))
    """the columns of the text and the id; those in `meta` are carried along"""
    format: str | None = None
    rejects: Path | None = None
    """where rejected rows are listed; by default beside the output"""
    strict: bool = False
    """whether the first row that cannot be scored is an error"""
    resume: bool = False
    overwrite: bool = False

    @property
    def rejects_path(self) -> Path:
        return self.rejects or self.output.with_name(f"{self.output.name}.rejects.jsonl")

    @property
    def summary_path(self) -> Path:
        return self.output.with_name(f"{self.output.name}.summary.json")

    @property
    def source(self) -> str:
        """The input as it is found from anywhere: a path made absolute, an address or '-' as it is."""
        return self.input if self.input == STDIN or is_remote(self.input) else str(Path(self.input).absolute())

    def describe(self, classifier: UncertaintyClassifier) -> dict[str, Any]:
        """All that decides the output but the rows themselves, as plain JSON values."""
        calibration = classifier.predictor().calibration
        learned = {} if calibration is None else calibration.to_dict()
        described = {
            "input": self.source,
            "columns": asdict(self.layout),
            "model": model_hash(classifier.model),
            "settings": classifier.settings.to_dict(),
            "calibration": {name: learned.get(name) for name in ("calibrator", "rule", "label_sets")},
        }
        plain: dict[str, Any] = json.loads(json.dumps(described))
        return plain


@dataclass(frozen=True)
class Progress:
    """How far a run has come; `resumed` of the rows were done before it began."""

    rows: int = 0
    rejected: int = 0
    abstained: int = 0
    truncated_texts: int = 0
    truncated_tokens: int = 0
    resumed: int = 0

    def after(self, counts: Counts, *, resumed: bool) -> "Progress":
        """The progress when one more part is done."""
        names = ("rows", "rejected", "abstained", "truncated_texts", "truncated_tokens")
        added = {name: getattr(self, name) + getattr(counts, name) for name in names}
        before = counts.rows + counts.rejected if resumed else 0
        return replace(self, **added, resumed=self.resumed + before)

    @property
    def seen(self) -> int:
        """Rows of the input that are done with, one way or the other."""
        return self.rows + self.rejected


@dataclass(frozen=True)
class Summary:
    """Counts of rows, the shift report, and the job that made them."""

    job: Mapping[str, Any]
    rows: int
    """rows of output"""
    rejected: int
    abstained: int | None
    """None without a rule to abstain by"""
    truncated_texts: int
    truncated_tokens: int
    shift: ShiftReport | None
    promise: str | None
    """what the rule promises for rows like the calibration rows"""
    rejects: str | None
    """the file that lists the rejected rows, where there are any"""

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
        """A line for each thing that a person should know."""
        lines = [f"{self.rows:,} rows scored"]
        if self.abstained is not None and self.rows:
            lines[0] += f", {self.abstained:,} abstained ({self.abstained / self.rows:.1%})"
        if self.rejected:
            lines.append(f"{self.rejected:,} rows rejected; line numbers and reasons are in {self.rejects}")
        if self.truncated_texts:
            cut = f"{self.truncated_texts:,} texts were cut, {self.truncated_tokens:,} tokens in all"
            lines.append(f"{cut}; --windows reads them whole")
        if self.shift is not None:
            lines.append(self.shift.describe())
        return lines


@dataclass(frozen=True)
class Labelled:
    """Texts with their classes, (rows,) each, and the rows that could not be used."""

    texts: list[Text]
    labels: list[int]
    rejects: list[Reject]

    def write_rejects(self, path: Path) -> None:
        """List the rows that could not be used, with line and reason; no file where there are none."""
        if self.rejects:
            with row_writer(path) as write:
                for reject in self.rejects:
                    write(reject.as_row())


def read_labelled(
    source: str, layout: Layout, classes: Sequence[str], *, format: str | None = None, strict: bool = False
) -> Labelled:
    """Every row with a text and a label that is one of the model's classes; the others are rejects.

    With `strict` the first reject is an error; a file of rejects alone always is.
    """
    texts: list[Text] = []
    labels: list[int] = []
    rejects: list[Reject] = []
    for item in read_examples(source, layout, classes, format=format):
        if isinstance(item, Reject):
            rejects.append(item)
            if strict:
                raise DataError(f"{item.file}, line {item.line}: {item.reason}. Without --strict it is set aside.")
        elif item.label is not None:
            texts.append(item.text)
            labels.append(item.label)
    if not texts:
        first = f"; the first: line {rejects[0].line}, {rejects[0].reason}" if rejects else ""
        known = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
        raise DataError(
            f"{source} has no row that can be used ({len(rejects)} rejected{first}). The model's classes are {known}; "
            "where they are called otherwise in the data, name them in the model's order: --label-order a,b"
        )
    return Labelled(texts, labels, rejects)
