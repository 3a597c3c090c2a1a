"""Resumable work on disk: a directory of pieces and a record of what decides their content.

    DIR/record.json     written first; work of another record is not continued
        PIECE …         one file each, which appears under its name when it is complete
        complete.json   written last, where a reader must know that no piece is missing

A killed process leaves complete pieces only. File names and formats are the caller's choice.
"""

import json
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import BadZipFile

from uatlite.errors import StoreError
from uatlite.text.write import atomic_file, make_directory, write_text

_T = TypeVar("_T")

BROKEN = (StoreError, OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile)
"""What reading a damaged piece or record may raise."""


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON, atomically."""
    write_text(path, json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_record(path: Path) -> dict[str, Any] | None:
    """A record, or None where the file is missing, broken or not a JSON object."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


@dataclass(frozen=True)
class Pieces:
    """A directory of pieces. `record` and `complete` are the names of the files written first and last."""

    directory: Path
    record: str = "record.json"
    complete: str = "complete.json"

    @property
    def begun(self) -> bool:
        """Whether the record is there."""
        return self.path(self.record).is_file()

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return self.path(self.complete).is_file()

    def begin(self, record: Mapping[str, Any]) -> None:
        """Create the directory and write its record; an existing record is replaced."""
        make_directory(self.directory)
        write_record(self.path(self.record), record)

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """The fields in which `record` differs from the one on disk; all of them where that is missing or broken."""
        before = read_record(self.path(self.record)) or {}
        plain = json.loads(json.dumps(record))  # tuples as lists, as they are on disk
        return [name for name, value in plain.items() if name not in before or before[name] != value]

    def path(self, name: str) -> Path:
        """Where the piece of this name is, or will be."""
        return self.directory / name

    def names(self, pattern: str) -> list[str]:
        """The names of the pieces that match a glob pattern, sorted."""
        return sorted(path.name for path in self.directory.glob(pattern))

    def has(self, name: str) -> bool:
        """Whether a piece is there; `read` also finds out whether it is intact."""
        return self.path(name).is_file()

    def write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """A binary file that becomes the piece when the block ends without an error."""
        return atomic_file(self.path(name))

    def read(self, name: str, reader: Callable[[Path], _T]) -> _T | None:
        """What `reader` makes of a piece; None where the piece is missing or broken, so that it is written again."""
        try:
            return reader(self.path(name))
        except BROKEN:
            return None

    def finish(self, note: Mapping[str, Any]) -> None:
        """Write the last file: every piece is there."""
        write_record(self.path(self.complete), note)

    def remove(self) -> None:
        """Remove the directory. It is renamed first, so that a kill does not leave half of it under its name."""
        if self.directory.exists():
            aside = self.directory.with_name(f"{self.directory.name}.{secrets.token_hex(4)}.removed")
            self.directory.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
