"""Labelled rows of a file, in memory: what calibration learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uatlite.data.conversion import read_examples
from uatlite.data.reading import Reject
from uatlite.data.schema import Layout
from uatlite.data.writing import row_writer
from uatlite.errors import DataError
from uatlite.values import Text


@dataclass(frozen=True)
class Labelled:
    """Texts with their classes, (rows,) each, and the rows that could not be used."""

    texts: list[Text]
    labels: list[int]
    rejects: list[Reject]

    def write_rejects(self, path: Path) -> None:
        """List the rows that could not be used, with line and reason; no file where there are none."""
        if self.rejects:
            with row_writer(path) as write:
                for reject in self.rejects:
                    write(reject.as_row())


def read_labelled(
    source: str, layout: Layout, classes: Sequence[str], *, format: str | None = None, strict: bool = False
) -> Labelled:
    """Every row with a text and a label that is one of the model's classes; the others are rejects.

    With `strict` the first reject is an error; a file of rejects alone always is.
    """
    texts: list[Text] = []
    labels: list[int] = []
    rejects: list[Reject] = []
    for item in read_examples(source, layout, classes, format=format):
        if isinstance(item, Reject):
            rejects.append(item)
            if strict:
                raise DataError(f"{item.file}, line {item.line}: {item.reason}. Without --strict it is set aside.")
        elif item.label is not None:
            texts.append(item.text)
            labels.append(item.label)
    if not texts:
        first = f"; the first: line {rejects[0].line}, {rejects[0].reason}" if rejects else ""
        known = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
        raise DataError(
            f"{source} has no row that can be used ({len(rejects)} rejected{first}). The model's classes are {known}; "
            "where they are called otherwise in the data, name them in the model's order: --label-order a,b"
        )
    return Labelled(texts, labels, rejects)
