"""One piece of a run: some rows in one Parquet file, with a checksum of their values in its metadata.

| column | type | |
|---|---|---|
| row | int32 | its place in the data set |
| id | string | |
| label | int32 or null | index of the gold label |
| logits | list of lists of float | (passes, classes) |
| margin_variance | float or null | from methods that know it without sampling |
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.data.writing import atomic_file
from uatlite.errors import MissingDependency, StoreError

NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a run."""

    rows: NDArray[np.int32]
    """(rows,): places in the data set"""
    ids: tuple[str, ...]
    labels: NDArray[np.int32]
    """(rows,); NO_LABEL where there is none"""
    logits: NDArray[np.float32]
    """(passes, rows, classes)"""
    margin_variance: NDArray[np.float32] | None
    """(rows,), or None where the method does not give it"""
    seconds: float
    """how long the method ran"""

    @property
    def checksum(self) -> str:
        """SHA-256 of all values but the time."""
        digest = hashlib.sha256(json.dumps(self.ids).encode())
        for values in (self.rows, self.labels, self.logits, self.margin_variance):
            digest.update(b"none" if values is None else str(values.shape).encode())
            digest.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


def write_piece(path: Path, piece: Piece) -> None:
    """Write a piece; the file has its name only when it is whole and on the disk."""
    pa, pq = _arrow()
    table = pa.table(
        {
            "row": pa.array(piece.rows, pa.int32()),
            "id": pa.array(piece.ids, pa.string()),
            "label": pa.array(piece.labels, pa.int32(), mask=piece.labels == NO_LABEL),
            "logits": _nested(pa, piece.logits.transpose(1, 0, 2)),
            "margin_variance": _variance_column(pa, piece),
        }
    )
    notes = {"uatlite.checksum": piece.checksum, "uatlite.seconds": repr(piece.seconds)}
    with atomic_file(path) as file:
        pq.write_table(table.replace_schema_metadata(notes), file, compression="zstd")


def read_piece(path: Path) -> Piece:
    """Read a piece and check it; a StoreError says that the file is broken and what to do."""
    pa, pq = _arrow()
    try:
        table = pq.read_table(path, partitioning=None)
        piece = _piece(table)
        checksum = table.schema.metadata[b"uatlite.checksum"].decode()
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is broken ({_first_line(error)}). {_WAY_OUT}") from error
    if piece.checksum != checksum:
        raise StoreError(f"{path} is broken: its values are not those of its checksum. {_WAY_OUT}")
    return piece


_WAY_OUT = "Delete it and run the same command again: only its rows are computed anew."


def _piece(table: Any) -> Piece:
    variance = table["margin_variance"]
    return Piece(
        rows=table["row"].to_numpy(),
        ids=tuple(table["id"].to_pylist()),
        labels=table["label"].fill_null(NO_LABEL).to_numpy(),
        logits=_array(table["logits"]).transpose(1, 0, 2),
        margin_variance=None if variance.null_count else variance.to_numpy(),
        seconds=float(table.schema.metadata[b"uatlite.seconds"]),
    )


def _nested(pa: Any, values: NDArray[np.float32]) -> Any:
    """(rows, passes, classes) as a column of lists of lists."""
    rows, passes, classes = values.shape
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), pa.float32())
    inner = pa.ListArray.from_arrays(pa.array(np.arange(rows * passes + 1, dtype=np.int32) * classes), flat)
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * passes), inner)


def _array(column: Any) -> NDArray[np.float32]:
    """The inverse of `_nested`; lists of unequal lengths are a ValueError."""
    outer = column.combine_chunks()
    inner = outer.flatten()
    passes, classes = {*outer.value_lengths().to_pylist()}, {*inner.value_lengths().to_pylist()}
    if len(passes) != 1 or len(classes) != 1:
        raise ValueError(f"rows with {sorted(passes)} passes of {sorted(classes)} classes")
    return np.asarray(inner.flatten().to_numpy()).reshape(len(outer), passes.pop(), classes.pop())


def _variance_column(pa: Any, piece: Piece) -> Any:
    if piece.margin_variance is None:
        return pa.nulls(len(piece.ids), pa.float32())
    return pa.array(piece.margin_variance, pa.float32())


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency("pyarrow", "data") from error
    return pa, pq
