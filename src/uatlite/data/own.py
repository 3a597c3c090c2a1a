"""A user's own file as a task: `--data reviews.csv --text body --label stars`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from uatlite.data.conversion import label_name, require_columns, value_at
from uatlite.data.files import row_files
from uatlite.data.reading import Reject, Row, read_rows
from uatlite.data.schema import Layout, Split, Task
from uatlite.errors import DataError, InputError

MOST_LABELS = 1000


def task_from_file(
    path: str | Path,
    *,
    text: str = "text",
    text_pair: str | None = None,
    options: str | None = None,
    label: str = "label",
    labels: Sequence[str] | None = None,
    id: str | None = "id",
    group: str | None = None,
) -> Task:
    """A task whose splits are `all`, `calibration` and `test` (two halves of it) of one file or directory.

    Without `labels` they are read from the file: whole numbers in their order, names in alphabetical order.
    With `labels`, integers 0, 1, ... in the file mean the labels by position, unless they are themselves
    among the names.
    """
    path = Path(path)
    row_files(path)  # not there, or not a row file: say so before anything else
    layout = Layout(
        text=text, pair=text_pair, options=options, label=label, id=id, group=group, codes=tuple(labels or ())
    )
    found = tuple(labels) if labels is not None else _labels(require_columns(read_rows(path), layout), layout)
    return Task(
        name=path.name.split(".")[0],
        title=f"the user's file {path.name}",
        labels=found,
        layout=layout,
        path=path,
        splits={"all": Split(), "calibration": Split(share=(0, 50)), "test": Split(share=(50, 100))},
    )


def _labels(rows: Iterable[Row | Reject], layout: Layout) -> tuple[str, ...]:
    """Every label that occurs, in order. One that is no name is an error, and so are ever new ones."""
    names: set[str] = set()
    for row in rows:
        if isinstance(row, Reject):
            raise DataError(f"{row.file}, line {row.line}: {row.reason}.")
        try:
            names.add(label_name(value_at(row.values, str(layout.label))))
        except InputError as error:
            raise DataError(f"{row.file}, line {row.line}, column {layout.label!r}: {error}.") from error
        if len(names) > MOST_LABELS:
            raise DataError(f"Column {layout.label!r} has more than {MOST_LABELS} different values: is it the label?")
    if len(names) < 2:
        raise DataError(f"Column {layout.label!r} has {len(names)} different labels; a classifier needs two or more.")
    return tuple(sorted(names, key=_numeric_first))


def _numeric_first(name: str) -> tuple[bool, int, str]:
    whole = name.removeprefix("-").isdecimal()
    return (not whole, int(name) if whole else 0, name)
