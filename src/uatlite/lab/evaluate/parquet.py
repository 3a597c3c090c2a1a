"""A piece of a run as a Parquet file: some of its rows, with a checksum of the values in the metadata.

| column | type | |
|---|---|---|
| row | int32 | index in the data set |
| id | string | |
| label | int32 or null | index of the gold label |
| logits | list of lists of float | (passes, classes) |
| margin_variance | float or null | from methods that compute it without sampling |
| representation | list of float | what the head reads; only of methods with one pass |
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from uatlite.errors import MissingDependency, StoreError

NO_LABEL = -1


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a run."""

    rows: NDArray[np.int32]
    """(rows,): indices in the data set"""
    ids: tuple[str, ...]
    labels: NDArray[np.int32]
    """(rows,); NO_LABEL where there is none"""
    logits: NDArray[np.float32]
    """(passes, rows, classes)"""
    margin_variance: NDArray[np.float32] | None
    """(rows,), or None where the method does not give it"""
    seconds: float
    """how long the method ran"""
    representations: NDArray[np.float32] | None = None
    """(rows, units): what the head reads, from methods with one pass"""

    @property
    def checksum(self) -> str:
        """SHA-256 of all values except the time."""
        digest = hashlib.sha256(json.dumps(self.ids).encode())
        for values in (self.rows, self.labels, self.logits, self.margin_variance):
            digest.update(b"none" if values is None else str(values.shape).encode())
            digest.update(b"" if values is None else np.ascontiguousarray(values).tobytes())
        read = self.representations
        digest.update(b"" if read is None else np.ascontiguousarray(read).tobytes())
        return digest.hexdigest()


def write_piece(file: IO[bytes], piece: Piece) -> None:
    """Write a piece as Parquet."""
    pa, pq = _arrow()
    table = pa.table(
        {
            "row": pa.array(piece.rows, pa.int32()),
            "id": pa.array(piece.ids, pa.string()),
            "label": pa.array(piece.labels, pa.int32(), mask=piece.labels == NO_LABEL),
            "logits": _nested(pa, piece.logits.transpose(1, 0, 2)),
            "margin_variance": pa.nulls(len(piece.ids), pa.float32())
            if piece.margin_variance is None
            else pa.array(piece.margin_variance, pa.float32()),
        }
    )
    if piece.representations is not None:
        flat = pa.array(np.ascontiguousarray(piece.representations).reshape(-1), pa.float32())
        units = pa.FixedSizeListArray.from_arrays(flat, piece.representations.shape[1])
        table = table.append_column("representation", units)
    notes = {"uatlite.checksum": piece.checksum, "uatlite.seconds": repr(piece.seconds)}
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


_WAY_OUT = "Delete it and run the same command again: only its rows are computed again."


def _piece(table: Any) -> Piece:
    return Piece(
        rows=table["row"].to_numpy(),
        ids=tuple(table["id"].to_pylist()),
        labels=table["label"].fill_null(NO_LABEL).to_numpy(),
        logits=_array(table["logits"]).transpose(1, 0, 2),
        margin_variance=None if table["margin_variance"].null_count else table["margin_variance"].to_numpy(),
        seconds=float(table.schema.metadata[b"uatlite.seconds"]),
        representations=_representations(table),
    )


def _representations(table: Any) -> NDArray[np.float32] | None:
    if "representation" not in table.column_names:
        return None
    column = table["representation"].combine_chunks()
    units: NDArray[np.float32] = column.flatten().to_numpy().reshape(len(column), -1)
    return units


def _nested(pa: Any, values: NDArray[np.float32]) -> Any:
    """(rows, passes, classes) as a column of lists of lists."""
    rows, passes, classes = values.shape
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), pa.float32())
    inner = pa.ListArray.from_arrays(pa.array(np.arange(rows * passes + 1, dtype=np.int32) * classes), flat)
    return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * passes), inner)


def _array(column: Any) -> NDArray[np.float32]:
    """The inverse of `_nested`: (rows, passes, classes)."""
    outer = column.combine_chunks()
    inner = outer.flatten()
    sizes = {*outer.value_lengths().to_pylist()}, {*inner.value_lengths().to_pylist()}
    if any(len(size) != 1 for size in sizes):
        raise ValueError(f"rows of {sorted(sizes[0])} passes of {sorted(sizes[1])} classes")
    return np.asarray(inner.flatten().to_numpy()).reshape(len(outer), sizes[0].pop(), sizes[1].pop())


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingDependency("pyarrow", "data") from error
    return pa, pq
