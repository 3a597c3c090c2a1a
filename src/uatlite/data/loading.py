"""Load a split of a task: find its rows, make examples of them, take the share and the sample.

Where rows are looked for: the user's own file, if the task is one; the data directory (`data_dir`, else the
variable UATLITE_DATA); the Python package that carries them; the hub. A directory that is given as
`data_dir` is the user's word: the hub is not asked then.
"""

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from uatlite.data.conversion import (
    content_key,
    id_of,
    label_index,
    label_of,
    meta_of,
    require_columns,
    text_of,
    value_at,
)
from uatlite.data.files import candidate_names
from uatlite.data.hub import hub_rows
from uatlite.data.reading import Reject, Row, read_rows
from uatlite.data.schema import Layout, PackageFile, Split, Task
from uatlite.data.splits import sample, take_share
from uatlite.data.tasks import find_task
from uatlite.errors import DataError, InputError, MissingDependency, check_choice
from uatlite.values import Dataset, Example

VARIABLE = "UATLITE_DATA"

Found = tuple[Iterable[Row | Reject], Layout, str]  # the rows, how they are laid out, and where they are from


def load(
    task: Task | str,
    split: str,
    data_dir: str | Path | None = None,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> Dataset:
    """One split of a task. `limit` draws rows of it by `seed`; the split is the same for every seed."""
    task = find_task(task) if isinstance(task, str) else task
    check_choice(f"split of {task.name}", split, task.splits)
    part = task.splits[split]
    rows, layout, source = _find(task, part, split, Path(data_dir) if data_dir is not None else None)
    examples, groups = _examples(rows, layout, task)
    if not examples:
        raise DataError(f"{task.name}/{split}: {source} holds no row.")
    shared = take_share(examples, part.share, groups)
    chosen = sample(shared, limit, seed)
    return Dataset(
        name=task.name,
        split=split,
        labels=task.labels,
        examples=tuple(chosen),
        source=_describe(source, part, len(examples), len(shared), len(chosen), seed),
        out_of_scope=task.labels.index(task.out_of_scope) if task.out_of_scope else None,
    )


def _find(task: Task, part: Split, split: str, given: Path | None) -> Found:
    if task.path is not None:
        return read_rows(task.path), task.layout, str(task.path)
    directory = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if directory is not None:
        if not directory.is_dir():
            raise DataError(f"The data directory {directory} does not exist (from --data-dir or {VARIABLE}).")
        if stem_and_file := _local_file(directory, part):
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


def _local_file(directory: Path, part: Split) -> tuple[str, Path] | None:
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


def _examples(rows: Iterable[Row | Reject], layout: Layout, task: Task) -> tuple[list[Example], list[Hashable] | None]:
    """Every row as an example, and its group where there are groups; an unusable row is an error."""
    index = label_index(task.labels)
    examples: list[Example] = []
    groups: list[Hashable] = []
    seen: Counter[str] = Counter()
    for row in require_columns(rows, layout):
        if isinstance(row, Reject):
            raise DataError(f"{row.file}, line {row.line}: {row.reason}.")
        try:
            text = text_of(row.values, layout)
            label = label_of(row.values, layout, index)
        except InputError as error:
            raise DataError(f"{row.file}, line {row.line}: {error}. {task.name} has: {_some(task.labels)}.") from error
        name = id_of(row.values, layout) or content_key(text)[:16]
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        examples.append(Example(unique, text, label, meta_of(row.values, layout)))
        if layout.group is not None:
            groups.append(str(value_at(row.values, layout.group)))
    return examples, groups if layout.group is not None else None


def _some(labels: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(labels[:most]) + (", …" if len(labels) > most else "")


def _describe(source: str, part: Split, held: int, shared: int, chosen: int, seed: int) -> str:
    share = f", {part.share[0]}–{part.share[1]} % of {held:,} rows" if shared != held else ""
    limit = f", {chosen:,} of {shared:,} by seed {seed}" if chosen != shared else ""
    return f"{source}{share}{limit}"
