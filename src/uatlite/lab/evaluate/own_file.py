"""The user's own file behind an evaluation, so that a report can show its texts: the store itself keeps none."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uatlite.errors import DataError
from uatlite.text.examples import content_key
from uatlite.text.files import row_files
from uatlite.text.schema import Task
from uatlite.text.tasks import load, task_from_file
from uatlite.values import Example


@dataclass(frozen=True)
class OwnFile:
    """A file, or a directory of files, and the columns that were read."""

    path: str
    text: str
    text_pair: str | None
    options: str | None
    label: str
    id: str | None
    digest: str
    """SHA-256 of all bytes: texts of a file that has changed are not shown under old numbers"""

    @classmethod
    def of(cls, task: Task) -> "OwnFile | None":
        """The file of a task that was made from one; None for other tasks."""
        columns = task.layout
        if task.path is None or columns.label is None:
            return None
        return cls(
            path=str(task.path.absolute()),
            text=columns.text,
            text_pair=columns.pair,
            options=columns.options,
            label=columns.label,
            id=columns.id,
            digest=digest_of(task.path),
        )

    def examples(self, data_dir: str | Path | None = None) -> dict[str, Example]:
        """Every row of the file by its id in the store; empty where the file is gone or has changed.

        It is looked for where it was, and by its name in `data_dir`. A row without an id of its own is named after its
        place: `meta` holds the name to show.
        """
        places = [Path(self.path), *([Path(data_dir) / Path(self.path).name] if data_dir is not None else [])]
        path = next((place for place in places if self.digest and digest_of(place) == self.digest), None)
        if path is None:
            return {}
        task = task_from_file(
            path, text=self.text, text_pair=self.text_pair, options=self.options, label=self.label, id=self.id
        )
        found = {}
        for place, example in enumerate(load(task, "all").examples, 1):
            unnamed = example.id.partition("#")[0] == content_key(example.text)[:16]
            shown = f"row {place} of {path.name}" if unnamed else example.id
            found[example.id] = Example(example.id, example.text, example.label, {"shown": shown})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of all row files of a directory in their order; empty where there are none."""
    digest = hashlib.sha256()
    try:
        for file, _ in row_files(path):
            with Path(str(file)).open("rb") as opened:
                for block in iter(lambda: opened.read(1 << 20), b""):
                    digest.update(block)
    except (DataError, OSError):
        return ""
    return digest.hexdigest()
