"""The versions of a saved classifier, side by side: nothing is overwritten, and one can go back.

    DIR/uatlite.json, uatlite.safetensors      version 1, as calibration wrote it
        versions/2/uatlite.json, …             a later one, which appears under its number when it is whole
        history.jsonl                          one line for each event; the version of the last line is in use

The model itself is the same in all of them.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from uatlite.errors import DataError, StoreError
from uatlite.text.write import make_directory

HISTORY, VERSIONS = "history.jsonl", "versions"


@dataclass(frozen=True)
class Event:
    """A line of the history: which version is in use since when, and why."""

    version: int
    at: str
    action: str
    """calibrate, update or go back"""
    parent: int | None = None
    """the version that an update was made from"""
    note: str = ""

    def describe(self) -> str:
        """One line for a person."""
        made = f" from version {self.parent}" if self.parent is not None else ""
        return f"{self.at}  version {self.version}  {self.action}{made}  {self.note}".rstrip()


def history(directory: str | Path) -> list[Event]:
    """The events, oldest first; without a history there is version 1. A last line that was cut off does not count."""
    place = Path(directory)
    first = place / "uatlite.json"
    if not first.is_file():
        raise DataError(f"{place} is not a saved classifier; give a directory that uatlite calibrate wrote.")
    made = datetime.fromtimestamp(first.stat().st_mtime, UTC).isoformat(timespec="seconds")
    events = [Event(1, made, "calibrate")]
    if not (place / HISTORY).is_file():
        return events
    *lines, _ = (place / HISTORY).read_text(encoding="utf-8").split("\n")
    try:
        return events + [Event(**json.loads(line)) for line in lines if line]
    except (ValueError, TypeError) as error:
        raise StoreError(f"{place / HISTORY} is broken ({error}); remove the line that is not JSON.") from error


def home(directory: str | Path, version: int) -> Path:
    """Where the files of a version are."""
    return Path(directory) if version == 1 else Path(directory) / VERSIONS / str(version)


def current_home(name: str | Path) -> str | Path:
    """Where the files of the version in use are; the name itself where there is no history, as on the hub."""
    if not (Path(name) / HISTORY).is_file():
        return name
    return home(name, history(name)[-1].version)


def go_back(directory: str | Path, version: int) -> Event:
    """Use a version again; raises where there is none of that number."""
    events = history(directory)
    there = sorted({event.version for event in events})
    if version not in there:
        raise DataError(f"{directory} has no version {version}; there are {', '.join(map(str, there))}.")
    if version == events[-1].version:
        raise DataError(f"version {version} of {directory} is in use already.")
    return append(directory, Event(version, now(), "go back"))


def append(directory: str | Path, event: Event) -> Event:
    """Add a line to the history, in one write, and wait until it is on disk."""
    path = Path(directory) / HISTORY
    whole = path.read_bytes() if path.is_file() else b""
    cut = b"\n" if whole and not whole.endswith(b"\n") else b""  # the end of a line that a killed process left
    if cut:
        raise StoreError(f"{path} ends in a line that was cut off; remove it and run the command again.")
    with open(path, "ab") as file:
        file.write(json.dumps(asdict(event), ensure_ascii=False).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return event


@contextmanager
def new_version(directory: Path) -> Iterator[tuple[Path, list[int]]]:
    """A directory to write a version into, and a list that gets its number when the block ends without an error."""
    versions = directory / VERSIONS
    make_directory(versions)
    number: list[int] = []
    with TemporaryDirectory(dir=versions, prefix=".new.") as made:
        whole = Path(made) / "whole"
        whole.mkdir()
        yield whole, number
        taken = max([1, *(int(path.name) for path in versions.iterdir() if path.name.isdecimal())])
        while not number:
            taken += 1
            try:
                whole.rename(versions / str(taken))
            except OSError:  # another process took the number
                if not (versions / str(taken)).exists():
                    raise
                continue
            number.append(taken)


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
