"""The unfinished output of a job: one part on disk for each scored block.

    predictions.csv.unfinished/
      job.json            the record of the job: only the same job continues it
      part-000000.jsonl   a line of counts, then the rows of output and the rejects of a block, as JSON

A part appears under its name when it is complete, so a killed run leaves complete parts only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uatlite.codec import dump, load
from uatlite.errors import StoreError
from uatlite.scoring.job import Tally
from uatlite.text.write import Pieces

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """What a scored block gives."""

    digest: str
    """that of the block"""
    tally: Tally
    rows: list[Row]
    """the rows of output"""
    rejects: list[Row]
    """the rows of the input that cannot be scored"""


class Parts:
    """The directory of finished parts beside an output file."""

    def __init__(self, output: Path) -> None:
        self._pieces = Pieces(output.with_name(f"{output.name}.unfinished"), record="job.json")
        self.directory = self._pieces.directory

    def __len__(self) -> int:
        return len(self._pieces.names("part-*.jsonl"))

    def open(self, record: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        """Create the directory for a job or, with `resume`, continue that of the same job."""
        if overwrite and not resume:
            self.remove()
        if self.directory.exists() and not resume:
            raise StoreError(
                f"{self.directory} holds {len(self)} parts of an unfinished run; continue it with --resume, "
                "or start again with --overwrite."
            )
        if not self._pieces.begun:
            if len(self):
                raise StoreError(
                    f"{self.directory} has parts and no {self._pieces.record}; start again with --overwrite."
                )
            self._pieces.begin(record)
        elif differences := self._pieces.differences(record):
            raise StoreError(
                f"{self.directory} belongs to another run: {', '.join(differences)} differ. Resume that run, "
                "or start again with --overwrite."
            )

    def belongs_to(self, record: Mapping[str, object]) -> bool:
        """Whether the directory exists and is of this job."""
        return self._pieces.begun and not self._pieces.differences(record)

    def changed(self, source: str) -> StoreError:
        """The error for parts of other rows than `source` has now."""
        return StoreError(f"{source} has changed since {self.directory.name} was begun; start again with --overwrite.")

    def path(self, number: int) -> Path:
        """Where the part of this number is, or will be."""
        return self._pieces.path(_name(number))

    def write(self, number: int, part: Part) -> None:
        """Write a part, whole or not at all."""
        rows, rejects = (("row", row) for row in part.rows), (("reject", row) for row in part.rejects)
        with self._pieces.write(_name(number)) as file:
            for line in (("counts", {"digest": part.digest, **dump(part.tally)}), *rows, *rejects):
                file.write(json.dumps(line, ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n")

    def read(self, number: int) -> Part | None:
        """A part; None where it is missing or broken, so that its block is scored again."""
        return self._pieces.read(_name(number), _read_part)

    def remove(self) -> None:
        """Remove the directory and all its parts."""
        self._pieces.remove()


def _name(number: int) -> str:
    return f"part-{number:06d}.jsonl"


def _read_part(path: Path) -> Part:
    values: dict[str, list[Row]] = {"counts": [], "row": [], "reject": []}
    with open(path, encoding="utf-8") as file:
        for line in file:
            kind, value = json.loads(line)
            values[kind].append(value)
    (counts,) = values["counts"]
    digest = str(counts.pop("digest"))
    return Part(digest, load(Tally, counts, advice="score its rows again."), values["row"], values["reject"])
