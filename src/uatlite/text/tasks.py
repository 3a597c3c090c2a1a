"""Find, load, split and sample the rows of a task.

Rows come from the first of these places that has them: the user's own file, for a task made from it; the data
directory (`data_dir`, or the environment variable UATLITE_DATA); an installed Python package; the Hugging Face hub,
unless `data_dir` is given.

Splits and samples order the rows by the SHA-256 of a salt and their words. So they do not depend on the order of the
file, its format, the platform or a random generator, and the hub's copy of a data set is split like a local one. Copies
of one text are next to each other in this order, so only one text at the boundary can be in two splits.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from uatlite.errors import ConfigurationError, DataError, InputError, MissingDependency, check_choice
from uatlite.text.examples import content_key, example_or_reject, find_layout, require_columns, value_at
from uatlite.text.files import candidate_names, hub_access, hub_answers
from uatlite.text.gold import GOLD
from uatlite.text.rows import Reject, Row, read_rows
from uatlite.text.schema import Hub, Layout, PackageFile, Split, Task, catalogue, find_task
from uatlite.values import Dataset, Example

VARIABLE = "UATLITE_DATA"
NO_GOLD = -1  # the label on the hub if annotators found no majority, or if test labels are not published

_Found = tuple[Iterable[Row | Reject], Layout, str]  # the rows, their layout, and where they come from


def find_rows(task: Task, split: str, given: Path | None = None) -> _Found:
    """The rows of a split from the first place that has them; otherwise an error that says which file to provide."""
    spec = task.splits[split]
    if task.path is not None:
        return read_rows(task.path), task.layout, str(task.path)
    directory = data_directory(given)
    if directory is not None and (stem_and_file := local_file(directory, spec)):
        stem, file = stem_and_file
        caveat = f" ({task.caveats[stem]})" if stem in task.caveats else ""
        return read_rows(file), task.layout, file.relative_to(directory).as_posix() + caveat
    if task.package is not None:
        return _package_rows(task.package)
    if task.hub is None or not spec.hub or given is not None:
        where = f"in {directory}" if directory is not None else "on the hub"
        raise DataError(f"{task.name}/{split} is not {where}. {layout_hint(task, spec)}")
    try:
        rows = list(_hub_rows(task.hub, spec.hub))
    except (DataError, MissingDependency) as error:
        raise DataError(f"{str(error).rstrip('.')}. {layout_hint(task, spec)}") from error
    return rows, task.hub.layout, f"hub {task.hub.id}, {' + '.join(spec.hub)}, rows with a gold label"


def data_directory(given: Path | None = None) -> Path | None:
    """The directory of data files: the given one, or that of the environment variable, or None; raise if not there."""
    directory = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if directory is not None and not directory.is_dir():
        raise DataError(f"The data directory {directory} does not exist (from --data-dir or {VARIABLE}).")
    return directory


def local_file(directory: Path, split: Split) -> tuple[str, Path] | None:
    """The first of the split's files that exists, after its stem in the task."""
    for stem in split.files:
        for name in candidate_names(stem):
            if (file := directory / name).is_file():
                return stem, file
    return None


def layout_hint(task: Task, split: Split) -> str:
    """One sentence: the file and the columns that the split needs to load from a directory."""
    columns = [*task.layout.columns.values(), task.layout.group]
    stems = " or ".join(f"{stem}.jsonl" for stem in split.files)
    return (
        f"Give --data-dir DIR (or set {VARIABLE}) with DIR/{stems} (or .csv, .tsv, .gz, .parquet), "
        f"columns: {', '.join(column for column in columns if column)}."
    )


def _package_rows(package: PackageFile) -> _Found:
    try:
        installed = distribution(package.distribution)
    except PackageNotFoundError as error:
        raise MissingDependency(package.distribution, package.extra) from error
    column, wanted = package.where
    rows = read_rows(str(installed.locate_file(package.path)))
    chosen = (row for row in rows if isinstance(row, Reject) or row.values.get(column) == wanted)
    return chosen, package.layout, f"package {package.distribution} {installed.version}, {column}={wanted}"


def _hub_rows(hub: Hub, splits: Sequence[str]) -> Iterator[Row]:
    """The rows of some splits of a hub data set, one split after the other, with class names for integer classes.

    Rows without a gold label are left out.
    """
    for split in splits:
        data = _hub_split(hub, split)
        column = data.features.get(hub.layout.label)
        names = getattr(getattr(column, "feature", column), "names", None)  # of a list, the names of what is in it
        for line, values in enumerate(data, start=1):
            label = values.get(hub.layout.label)
            if label == NO_GOLD:
                continue
            if names is not None and label is not None:
                named = [names[i] for i in label] if isinstance(label, list) else names[label]
                values = values | {hub.layout.label: named}
            yield Row(f"{hub.id}/{split}", line, values)


def _hub_split(hub: Hub, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependency("datasets", "data") from error
    try:
        with hub_access(hub.id):
            return datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    except (OSError, ValueError, RuntimeError) as error:  # no network, an unknown data set or split, a loading script
        missed = not os.path.isdir(hub.id) and not hub_answers()
        why = "it cannot be reached, and its cache has no copy" if missed else error
        raise DataError(f"{hub.id} ({split}) cannot be read from the hub: {why}") from error


SPLIT_SEED = 0  # not the user's seed: a calibration row must not become a test row when that changes


def rank(key: str, salt: str) -> str:
    """The sort key of the seeded order."""
    return hashlib.sha256(f"{salt}\n{key}".encode()).hexdigest()


def take_share(
    examples: Sequence[Example], share: tuple[int, int], groups: Sequence[Hashable] | None = None
) -> list[Example]:
    """The rows of `share`, a range in percent of the seeded order; the result keeps the given order.

    Of n rows, (0, 50) has n // 2 and (50, 100) the others. With `groups`, one for each row, no group is divided, and
    the sizes are as near to these as possible.
    """
    low, high = (len(examples) * bound // 100 for bound in share)
    if low == 0 and high == len(examples):
        return list(examples)
    salt = f"split:{SPLIT_SEED}"
    if groups is not None:
        early = _group_cut(groups, low or high, salt)
        return [example for example, is_early in zip(examples, early, strict=True) if is_early == (low == 0)]
    order = _ranked(examples, salt)
    chosen = set(order[low:high])
    return [example for position, example in enumerate(examples) if position in chosen]


def sample(examples: Sequence[Example], limit: int | None, seed: int = 0) -> list[Example]:
    """`limit` rows drawn by `seed`, in the given order; all rows if there are no more than that.

    A larger sample of the same seed contains the smaller one.
    """
    if limit is None or limit >= len(examples):
        return list(examples)
    if limit < 1:
        raise ConfigurationError(f"limit={limit} must be 1 or more; leave it out for all rows.")
    chosen = set(_ranked(examples, f"sample:{seed}")[:limit])
    return [example for position, example in enumerate(examples) if position in chosen]


def _ranked(examples: Sequence[Example], salt: str) -> list[int]:
    """The positions of the examples in the seeded order; copies of one text are ordered by id."""
    keys = [(rank(content_key(example.text), salt), example.id) for example in examples]
    return sorted(range(len(examples)), key=keys.__getitem__)


def _group_cut(groups: Sequence[Hashable], target: int, salt: str) -> list[bool]:
    """True for the rows before the cut: whole groups, about `target` rows, early groups of the seeded order first."""
    sizes = Counter(groups)
    order = sorted(sizes, key=lambda group: rank(str(group), salt))
    taken = nearest_subset([sizes[group] for group in order], target)
    early = {group for group, is_taken in zip(order, taken, strict=True) if is_taken}
    return [group in early for group in groups]


def nearest_subset(sizes: Sequence[int], target: int) -> list[bool]:
    """True for the `sizes` to take so that their sum is nearest to `target`; among equal choices, early sizes first.

    Subset sum: bit s of `reach[i]` is set if a subset of sizes[i:] sums to s.
    """
    reach = [1]
    for size in reversed(sizes):
        reach.append(reach[-1] | reach[-1] << size)
    reach.reverse()
    left = next(
        total
        for distance in range(target + sum(sizes) + 1)
        for total in (target - distance, target + distance)
        if total >= 0 and reach[0] >> total & 1
    )
    taken = []
    for size, later in zip(sizes, reach[1:], strict=True):
        take = left >= size and bool(later >> (left - size) & 1)
        taken.append(take)
        left -= size if take else 0
    return taken


def load(
    task: Task | str,
    split: str,
    data_dir: str | Path | None = None,
    *,
    limit: int | None = None,
    seed: int = 0,
    rows: Iterable[Row | Reject] | None = None,
    rejects: list[Reject] | None = None,
) -> Dataset:
    """One split of a task. `limit` draws that many of its rows by `seed`; the split does not depend on the seed.

    `rows` are those of the user's file where it was read already. A row that cannot be used is an error, or is
    appended to `rejects`.
    """
    task = find_task(task) if isinstance(task, str) else task
    check_choice(f"split of {task.name}", split, task.splits)
    spec = task.splits[split]
    if rows is None:
        rows, layout, source = find_rows(task, split, Path(data_dir) if data_dir is not None else None)
    else:
        layout, source = task.layout, str(task.path)
    examples, groups = _examples(rows, layout, task, rejects)
    if not examples:
        first = f"; the first: line {rejects[0].line}, {rejects[0].reason}" if rejects else ""
        none = f"has no usable row ({len(rejects)} rejected{first})" if rejects else "holds no row"
        raise DataError(f"{task.name}/{split}: {source} {none}.")
    shared = take_share(examples, spec.share, groups)
    if not shared:
        raise DataError(
            f"{task.name}/{split}: none of the {len(examples)} rows of {source} falls into this split; "
            "give more rows, or smaller groups."
        )
    chosen = sample(shared, limit, seed)
    share = f", {spec.share[0]}–{spec.share[1]} % of {len(examples):,} rows" if len(shared) != len(examples) else ""
    drawn = f", {len(chosen):,} of {len(shared):,} by seed {seed}" if len(chosen) != len(shared) else ""
    return Dataset(
        name=task.name,
        split=split,
        labels=task.labels,
        examples=tuple(chosen),
        source=f"{source}{share}{drawn}",
        out_of_scope=task.labels.index(task.out_of_scope) if task.out_of_scope else None,
    )


def _examples(
    rows: Iterable[Row | Reject], layout: Layout, task: Task, rejects: list[Reject] | None
) -> tuple[list[Example], list[Hashable] | None]:
    """Every row as an example, and the groups if the layout has them; an unusable row is a reject or an error."""
    examples: list[Example] = []
    groups: list[Hashable] = []
    seen: Counter[str] = Counter()
    for row in require_columns(rows, layout):
        example = example_or_reject(row, layout, task.labels)
        if isinstance(example, Reject):
            if rejects is None:
                raise example.as_error()
            rejects.append(example)
            continue
        seen[example.id] += 1
        copies = seen[example.id]
        examples.append(example if copies == 1 else replace(example, id=f"{example.id}#{copies}"))
        if layout.group is not None and isinstance(row, Row):
            groups.append(str(value_at(row.values, layout.group)))
    return examples, groups if layout.group is not None else None


def check_source(task: str | None, data: object | None, **of_file: object) -> None:
    """Raise unless rows come from one place: a task by name, or the user's own file.

    `of_file` are options that only a file takes, by name; None where they were not given.
    """
    if (task is None) == (data is None):
        raise ConfigurationError(
            f"Give either --task (one of {', '.join(catalogue())}) or --data FILE with your own rows"
            + (", not both." if task else ".")
        )
    for name, value in of_file.items():
        if task is not None and value is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigurationError(
                f"{option} {value} is about --data FILE, and the rows come from the task {task}; leave {option} out."
            )


def unless_default(columns: Layout) -> dict[str, str | None]:
    """The columns of a layout that a user chose, by the names of their options; None where they are the default."""
    usual = Layout()
    chosen = {"text": (columns.text, usual.text), "text_pair": (columns.pair, usual.pair)}
    chosen["label"] = (columns.label or usual.label, usual.label)
    return {name: None if value == default else value for name, (value, default) in chosen.items()}


MOST_LABELS = 1000


def task_from_file(
    path: str | Path,
    layout: Layout | None = None,
    labels: Sequence[str] | None = None,
    *,
    rows: Sequence[Row | Reject] | None = None,
    strict: bool = True,
) -> Task:
    """A task from one file or directory, with the splits `all` and its two halves, `calibration` and `test`.

    Without `labels` they are read from the file: whole numbers in numerical order, names in alphabetical order. With
    `labels`, the integers 0, 1, ... in the file are positions in it, unless they are themselves among the names.
    `rows` are those of the file where it was read already. With `strict=False` rows without a usable label are skipped.
    """
    path = Path(path)
    rows = list(read_rows(path)) if rows is None else rows
    layout = find_layout(rows, replace(layout or Layout(), codes=tuple(labels or ())))
    return Task(
        name=path.name,
        title=f"the user's file {path.name}",
        labels=tuple(labels or labels_in(require_columns(rows, layout), layout, strict=strict)),
        layout=layout,
        path=path,
        splits={"all": Split(), "calibration": Split(share=(0, 50)), "test": Split(share=(50, 100))},
    )


def labels_in(rows: Iterable[Row | Reject], layout: Layout, *, strict: bool = True) -> tuple[str, ...]:
    """The labels that occur: whole numbers in numerical order, then names in alphabetical order.

    A row without a usable label is an error, or is skipped with `strict=False`. More than 1,000 labels are an error.
    """
    names: set[str] = set()
    gold = GOLD[layout.kind]
    for row in rows:
        if isinstance(row, Reject):
            if strict:
                raise row.as_error()
            continue
        try:
            names.update(gold.names(value_at(row.values, str(layout.label)), layout))
        except InputError as error:
            if strict:
                raise DataError(f"{row.file}, line {row.line}, column {layout.label!r}: {error}.") from error
        if len(names) > MOST_LABELS:
            raise DataError(f"Column {layout.label!r} has more than {MOST_LABELS} different values: is it the label?")
    if len(names) < gold.fewest:
        given = f"only the label {names.pop()!r}" if names else "no label"
        needed = ("one", "two")[gold.fewest - 1]
        raise DataError(f"Column {layout.label!r} has {given}; a classifier needs {needed} or more.")
    return tuple(sorted(names, key=_numeric_first))


def _numeric_first(name: str) -> tuple[bool, int, str]:
    numeric = name.removeprefix("-").isdecimal()
    return (not numeric, int(name) if numeric else 0, name)
