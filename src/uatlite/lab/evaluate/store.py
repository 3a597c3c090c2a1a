"""The store: a directory with the predictions of many runs, each in pieces of Parquet that are written once.

    STORE/run=3f0c…/_run.json            the provenance of the numbers, written first
                    piece-00000.parquet  some rows of the run
                    _complete.json       written last: all pieces are there

Reading needs NumPy and pyarrow, no model and no torch; `pyarrow.dataset.dataset(STORE, partitioning="hive")` reads all
runs as one table. An interrupted run resumes with its missing pieces. Two processes that compute the same run write
the same files, and the last rename wins.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.codec import dump, load
from uatlite.errors import StoreError
from uatlite.lab.evaluate.parquet import Piece, read_piece, write_piece
from uatlite.predictive import PassLogits
from uatlite.text.labels import Alignment
from uatlite.text.write import Pieces, read_record

PIECES = 32
"""Files of a run, about: a killed run loses at most one of these parts."""
FEWEST_ROWS = 16
"""Every piece but the last has at least this many rows."""
_FORMAT = 1
"""The version of the layout on disk; a run of another version is not read."""


@dataclass(frozen=True)
class RunRecipe:
    """All that determines the numbers of a run. Runs of one recipe have the same logits; its hash is their key."""

    model: str
    """`model_hash` of the weights"""
    data: str
    """`Dataset.fingerprint` of ids, texts and labels"""
    tokens: str
    """`Tokens.fingerprint` of the tokenized and truncated texts"""
    task: str
    split: str
    perturbation: str | None
    method: Mapping[str, Any]
    """`Method.to_dict`"""
    seed: int | None
    """None for a method without randomness"""
    columns: tuple[tuple[int, ...], ...]
    """the model's columns that make up each class of the task"""
    uatlite: str
    """the version: another one may draw other masks for the same seed"""

    @property
    def key(self) -> str:
        """16 hex digits, the name of the run in the store."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Provenance:
    """A recipe, and facts for a reader of the numbers."""

    recipe: RunRecipe
    method: str
    """the method's canonical spelling"""
    passes: int
    model: str
    """the name that the checkpoint was loaded by"""
    source: str
    """where the rows came from, in words"""
    rows: int
    labels: tuple[str, ...]
    """of the data set: what the stored labels mean"""
    model_labels: tuple[str, ...]
    """what the columns of the logits mean"""
    classes: tuple[str, ...]
    """the task's classes that the model knows, in the order of `recipe.columns`"""
    alignment: str
    """how the model's columns became the task's classes, in words"""
    out_of_scope: int | None
    truncated_texts: int
    truncated_tokens: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """of uatlite, torch, transformers, numpy"""

    @property
    def set_name(self) -> str:
        """The rows in short: 'sst2/test', 'sst2+swap/test'."""
        return set_name(self.recipe.task, self.recipe.split, self.recipe.perturbation)

    def align(self) -> Alignment:
        """How probabilities of the model's classes become those of the task's."""
        return Alignment(self.recipe.columns, self.classes, self.alignment)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"format": _FORMAT, **dump(self)}

    @classmethod
    def read(cls, path: Path) -> "Provenance":
        """What `to_dict` wrote to a file."""
        values = read_record(path) or {}
        if values.pop("format", _FORMAT) != _FORMAT:
            raise StoreError(f"{path} is of another version of uatlite's store; evaluate into a new directory.")
        return load(cls, values, advice=f"delete the directory {path.parent} and run again.")


def set_name(task: str, split: str, perturbation: str | None = None) -> str:
    """'task/split', with the perturbation after the task."""
    return f"{task}+{perturbation}/{split}" if perturbation else f"{task}/{split}"


@dataclass(frozen=True, eq=False)
class StoredPredictions:
    """A run as arrays, in the order of its data set."""

    provenance: Provenance
    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    """(rows,): indices into `provenance.labels`, NO_LABEL where there is none"""
    logits: NDArray[np.float32]
    """(passes, rows, classes of the model)"""
    margin_variance: NDArray[np.float32] | None
    """(rows,); None unless the method gives it without sampling"""
    seconds: float
    """how long the method ran, all pieces together"""
    representations: NDArray[np.float32] | None = None
    """(rows, units): what the head reads; None unless the method has one pass"""

    @property
    def passes(self) -> PassLogits:
        """The logits as calibrators take them, in double precision."""
        variance = None if self.margin_variance is None else self.margin_variance.astype(np.float64)[:, None]
        read = None if self.representations is None else self.representations.astype(np.float64)
        return PassLogits(self.logits.astype(np.float64), variance, read)

    def take(self, places: NDArray[np.intp]) -> "StoredPredictions":
        """Only the rows at these places."""

        def taken(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[places]

        return replace(
            self,
            ids=tuple(self.ids[place] for place in places),
            labels=self.labels[places],
            logits=self.logits[:, places],
            margin_variance=taken(self.margin_variance),
            representations=taken(self.representations),
        )


@dataclass(frozen=True)
class StoredRun:
    """One run in the store: its directory and its provenance."""

    directory: Path
    provenance: Provenance

    @property
    def piece_rows(self) -> int:
        """Rows of a piece; the last one may have fewer."""
        return max(FEWEST_ROWS, -(-self.provenance.rows // PIECES))

    @property
    def pieces(self) -> int:
        """The number of pieces of the complete run."""
        return -(-self.provenance.rows // self.piece_rows)

    @property
    def complete(self) -> bool:
        """Whether the run was finished and every piece is still there."""
        work = _work(self.directory)
        return work.finished and all(work.has(_piece_name(number)) for number in range(self.pieces))

    def piece_path(self, number: int) -> Path:
        return self.directory / _piece_name(number)

    def plan(self, order: Sequence[int]) -> list[NDArray[np.int32]]:
        """The rows of each piece: `order`, in which rows are computed, cut into parts."""
        starts = range(0, len(order), self.piece_rows)
        return [np.array(order[start : start + self.piece_rows], dtype=np.int32) for start in starts]

    def has(self, number: int, rows: NDArray[np.int32]) -> bool:
        """Whether a piece is there, intact, with these rows."""
        piece = _work(self.directory).read(_piece_name(number), read_piece)
        return piece is not None and bool(np.array_equal(piece.rows, rows))

    def write(self, number: int, piece: Piece) -> None:
        """Store a piece."""
        with _work(self.directory).write(_piece_name(number)) as file:
            write_piece(file, piece)

    def finish(self) -> None:
        """Mark the run as complete."""
        _work(self.directory).finish({"rows": self.provenance.rows, "pieces": self.pieces})

    def read(self) -> StoredPredictions:
        """All rows, in the order of the data set; an unfinished or broken run is a StoreError."""
        if not self.complete:
            raise StoreError(f"{self.directory} is not finished; run the command that began it again to continue.")
        pieces = [read_piece(self.piece_path(number)) for number in range(self.pieces)]
        rows = np.concatenate([piece.rows for piece in pieces])
        order = np.argsort(rows, kind="stable")
        if not np.array_equal(rows[order], np.arange(self.provenance.rows)):
            raise StoreError(f"{self.directory} does not hold each row exactly once; delete it and run again.")
        joined = StoredPredictions(
            provenance=self.provenance,
            ids=tuple(name for piece in pieces for name in piece.ids),
            labels=np.concatenate([piece.labels for piece in pieces]).astype(np.int64),
            logits=np.concatenate([piece.logits for piece in pieces], axis=1),
            margin_variance=_join([piece.margin_variance for piece in pieces]),
            seconds=sum(piece.seconds for piece in pieces),
            representations=_join([piece.representations for piece in pieces]),
        )
        return joined.take(order)


class Store:
    """A directory of runs."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def begin(self, provenance: Provenance) -> StoredRun:
        """The run of this recipe; it is created unless it exists."""
        directory = self._home(provenance.recipe)
        if not _work(directory).begun:
            _work(directory).begin(provenance.to_dict())
        return self._open(directory)

    def runs(self) -> list[StoredRun]:
        """Every run, finished or not, by set, method and seed."""
        if not self.directory.is_dir():
            raise StoreError(f"{self.directory} is not a directory; `uatlite evaluate … -o DIR` creates DIR/store.")
        found = [self._open(directory) for directory in self.directory.glob("run=*") if _work(directory).begun]
        return sorted(found, key=lambda run: (run.provenance.set_name, run.provenance.method, run.directory.name))

    def _home(self, recipe: RunRecipe) -> Path:
        return self.directory / f"run={recipe.key}"

    def _open(self, directory: Path) -> StoredRun:
        return StoredRun(directory, Provenance.read(_work(directory).path(_RUN)))


_RUN, _COMPLETE = "_run.json", "_complete.json"


def _work(directory: Path) -> Pieces:
    return Pieces(directory, record=_RUN, complete=_COMPLETE)


def _piece_name(number: int) -> str:
    return f"piece-{number:05}.parquet"


def _join(values: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    """A column of all pieces; None unless every piece has it."""
    known = [value for value in values if value is not None]
    return np.concatenate(known) if len(known) == len(values) else None
