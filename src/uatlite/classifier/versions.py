"""The versions of a saved classifier, side by side: nothing is overwritten, and one can go back.

    DIR/uatlite.json, uatlite.safetensors    version 1, as calibration wrote it
        versions/2/uatlite.json, …           a later one, which appears under its number when it is complete
        versions/2/version.json              when it was made, from which version, and why
        versions/current                     the number of the version in use

The model itself is the same in all of them.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from uatlite.errors import DataError, StoreError
from uatlite.text.write import make_directory, read_record, write_record, write_text

VERSIONS, CURRENT, FACTS = "versions", "current", "version.json"


@dataclass(frozen=True)
class Version:
    """One version of a classifier: when it was made, from which other one, and why."""

    number: int
    made: str
    parent: int | None = None
    note: str = ""

    def describe(self) -> str:
        """One line for a person."""
        how = "calibrate" if self.parent is None else f"update from version {self.parent}"
        return f"{self.made}  version {self.number}  {how}  {self.note}".rstrip()


def history(directory: str | Path) -> list[Version]:
    """All versions, oldest first."""
    first = Path(directory) / "uatlite.json"
    if not first.is_file():
        raise DataError(f"{directory} is not a saved classifier; give a directory that uatlite calibrate wrote.")
    return [Version(1, _spelt(datetime.fromtimestamp(first.stat().st_mtime, UTC))), *_later(directory)]


def current(directory: str | Path) -> int:
    """The number of the version in use."""
    versions = Path(directory) / VERSIONS
    if not versions.is_dir():
        return 1
    try:
        return int((versions / CURRENT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if not _numbers(directory):  # the first update was interrupted
            return 1
        raise StoreError(
            f"{versions / CURRENT} does not name the version in use ({error}); calibrate again."
        ) from error


def current_home(name: str | Path) -> str | Path:
    """Where the files of the version in use are; the name itself where there is one version, as on the hub."""
    number = current(name)
    return name if number == 1 else Path(name) / VERSIONS / str(number)


def use(directory: str | Path, number: int) -> None:
    """Use a version from now on; raises where there is none of that number."""
    known = [version.number for version in history(directory)]
    if number not in known:
        raise DataError(f"{directory} has no version {number}; there are {', '.join(map(str, known))}.")
    if number == current(directory):
        raise DataError(f"version {number} of {directory} is in use already.")
    _point(directory, number)


def add(directory: Path, write: Callable[[Path], None], note: str) -> Version:
    """Make a version of the files that `write` puts into a directory, and use it from now on."""
    versions = directory / VERSIONS
    version = Version(history(directory)[-1].number + 1, _spelt(datetime.now(UTC)), current(directory), note)
    make_directory(versions)
    with TemporaryDirectory(dir=versions, prefix=".new.") as made:
        files = Path(made) / "files"
        files.mkdir()
        write(files)
        write_record(files / FACTS, asdict(version))
        try:
            files.rename(versions / str(version.number))
        except OSError as error:
            raise StoreError(
                f"version {version.number} of {directory} cannot be written ({error.strerror}); if another process "
                "made it meanwhile, run the command again."
            ) from error
    _point(directory, version.number)
    return version


def _point(directory: str | Path, number: int) -> None:
    versions = Path(directory) / VERSIONS
    make_directory(versions)
    write_text(versions / CURRENT, f"{number}\n")


def _numbers(directory: str | Path) -> list[int]:
    versions = Path(directory) / VERSIONS
    names = [path.name for path in versions.iterdir()] if versions.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


def _later(directory: str | Path) -> list[Version]:
    found = []
    for number in _numbers(directory):
        path = Path(directory) / VERSIONS / str(number) / FACTS
        try:
            found.append(Version(**(read_record(path) or {})))
        except TypeError as error:
            raise StoreError(f"{path} is missing or broken; remove that version, or calibrate again.") from error
    return found


def _spelt(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
