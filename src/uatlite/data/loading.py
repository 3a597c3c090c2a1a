"""Load a split of a task: find its rows, make examples of them, take the share and the sample."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace
from pathlib import Path

from uatlite.data.conversion import example_of, label_index, require_columns, value_at
from uatlite.data.reading import Reject, Row
from uatlite.data.schema import Layout, Split, Task
from uatlite.data.sources import find_rows
from uatlite.data.splits import sample, take_share
from uatlite.data.tasks import find_task
from uatlite.errors import DataError, InputError, check_choice
from uatlite.values import Dataset, Example


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
    rows, layout, source = find_rows(task, split, Path(data_dir) if data_dir is not None else None)
    examples, groups = _examples(rows, layout, task)
    if not examples:
        raise DataError(f"{task.name}/{split}: {source} holds no row.")
    shared = take_share(examples, part.share, groups)
    if not shared:
        raise DataError(
            f"{task.name}/{split}: none of the {len(examples)} rows of {source} falls into this split; "
            "there are too few rows, or groups of them."
        )
    chosen = sample(shared, limit, seed)
    return Dataset(
        name=task.name,
        split=split,
        labels=task.labels,
        examples=tuple(chosen),
        source=_describe(source, part, len(examples), len(shared), len(chosen), seed),
        out_of_scope=task.labels.index(task.out_of_scope) if task.out_of_scope else None,
    )


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
            example = example_of(row.values, layout, index)
        except InputError as error:
            raise DataError(
                f"{row.file}, line {row.line}: {error}. {task.name} has the labels {_some(task.labels)}."
            ) from error
        seen[example.id] += 1
        copies = seen[example.id]
        examples.append(example if copies == 1 else replace(example, id=f"{example.id}#{copies}"))
        if layout.group is not None:
            groups.append(str(value_at(row.values, layout.group)))
    return examples, groups if layout.group is not None else None


def _some(labels: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(labels[:most]) + (", …" if len(labels) > most else "")


def _describe(source: str, part: Split, held: int, shared: int, chosen: int, seed: int) -> str:
    share = f", {part.share[0]}–{part.share[1]} % of {held:,} rows" if shared != held else ""
    limit = f", {chosen:,} of {shared:,} by seed {seed}" if chosen != shared else ""
    return f"{source}{share}{limit}"
