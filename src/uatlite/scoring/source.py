"""The input of a command, opened once: its first rows are kept, and decide which column is what.

    Source  →  layout  →  items, examples or rejects  →  blocks of bounded size     to score
                       →  labelled rows, or texts alone                             to calibrate, recheck, export

A block is what is in memory at once. Its digest tells a resumed run whether its rows are still the same.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np

from uatlite.classifier.answer_kind import AnyKind
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.product import KINDS, Product
from uatlite.classifier.scores import ScoresRuntime
from uatlite.codec import load
from uatlite.errors import DataError, InputError
from uatlite.scoring.job import Job
from uatlite.text.examples import LOOK_AHEAD, example_or_reject, find_layout, has_column, require_columns, value_at
from uatlite.text.files import STDIN, is_remote, open_bytes, row_files
from uatlite.text.gold import GOLD
from uatlite.text.rows import Reject, Row, read_rows
from uatlite.text.schema import TAGS, Layout
from uatlite.text.scores import EMBEDDING_COLUMN, ScoreColumns, find_columns
from uatlite.values import Choices, Example, Kind, ScoredText, Text, Words, strings

BLOCK_ROWS = 512
"""Enough texts for batches of similar length, which need little padding. A killed run loses at most one block."""
BLOCK_CHARACTERS = 4_000_000
READ_BYTES = 1 << 20

PICKED = {"text": "text", "pair": "text_pair", "options": "options", "label": "label"}
"""Role (`Layout.columns`) -> the column that `pick` writes, whatever it is called elsewhere."""

TRUE_CLASS = "true"
"""The column of a table of costs that names the true class."""

SCORED = ("reason", "passes", "cut_tokens")
"""Columns by which rows are known that `predict` wrote."""

Item = Example | Reject


class Source:
    """A file, a directory, an address, or '-' for standard input. Its rows can be taken once."""

    def __init__(self, name: str, *, format: str | None = None, embeddings: str | None = None) -> None:
        self.name = name
        self.format = format
        self.notes: list[str] = []
        """what to say of the columns"""
        rows = read_rows(name, format=format)
        self._vectors = embeddings if embeddings is None or embeddings.endswith(".npy") else None
        self._embedding = EMBEDDING_COLUMN if self._vectors else embeddings
        if self._vectors:
            rows = with_vectors(rows, self._vectors)
        self._first = list(islice(rows, LOOK_AHEAD))
        if not self._first:
            raise DataError(f"{'standard input' if name == STDIN else name} is empty: it has no row.")
        self._rows: Iterator[Row | Reject] = chain(self._first, rows)

    def __iter__(self) -> Iterator[Row | Reject]:
        return self._rows

    def layout(self, layout: Layout, asked: Mapping[str, str | None], remembered: Mapping[str, str]) -> Layout:
        """The layout with the columns that a user asked for, or else with those of the calibration rows.

        Roles are those of `Layout.columns`. Where the input does not have a remembered column, that of `pick` is taken.
        """
        if "scores" in remembered:
            scores = load(ScoreColumns, remembered["scores"], advice="calibrate again.")
            layout = replace(
                layout, scores=self._matched(replace(scores, embedding=self._embedding or scores.embedding))
            )
        chosen: dict[str, Any] = {role: column for role, column in asked.items() if column}
        for role in (asked.keys() & remembered.keys()) - chosen.keys():
            picked = not self._has(remembered[role]) and self._has(PICKED[role])
            chosen[role] = PICKED[role] if picked else remembered[role]
        if layout.scores is not None and not self._has(chosen.get("text", layout.text)):
            chosen["text"] = ""  # it is only shown
        return replace(layout, **chosen)

    def score_columns(self, label: str | None, order: Sequence[str] | None = None) -> ScoreColumns:
        """The columns of scores of calibration rows, all of which are read; `order` names the classes."""
        rows = [*self._rows]
        values = [row.values for row in rows if isinstance(row, Row)]
        self._rows = iter(rows)
        columns = find_columns(values, gold=label or str(Layout().label), order=order, embedding=self._embedding)
        self.notes.append(columns.describe())
        return columns

    def _matched(self, columns: ScoreColumns) -> ScoreColumns:
        """The columns of scores in this input; raises where they are not as they were at calibration."""
        first = [row.values for row in self._first if isinstance(row, Row)]
        names = dict.fromkeys(name for values in first for name in values)
        matched = columns.matched(names)
        if [name for name in names if name in matched.columns] != list(matched.columns):
            self.notes.append(
                "The columns of scores stand in another order than at calibration; they are read by name."
            )
        return matched

    def text_layout(self, layout: Layout, kind: Kind) -> Layout:
        """The layout of texts for a model of this kind: those with entities may be words, in the column `tokens`.

        Where the column of the text was not named, the first row decides.
        """
        if not GOLD[kind].in_place:
            return layout
        first = next((row.values for row in self._first if isinstance(row, Row)), {})
        unnamed = layout.text == Layout().text
        words = layout.text not in first and TAGS.text in first if unnamed else layout.text == TAGS.text
        return replace(layout, text=TAGS.text if words else layout.text, gold=TAGS.gold if words else "entities")

    def gold_layout(self, layout: Layout, kind: Kind) -> Layout:
        """The layout of rows with gold of this kind; where that stands in several forms, the first rows tell which.

        Where its column was not named, it is that of the kind, as `labels`, or else `label`, which `pick` writes.
        """
        gold = GOLD[kind]
        if not gold.in_place:
            label = layout.label or next((name for name in (gold.field, "label") if self._has(name)), gold.field)
            return replace(layout, label=label, gold="class" if gold.field == "label" else gold.field)
        layout = find_layout(self._first, replace(layout, label=layout.label or Layout().label))
        if layout.kind != kind:
            raise DataError(
                f"{self.name} has no gold {kind}; give rows with tokens and tags, or text and entities, or name the "
                "columns: --text tokens --label tags."
            )
        return replace(layout, codes=())

    def labelled_for(
        self, product: Product[Any], asked: Mapping[str, str | None], *, strict: bool = False, filled: bool = False
    ) -> "LabelledRows":
        """The labelled rows for a product, by the columns that a user asked for or that are stored with it."""
        classes = product.class_names or tuple(ascii_uppercase)
        layout = self.layout(Layout(label=None, codes=classes, meta=("inclusion",)), asked, product.columns)
        predicted = {gold.field for gold in GOLD.values()}
        given = self._has(str(layout.label)) and layout.label not in predicted
        if all(map(self._has, SCORED)) and not (given or asked.get("label")):
            raise DataError(
                f"{self.name} was written by uatlite predict: its labels are what the model said, nobody gave them. "
                "Label rows of it (uatlite pick), or name the column of the given labels: --label COLUMN"
            )
        return self.labelled(self.gold_layout(layout, product.kind.name), classes, strict=strict, filled=filled)

    def check_job(self, job: Job) -> None:
        """Raise before the model is loaded where the output may not be written, or a column is missing."""
        job.check_output()
        if self.text_layout(job.layout, "entities").text == job.layout.text:  # else it depends on the model
            self.check(job.layout, also=job.named)

    def check(self, layout: Layout, *, with_label: bool = False, also: Iterable[str] = ()) -> None:
        """Raise where the first rows lack a column of the layout, or one of `also`."""
        require_columns(self._first, layout, with_label=with_label, also=also)

    def items(
        self,
        layout: Layout,
        labels: Sequence[str] | None = None,
        *,
        kind: AnyKind | None = None,
        classes: Sequence[str] = (),
        strict: bool = False,
    ) -> Iterator[Item]:
        """Each row as an example or a reject; with `strict` a reject is an error. Without `labels` no gold is read.

        With a `kind`, a text that a model of it with these classes does not take is a reject too. Where the classes are
        options and not known, the first question says how many there are.
        """
        for row in self._rows:
            item = example_or_reject(row, layout, labels, unnamed=f"{row.file}:{row.line}")
            if kind is not None and isinstance(row, Row) and isinstance(item, Example):
                if fault := kind.fault(item.text, classes):
                    item = row.rejected(InputError(fault))
                elif not classes and isinstance(item.text, Choices):
                    classes = ascii_uppercase[: len(item.text.options)]
            if isinstance(item, Reject) and strict:
                raise DataError(
                    f"{item.file}, line {item.line}: {item.reason}. Without --strict such rows are listed and skipped."
                )
            yield item

    def labelled(
        self, layout: Layout, classes: Sequence[str], *, strict: bool = False, filled: bool = False
    ) -> "LabelledRows":
        """Every row with a text and gold of the model's classes; the others are rejects.

        `classes` are labels, or types of entities. With `strict` the first reject is an error. An input without any
        usable row always is. With `filled`, a row whose gold was left empty is a reject, also where that could say that
        no label applies.
        """
        self.check(layout, with_label=True)
        if filled:
            self._rows = (_checked_filled(row, str(layout.label)) for row in self._rows)
        items = list(self.items(layout, classes, strict=strict))
        examples = [item for item in items if isinstance(item, Example)]
        rejects = [item for item in items if isinstance(item, Reject)]
        if not examples:
            self._check_any_label(str(layout.label))
            first = f"; the first: line {rejects[0].line}, {rejects[0].reason}" if rejects else ""
            names = ", ".join(classes[:8]) + (", …" if len(classes) > 8 else "")
            raise DataError(
                f"{self.name} has no usable row ({len(rejects)} rejected{first}). A label is one of the model's "
                f"classes, {names}, or its number from 0; if the data use other names, give these in the model's "
                "order to 'uatlite calibrate': --label-order a,b"
            )
        field = GOLD[layout.kind].field
        return LabelledRows(
            texts=[example.text for example in examples],
            gold=[getattr(example, field) for example in examples],
            meta=[example.meta for example in examples],
            rejects=rejects,
            layout=layout,
        )

    def texts(self, layout: Layout, *, strict: bool = False, most: int | None = None) -> list[Text]:
        """The texts of usable rows, all or the first; labels are not read. With `strict` all rows must be usable."""
        self.check(layout)
        items = self.items(layout, kind=KINDS[layout.kind], strict=strict)
        texts = list(islice((item.text for item in items if isinstance(item, Example)), most))
        if not texts:
            raise DataError(f"{self.name} has no usable text; is the column {layout.text!r} right?")
        return texts

    def texts_for(
        self, columns: Mapping[str, str], asked: Mapping[str, str | None], *, most: int | None = None
    ) -> list[Text]:
        """The texts, by the columns that a user asked for or that are stored with a classifier."""
        return self.texts(self.layout(Layout(label=None), asked, columns), most=most)

    def estimate(self) -> int | None:
        """About how many rows there are: line ends, or the number in a Parquet file.

        None for standard input, which can be read only once, and for remote files, which would have to be fetched.
        """
        if self.name == STDIN or is_remote(self.name):
            return None
        return sum(_file_rows(Path(str(path)), name) for path, name in row_files(self.name, self.format))

    def _check_any_label(self, column: str) -> None:
        """Raise where the first rows have nothing in the column of the label."""
        rows = [row.values for row in self._first if isinstance(row, Row)]
        if rows and all(value_at(values, column) in (None, "", []) for values in rows):
            others = ", ".join(name for name in rows[0] if name != column)
            raise DataError(
                f"{self.name} has no labels: its column {column!r} is empty; the other columns are: {others}. Fill it, "
                "or name the column that has them: --label COLUMN"
            )

    def _has(self, column: str) -> bool:
        return any(isinstance(row, Row) and has_column(row.values, column) for row in self._first)


def of_scores(
    source: Source, label: str | None, order: Sequence[str] | None = None, **options: Any
) -> UncertaintyClassifier:
    """A new classifier by the scores of calibration rows, whose gold is in the column `label`."""
    columns = source.score_columns(label, order)
    classifier = UncertaintyClassifier(ScoresRuntime(columns), **options)
    classifier.columns = dict(classifier.runtime.columns_read)
    return classifier


def read_costs(path: Path) -> dict[str, dict[str, Any]]:
    """The table of a file of costs: the class in the column `true` -> what each other column says."""
    table: dict[str, dict[str, Any]] = {}
    for row in read_rows(str(path)):
        if isinstance(row, Reject) or row.values.get(TRUE_CLASS) in (None, "", *table):
            fault = getattr(
                row, "reason", f"no class, or the same again, in the column {TRUE_CLASS!r}; it names the true class"
            )
            raise DataError(f"{path}, line {row.line}: {fault}.")
        table[str(row.values[TRUE_CLASS])] = {
            column: cost for column, cost in row.values.items() if column != TRUE_CLASS
        }
    return table


@dataclass(frozen=True)
class LabelledRows:
    """Texts and their gold, (rows,) each, and the rejected rows."""

    texts: list[Text]
    gold: list[Any]
    """a class, the labels, or the entities of each text: the field of an `Example` that its layout has gold in"""
    meta: list[Mapping[str, object]]
    """the layout's `meta` columns of each row"""
    rejects: list[Reject]
    layout: Layout


def _checked_filled(row: Row | Reject, label: str) -> Row | Reject:
    if isinstance(row, Row) and value_at(row.values, label) in (None, ""):
        return row.rejected(InputError("no label"))
    return row


def _file_rows(path: Path, name: str) -> int:
    if name == "parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    lines, end = 0, b"\n\n" if name == "conll" else b"\n"
    with suppress(OSError, EOFError, DataError), open_bytes(path) as file:  # reading the rows reports what is wrong
        while read := file.read(READ_BYTES):
            lines += read.count(end)
    return lines - (name not in ("jsonl", "conll"))


@dataclass(frozen=True)
class Block:
    """Consecutive rows of the input, numbered from 0."""

    number: int
    items: tuple[Item, ...]

    @property
    def examples(self) -> list[Example]:
        """The rows that can be scored."""
        return [item for item in self.items if isinstance(item, Example)]

    @property
    def digest(self) -> str:
        """SHA-256 of all that its output depends on: ids, texts, kept columns, rejects."""
        digest = hashlib.sha256()
        for item in self.items:
            read = [item.id, _parts(item.text), dict(item.meta)] if isinstance(item, Example) else item.as_row()
            digest.update(json.dumps(read, default=str).encode() + b"\n")
        return digest.hexdigest()


def _parts(text: Text) -> tuple[str, ...]:
    """All that decides what a model reads of a text: the same words, cut in another way, are another text."""
    if isinstance(text, ScoredText):
        return text.text, *map(str, text.logits), text.vector.hex()
    return ("", *text.tokens) if isinstance(text, Words) else strings(text)


def with_vectors(rows: Iterable[Row | Reject], file: str) -> Iterator[Row | Reject]:
    """The same rows, each with its vector of a NumPy file (rows, width) as a column."""
    try:
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as an array of NumPy: {error}") from error
    count = 0
    for count, row in enumerate(rows, start=1):
        if count > len(vectors):
            break
        yield replace(row, values={**row.values, EMBEDDING_COLUMN: vectors[count - 1]}) if isinstance(row, Row) else row
    if count != len(vectors):
        raise DataError(
            f"{file} has {len(vectors):,} rows, and the rows of scores are {count:,} or more; give one each."
        )


def blocks(items: Iterable[Item], rows: int = BLOCK_ROWS, characters: int = BLOCK_CHARACTERS) -> Iterator[Block]:
    """Cut a stream into blocks of at most `rows` rows; a block ends early once its texts reach `characters`."""
    number = length = 0
    held: list[Item] = []
    for item in items:
        held.append(item)
        length += sum(map(len, strings(item.text))) if isinstance(item, Example) else len(item.raw)
        if len(held) == rows or length >= characters:
            yield Block(number, tuple(held))
            number, length, held = number + 1, 0, []
    if held:
        yield Block(number, tuple(held))
