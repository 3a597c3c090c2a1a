"""What is to be scored and where the output goes, and how far a run has come: plain values."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from uatlite.backbone.loading import model_hash
from uatlite.classifier import UncertaintyClassifier
from uatlite.data.files import STDIN
from uatlite.data.remote import is_remote
from uatlite.data.schema import Layout
from uatlite.scoring.parts import Counts


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
        calibration = classifier.checked_calibration()
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
