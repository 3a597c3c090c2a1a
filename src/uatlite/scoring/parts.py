"""The unfinished output: one file for each block that is done, kept until the whole can be put together.

    predictions.csv.unfinished/
      job.json            what is being computed: a run goes on only with parts of the same job
      part-000000.jsonl   a line of counts, then each row of output and each reject, as JSON

A part appears under its name when it is whole, so after a kill there are whole parts and nothing else.
"""

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uatlite.data.writing import atomic_file
from uatlite.errors import DataError, StoreError

JOB = "job.json"
Row = dict[str, Any]


@dataclass(frozen=True)
class Counts:
    """The first line of a part: which input it is of, and what became of it."""

    digest: str
    rows: int
    rejected: int
    abstained: int
    truncated_texts: int
    truncated_tokens: int


class Parts:
    """The directory of finished parts beside an output file."""

    def __init__(self, output: Path) -> None:
        self.directory = output.with_name(f"{output.name}.unfinished")

    def __len__(self) -> int:
        return sum(1 for _ in self.directory.glob("part-*.jsonl"))

    def open(self, job: Mapping[str, object], *, resume: bool, overwrite: bool) -> None:
        """Make the directory for a job, or find it as the same job left it."""
        if self.directory.exists() and overwrite and not resume:
            self.remove()
        if not self.directory.exists():
            try:
                self.directory.mkdir(parents=True)
            except OSError as error:
                raise DataError(f"{self.directory} cannot be made: {error.strerror}.") from error
        elif not resume:
            raise StoreError(
                f"{self.directory} holds {len(self)} parts of an unfinished run; go on with it by --resume, "
                "or start again by --overwrite."
            )
        self._agree(job)

    def _agree(self, job: Mapping[str, object]) -> None:
        path = self.directory / JOB
        if not path.exists():
            if len(self):
                raise StoreError(f"{self.directory} has parts and no {JOB}; start again by --overwrite.")
            with atomic_file(path) as file:
                file.write(json.dumps(job, indent=2).encode())
            return
        differs = self._differences(job)
        if differs:
            raise StoreError(
                f"{self.directory} is of another run: {', '.join(differs)} differ. Run that one with --resume, "
                "or start again by --overwrite."
            )

    def is_of(self, job: Mapping[str, object]) -> bool:
        """Whether the directory is there and of this job."""
        return (self.directory / JOB).is_file() and not self._differences(job)

    def _differences(self, job: Mapping[str, object]) -> list[str]:
        before = json.loads((self.directory / JOB).read_text(encoding="utf-8"))
        return [name for name in job if before.get(name) != json.loads(json.dumps(job[name]))]

    def changed(self, source: str) -> StoreError:
        """What to raise where the parts are not of the rows that `source` has now."""
        return StoreError(
            f"{source} is not what it was when {self.directory.name} was begun; start again by --overwrite."
        )

    def path(self, number: int) -> Path:
        return self.directory / f"part-{number:06d}.jsonl"

    def write(self, number: int, counts: Counts, rows: list[Row], rejects: list[Row]) -> None:
        """Write a part, whole or not at all."""
        with atomic_file(self.path(number)) as file:
            for kind, value in [("counts", asdict(counts)), *_tagged("row", rows), *_tagged("reject", rejects)]:
                file.write(json.dumps([kind, value], ensure_ascii=False, allow_nan=False, default=str).encode() + b"\n")

    def counts(self, number: int) -> Counts | None:
        """The counts of a part; None where it is not done."""
        try:
            return Counts(**next(self._lines(number, "counts")))
        except FileNotFoundError:
            return None

    def rows(self, number: int) -> Iterator[Row]:
        """The rows of output of a part."""
        return self._lines(number, "row")

    def rejects(self, number: int) -> Iterator[Row]:
        """The rows of the input that a part could not score."""
        return self._lines(number, "reject")

    def _lines(self, number: int, wanted: str) -> Iterator[Row]:
        with open(self.path(number), encoding="utf-8") as file:
            for line in file:
                kind, value = json.loads(line)
                if kind == wanted:
                    yield value

    def remove(self) -> None:
        """Remove the directory and all parts; out of the way first, so that a kill leaves no half of it."""
        aside = self.directory.with_name(f"{self.directory.name}.{secrets.token_hex(4)}.removed")
        self.directory.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _tagged(kind: str, rows: list[Row]) -> list[tuple[str, Row]]:
    return [(kind, row) for row in rows]
