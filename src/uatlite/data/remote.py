"""Files elsewhere: any address that fsspec opens, as s3://bucket/rows or file:///data/rows.csv."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from uatlite.errors import DataError, MissingDependency


@dataclass(frozen=True)
class RemoteFile:
    """A file by its address; `name` and `str` are as a Path's."""

    address: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.address).name

    def __str__(self) -> str:
        return self.address


def is_remote(source: str | Path | RemoteFile) -> bool:
    """Whether it is an address and no path."""
    return "://" in str(source)


def remote_files(source: str) -> list[RemoteFile]:
    """The file at an address, or all files in the directory there, by name; hidden ones left out."""
    system, path = _system(source)
    try:
        if not system.isdir(path):
            if not system.exists(path):
                raise DataError(f"{source} does not exist.")
            return [RemoteFile(source)]
        inside = [entry["name"] for entry in system.ls(path, detail=True) if entry["type"] == "file"]
    except OSError as error:
        raise DataError(f"{source} cannot be listed: {error}.") from error
    files = [RemoteFile(system.unstrip_protocol(name)) for name in sorted(inside)]
    return [file for file in files if not file.name.startswith(".")]


@contextmanager
def open_remote(source: str) -> Iterator[IO[bytes]]:
    """The bytes at an address; they can be read in any order."""
    system, path = _system(source)
    try:
        file = system.open(path, "rb")
    except OSError as error:
        raise DataError(f"{source} cannot be opened: {error}.") from error
    with file:
        yield file


def _system(source: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependency("fsspec", "data") from error
    try:
        system, path = fsspec.core.url_to_fs(source)
    except (ValueError, ImportError) as error:  # an unknown protocol; one whose package is not installed
        raise DataError(f"{source} cannot be read: {error}") from error
    return system, path
