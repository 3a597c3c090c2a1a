"""The input as a Ray dataset: a row for each block, cut by one reader as the local engine cuts it.

Ray's own readers of JSONL and CSV raise at the first broken row, or guess types from the first ones, and know no line
numbers. Ours say which line was rejected and why, and a block's number decides the name of its part.
"""

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from uatlite.scoring.blocks import blocks
from uatlite.scoring.job import Job
from uatlite.scoring.reading import Accepted, read_items

BLOCK = "block"


class BlockSource(Datasource):  # type: ignore[misc]
    """The blocks of a job's input, pickled: a kept column may hold any value that a file format knows."""

    def __init__(self, job: Job, accepted: Accepted, block_rows: int) -> None:
        super().__init__()
        self._job = job
        self._accepted = accepted
        self._block_rows = block_rows

    def estimate_inmemory_data_size(self) -> int | None:
        """Nobody knows before it is read."""
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ReadTask]:
        """One task: where a block begins depends on all that stands before it."""
        unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
        return [ReadTask(self._read, unknown)]

    def _read(self) -> Iterator[pa.Table]:
        for block in blocks(read_items(self._accepted, self._job), self._block_rows):
            yield pa.table({BLOCK: [pickle.dumps(block)]})
