"""Where the rows of a task are.

The user's own file, if the task is one; the data directory (`data_dir`, else the variable UATLITE_DATA);
the Python package that carries them; the hub. A directory that is given as `data_dir` is the user's word:
the hub is not asked then.
"""

import os
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from uatlite.data.files import candidate_names
from uatlite.data.hub import hub_rows
from uatlite.data.reading import Reject, Row, read_rows
from uatlite.data.schema import Layout, PackageFile, Split, Task
from uatlite.errors import DataError, MissingDependency

VARIABLE = "UATLITE_DATA"

Found = tuple[Iterable[Row | Reject], Layout, str]  # the rows, how they are laid out, and where they are from


def find_rows(task: Task, split: str, given: Path | None = None) -> Found:
    """The rows of a split from the first place that has them; an error that says what to put where if none has."""
    part = task.splits[split]
    if task.path is not None:
        return read_rows(task.path), task.layout, str(task.path)
    directory = data_directory(given)
    if directory is not None:
        if not directory.is_dir():
            raise DataError(f"The data directory {directory} does not exist (from --data-dir or {VARIABLE}).")
        if stem_and_file := local_file(directory, part):
            stem, file = stem_and_file
            caveat = f" ({task.caveats[stem]})" if stem in task.caveats else ""
            return read_rows(file), task.layout, file.relative_to(directory).as_posix() + caveat
    if task.package is not None:
        return _package_rows(task.package), task.package.layout, _package_source(task.package)
    if task.hub is None or not part.hub or given is not None:
        raise DataError(f"{task.name}/{split} is not {_where_not(directory)}. {layout_hint(task, part)}")
    try:
        rows = list(hub_rows(task.hub, part.hub))
    except (DataError, MissingDependency) as error:
        raise DataError(f"{str(error).rstrip('.')}. {layout_hint(task, part)}") from error
    return rows, task.hub.layout, f"hub {task.hub.id}, {' + '.join(part.hub)}, rows with a gold label"


def data_directory(given: Path | None = None) -> Path | None:
    """The directory of data files: the one given, else the variable's, else none."""
    return given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)


def local_file(directory: Path, part: Split) -> tuple[str, Path] | None:
    """The first of the split's files that is there, and the stem under which the task names it."""
    for stem in part.files:
        for name in candidate_names(stem):
            if (file := directory / name).is_file():
                return stem, file
    return None


def layout_hint(task: Task, part: Split) -> str:
    """What to put where so that the split loads from a directory, in one sentence."""
    columns = [task.layout.text, task.layout.pair, task.layout.options, task.layout.label, task.layout.group]
    stems = " or ".join(f"{stem}.jsonl" for stem in part.files)
    return (
        f"Give --data-dir DIR (or set {VARIABLE}) with DIR/{stems} (or .csv, .tsv, .gz, .parquet), "
        f"columns: {', '.join(column for column in columns if column)}."
    )


def _where_not(directory: Path | None) -> str:
    return f"in {directory}" if directory is not None else "on the hub"


def _package_rows(package: PackageFile) -> Iterator[Row | Reject]:
    try:
        file = Path(str(distribution(package.distribution).locate_file(package.path)))
    except PackageNotFoundError as error:
        raise MissingDependency(package.distribution, package.extra) from error
    column, wanted = package.where
    rows = read_rows(file)
    return (row for row in rows if isinstance(row, Reject) or row.values.get(column) == wanted)


def _package_source(package: PackageFile) -> str:
    version = distribution(package.distribution).version
    return f"package {package.distribution} {version}, {package.where[0]}={package.where[1]}"
