"""A classifier whose logits are in a file: what `calibrate --scores` makes, without a model, a tokenizer and PyTorch.

uatlite-scores.json    which columns hold the scores, and what they are of
uatlite.json, uatlite.safetensors, README.md    as in every saved classifier
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uatlite import codec
from uatlite.classifier.runtime import SCORES_MANIFEST, Outputs, Runtime, Settings
from uatlite.errors import InputError, ModelError, StoreError
from uatlite.text.scores import ScoreColumns
from uatlite.text.write import write_text
from uatlite.values import ScoredText, Text

_FORMAT = 1


@dataclass(eq=False)
class ScoresRuntime(Runtime):
    """A file of scores: its texts are `ScoredText`, rows of logits with an embedding where there is one."""

    architecture = "a file of scores"
    kind = "one"
    method = "base"
    usage = "It holds no model; it decides on rows of scores: uatlite predict DIR --scores new.csv -o decisions.csv"

    columns: ScoreColumns

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(codec.dump(self.columns), sort_keys=True).encode()).hexdigest()

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.columns.classes

    @property
    def columns_read(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"scores": codec.dump(self.columns)}

    @property
    def example(self) -> str:  # type: ignore[override]
        return f"{{{', '.join(f'{name!r}: …' for name in self.columns.needed)}}}"

    def taken(self, given: Iterable[Any], *, learn: bool = False) -> list[Any]:
        """Rows of a file are read as such, and rows of numbers are in the order of the columns."""
        return [self._taken(row, i) for i, row in enumerate(given)]

    def _taken(self, row: Any, i: int) -> ScoredText:
        if isinstance(row, ScoredText):
            return row
        if isinstance(row, str):
            raise InputError(f"texts[{i}] is a text, and this classifier reads rows of scores.")
        if not isinstance(row, Mapping):
            names = self.columns.columns
            row = {names[0]: row} if self.columns.packed else dict(zip(names, row, strict=False))
        try:
            return self.columns.read(row)
        except InputError as error:
            raise InputError(f"texts[{i}]: {error}.") from error

    def outputs(self, texts: Sequence[Text], settings: Settings) -> Outputs:
        width, classes = self.columns.width, len(self.class_names)
        for i, text in enumerate(texts):
            if not isinstance(text, ScoredText) or len(text.logits) != classes or len(text.vector) != 4 * width:
                what = f"scores of {classes} classes{f' with {width} numbers of embedding' * bool(width)}"
                raise InputError(f"texts[{i}] is {text!r:.60}; this classifier reads {what}: give a ScoredText.")
        rows: Any = texts
        vectors = np.frombuffer(b"".join(row.vector for row in rows), np.float32).reshape(len(rows), width)
        logits = np.array([row.logits for row in rows])[None]
        plain = Outputs(logits, representations=vectors.astype(np.float64) if width else None)
        if settings.method.read_from(plain) is None:
            name = settings.method.name
            raise ModelError(f"{name} runs a transformer, and of this classifier only scores are seen; leave it out.")
        return plain

    def save(self, directory: Path) -> None:
        state = json.dumps({"format": _FORMAT, **codec.dump(self.columns)}, indent=2, ensure_ascii=False)
        write_text(directory / SCORES_MANIFEST, state + "\n")


def load_scores(name: str | Path) -> ScoresRuntime:
    """The classifier by scores in a directory."""
    path = Path(name).expanduser() / SCORES_MANIFEST
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        if (written := state.pop("format")) != _FORMAT:
            raise ModelError(f"{path} has the format {written}, this version of uatlite reads {_FORMAT}.")
        return ScoresRuntime(codec.load(ScoreColumns, state, advice="calibrate again."))
    except (StoreError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"{path} is broken ({error!r}); calibrate again.") from error
