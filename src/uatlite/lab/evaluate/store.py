"""The store: a directory with the predictions of many runs, each in pieces of Parquet that are written once.

    STORE/run=3f0c…/_run.json            the provenance of the numbers, written first
                    piece-00000.parquet  some rows of the run; docs/guides/evaluate.md lists the columns
                    _complete.json       written last: all pieces are there

Reading needs NumPy and pyarrow, no model and no torch; `pyarrow.dataset.dataset(STORE, partitioning="hive")` reads all
runs as one table. An interrupted run resumes with its missing pieces. Two processes that compute the same run write
the same files, and the last rename wins.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.codec import dump, load
from uatlite.errors import StoreError
from uatlite.predictive import PassLogits
from uatlite.text.files import arrow
from uatlite.text.write import Pieces, atomic_file, make_directory, read_record
from uatlite.values import Floats, Integers

PIECES = 32
"""Files of a run, about: a killed run loses at most one of these parts."""
FEWEST_ROWS = 16
"""Every piece but the last has at least this many rows."""
NO_LABEL = -1
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


def set_name(task: str, split: str, perturbation: str | None = None) -> str:
    """'task/split', with the perturbation after the task."""
    return f"{task}+{perturbation}/{split}" if perturbation else f"{task}/{split}"


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a run."""

    rows: Integers
    """(rows,): indices in the data set"""
    ids: tuple[str, ...]
    labels: Integers
    """(rows,): indices into `Provenance.labels`, NO_LABEL where there is none"""
    passes: PassLogits
    """what the method says, stored in single precision; representations only of methods with one pass"""
    seconds: float
    """how long the method ran"""

    @property
    def logits(self) -> Floats:
        """(passes, rows, classes of the model)"""
        return self.passes.logits

    def take(self, rows: NDArray[Any]) -> Self:
        """Only some rows: their places, or True for each that is meant."""
        ids = tuple(np.array(self.ids, dtype=object)[rows])
        changes = {"rows": self.rows[rows], "labels": self.labels[rows], "passes": self.passes.take(rows)}
        return replace(self, ids=ids, **changes)


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredPredictions(Piece):
    """A run, in the order of its data set."""

    provenance: Provenance


def _columns(piece: Piece) -> dict[str, NDArray[Any] | None]:
    """The columns of a piece as they are stored."""
    said = piece.passes
    variance, read = said.given_variance, said.representations if len(said.logits) == 1 else None
    several = None if variance is None or variance.shape[1] == 1 else variance.astype(np.float32)
    return {
        "row": piece.rows.astype(np.int32),
        "label": piece.labels.astype(np.int32),
        "logits": said.logits.astype(np.float32),
        "margin_variance": None if variance is None else variance[:, 0].astype(np.float32),
        "variances": several,
        "representation": None if read is None else read.astype(np.float32),
    }


OPTIONAL = ("variances", "representation")
"""Columns that some methods have: several variances of a row, as one for each layer, and what the head reads."""


def checksum(piece: Piece) -> str:
    """SHA-256 of all values except the time."""
    digest = hashlib.sha256(json.dumps(piece.ids).encode())
    for name, values in _columns(piece).items():
        if name not in OPTIONAL:
            digest.update(b"none" if values is None else str(values.shape).encode())
        digest.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def write_piece(file: IO[bytes], piece: Piece) -> None:
    """Write a piece as Parquet, with its checksum in the metadata."""
    pa, pq = arrow("data")
    columns = _columns(piece)
    row, label, logits, variance, *_ = columns.values()
    assert logits is not None
    table = {
        "row": pa.array(row),
        "id": pa.array(piece.ids, pa.string()),
        "label": pa.array(label, mask=label == NO_LABEL),
        "logits": _nested(pa, logits.transpose(1, 0, 2)).cast(pa.list_(pa.list_(pa.float32()))),
        "margin_variance": pa.nulls(len(piece.ids), pa.float32()) if variance is None else pa.array(variance),
    }
    table |= {name: _nested(pa, values) for name in OPTIONAL if (values := columns[name]) is not None}
    notes = {"uatlite.checksum": checksum(piece), "uatlite.seconds": repr(piece.seconds)}
    pq.write_table(pa.table(table).replace_schema_metadata(notes), file, compression="zstd")


def _nested(pa: Any, values: NDArray[np.float32]) -> Any:
    """An array as a column of lists, of lists where it has a third axis."""
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def read_piece(path: Path) -> Piece:
    """Read a piece and check it; a StoreError says that the file is broken and what to do."""
    pa, pq = arrow("data")
    way_out = "Delete it and run the same command again: only its rows are computed again."
    try:
        table = pq.read_table(path, partitioning=None).combine_chunks()
        piece, notes = _piece(table), table.schema.metadata
        intact = checksum(piece) == notes[b"uatlite.checksum"].decode()
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise StoreError(f"{path} is broken ({reason}). {way_out}") from error
    if not intact:
        raise StoreError(f"{path} is broken: its values are not those of its checksum. {way_out}")
    return piece


def _piece(table: Any) -> Piece:
    row, name, label, logits, variance = (table[column] for column in table.column_names[:5])
    passes = len(logits[0])
    numbers = logits.combine_chunks().flatten().flatten().to_numpy().reshape(len(row), passes, -1)
    several, read = (
        table[column].combine_chunks().flatten().to_numpy().reshape(len(row), -1).astype(np.float64)
        if column in table.column_names
        else None
        for column in OPTIONAL
    )
    if several is None and not variance.null_count:
        several = variance.to_numpy().astype(np.float64)[:, None]
    return Piece(
        rows=row.to_numpy().astype(np.int64),
        ids=tuple(name.to_pylist()),
        labels=label.fill_null(NO_LABEL).to_numpy().astype(np.int64),
        passes=PassLogits(
            numbers.transpose(1, 0, 2).astype(np.float64),
            several,
            read,
        ),
        seconds=float(table.schema.metadata[b"uatlite.seconds"]),
    )


def parts_of(order: Sequence[int]) -> list[Sequence[int]]:
    """The rows of each piece of a run: `order`, in which rows are computed, cut into parts."""
    size = max(FEWEST_ROWS, -(-len(order) // PIECES))
    return [order[start : start + size] for start in range(0, len(order), size)]


@dataclass(frozen=True)
class StoredRun:
    """One run in the store: its directory and its provenance."""

    directory: Path
    provenance: Provenance

    @property
    def pieces(self) -> int:
        """The number of pieces of the complete run."""
        return len(parts_of(range(self.provenance.rows)))

    @property
    def complete(self) -> bool:
        """Whether the run was finished and every piece is still there."""
        work = run_pieces(self.directory)
        return work.finished and all(self.piece_path(number).is_file() for number in range(self.pieces))

    def piece_path(self, number: int) -> Path:
        return self.directory / f"piece-{number:05}.parquet"

    def has(self, number: int, rows: Sequence[int]) -> bool:
        """Whether a piece is there, intact, with these rows."""
        piece = run_pieces(self.directory).read(self.piece_path(number).name, read_piece)
        return piece is not None and np.array_equal(piece.rows, rows)

    def write(self, number: int, piece: Piece) -> None:
        """Store a piece."""
        with atomic_file(self.piece_path(number)) as file:
            write_piece(file, piece)

    def finish(self) -> None:
        """Mark the run as complete."""
        run_pieces(self.directory).finish({"rows": self.provenance.rows, "pieces": self.pieces})

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
            rows=rows,
            ids=tuple(name for piece in pieces for name in piece.ids),
            labels=np.concatenate([piece.labels for piece in pieces]),
            passes=_joined([piece.passes for piece in pieces]),
            seconds=sum(piece.seconds for piece in pieces),
            provenance=self.provenance,
        )
        return joined.take(order)


def _joined(parts: Sequence[PassLogits]) -> PassLogits:
    """The rows of all parts; None unless every part has it."""
    columns = {field.name: [getattr(logits, field.name) for logits in parts] for field in fields(PassLogits)}
    joined = {
        name: None if any(value is None for value in values) else np.concatenate(values, axis=int(name == "logits"))
        for name, values in columns.items()
    }
    return PassLogits(**joined)  # type: ignore[arg-type]


class Store:
    """A directory of runs."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    def answers(self, key: str) -> Pieces:
        """The run of this key of a model with several answers a text."""
        return run_pieces(self.directory / f"answers={key}")

    def begin(self, provenance: Provenance) -> StoredRun:
        """The run of this recipe; it is created unless it exists."""
        work = run_pieces(self.directory / f"run={provenance.recipe.key}")
        if not work.begun:
            work.begin({"format": _FORMAT, **dump(provenance)})
        return _opened(work)

    def clear(self) -> None:
        """Remove every run, finished or not."""
        for pattern in ("run=*", "answers=*"):
            for directory in self.directory.glob(pattern):
                run_pieces(directory).remove()

    def runs(self) -> list[StoredRun]:
        """Every run, finished or not, by set, method and seed."""
        if not self.directory.is_dir():
            raise StoreError(f"{self.directory} is not a directory; `uatlite evaluate … -o DIR` creates DIR/store.")
        begun = (work for work in map(run_pieces, self.directory.glob("run=*")) if work.begun)
        return sorted(
            map(_opened, begun), key=lambda run: (run.provenance.set_name, run.provenance.method, run.directory.name)
        )


Arrays = Mapping[str, NDArray[Any]]


def kept_arrays(pieces: Pieces, name: str, compute: Callable[[], Arrays]) -> Arrays:
    """The arrays of a piece that is no run's; where it is missing or broken they are computed and stored."""
    arrays = pieces.read(name, read_arrays)
    if arrays is None:
        arrays = compute()
        make_directory(pieces.directory)
        with pieces.write(name) as file:
            np.savez(file, **dict(arrays))  # type: ignore[arg-type]
    return arrays


def read_arrays(path: Path) -> Arrays:
    """The arrays of a file."""
    with np.load(path) as arrays:
        return dict(arrays)


def run_pieces(directory: Path) -> Pieces:
    """The pieces of a run, as they are named on disk."""
    return Pieces(directory, record="_run.json", complete="_complete.json")


def _opened(work: Pieces) -> StoredRun:
    path = work.path(work.record)
    record = read_record(path) or {}
    if record.pop("format", _FORMAT) != _FORMAT:
        raise StoreError(f"{path} is of another version of uatlite's store; evaluate into a new directory.")
    advice = f"delete the directory {work.directory} and run again."
    return StoredRun(work.directory, load(Provenance, record, advice=advice))
