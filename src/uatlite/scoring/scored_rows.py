"""A row that `uatlite predict` wrote, read back: the one reader for picking, reviewing, watching and rechecking.

Rows of a service, and of the finished parts of a run, are read in the same way, without a file.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from uatlite.codec import dump, load
from uatlite.errors import DataError
from uatlite.text.files import STDIN, row_files
from uatlite.text.rows import Reject, Row, read_rows
from uatlite.text.scores import ScoreColumns
from uatlite.text.write import read_record
from uatlite.trust.rule import SCORES, column_of_score

ANSWER_COLUMNS = ("label", "labels", "entities")
"""The first column of a prediction: one label, many, or entities. The id and the kept columns stand before it."""
NONE, _SEVERAL = "none", "several"
"""What a text is counted under that has no answer, or answers of several labels."""
INPUT_PREFIX = "input_"
"""Put before the name of a kept column where the prediction has a column of that name."""
BESIDE = (".rejects.jsonl", ".review.csv")
"""How the names of files end that `predict` writes beside its rows."""
TRUE, FALSE = ("true", "1"), ("false", "0")
"""How truth values are written, in whatever case."""


@dataclass(frozen=True)
class ScoredRow:
    """The columns of one row of output, with its place where it is of a file; CSV has every value as text."""

    values: Mapping[str, Any]
    file: str = ""
    line: int = 0

    @classmethod
    def of(cls, row: Row | Reject) -> Self:
        """A row of a file; one that cannot be read is an error."""
        if isinstance(row, Reject):
            raise DataError(f"{row.file}, line {row.line}: {row.reason}. Score the rows again.")
        return cls(row.values, row.file, row.line)

    @property
    def answer_column(self) -> str | None:
        """The first column of the prediction; None where there is no prediction. A kept column may have such a name."""
        return next((column for column in reversed(list(self.values)) if column in ANSWER_COLUMNS), None)

    @property
    def kept(self) -> list[str]:
        """The columns of the input that the row holds, the id first: those before the prediction."""
        columns = list(self.values)
        return columns[: columns.index(self.answer_column)] if self.answer_column else columns

    @property
    def answer(self) -> Any:
        """What is said about the text, as gold is written: its label, a list of labels, or a list of entities.

        Of several answers only those that are reported.
        """
        column = self.answer_column
        if column == "entities":
            return [
                {name: entity[name] for name in ("start", "end", "text", "label")}
                for entity in self.listed("entities")
                if entity["reported"]
            ]
        return self.listed("labels") if column == "labels" else str(self.values.get("label", ""))

    @property
    def reported(self) -> list[str]:
        """Of several answers those that are reported: each label, or the type of each entity."""
        answer = self.answer
        if isinstance(answer, str):
            return []
        return [entry["label"] if isinstance(entry, Mapping) else str(entry) for entry in answer]

    @property
    def counted_label(self) -> str:
        """The label that the text is counted under: its own, the only one that is reported, "none" or "several"."""
        answer, labels = self.answer, set(self.reported)
        if isinstance(answer, str):
            return answer
        return _SEVERAL if len(labels) > 1 else next(iter(labels), NONE)

    @property
    def answered(self) -> bool:
        """Whether the text is answered; it is where the row holds no decision."""
        return not self.truth("abstain")

    @property
    def wrong(self) -> list[float]:
        """The calibrated probability of each reported answer that it is wrong."""
        if self.answer_column == "entities":
            return [1.0 - entity["confidence"] for entity in self.listed("entities") if entity["reported"]]
        if self.answer_column == "labels":  # which are numbers of columns where classes are said so
            columns = [name for name in self.values if name.startswith("p_")]
            named = (columns[label] if isinstance(label, int) else f"p_{label}" for label in self.listed("labels"))
            return [1.0 - self.number(name) for name in named]
        return [1.0 - self.number("confidence")] if self.answered and not self.truth("out_of_scope") else []

    def score(self, name: str) -> float:
        """What a rule, or a shift, ranks rows by: higher where the row is more trustworthy."""
        return SCORES.get(name, 1) * self.number(column_of_score(name))  # or the log-odds of several answers

    def number(self, column: str) -> float:
        """A number that must be there, and finite."""
        number = self.optional(column)
        if number is None or not math.isfinite(number):
            raise self._fault(column, "a finite number")
        return number

    def optional(self, column: str) -> float | None:
        """A number; None where there is none."""
        value = self.values.get(column)
        if isinstance(value, float):
            return value
        if value is None or value == "":
            return None
        try:
            return float(str(value))
        except ValueError as error:
            raise self._fault(column, "a number") from error

    def truth(self, column: str) -> bool | None:
        """A truth value; None where there is none."""
        value = self.values.get(column)
        if isinstance(value, bool):
            return value
        spelt = "" if value is None else str(value).strip().lower()
        if spelt not in ("", *TRUE, *FALSE):
            raise self._fault(column, "true or false")
        return spelt in TRUE if spelt else None

    def listed(self, column: str) -> list[Any]:
        """A list; CSV has it as JSON."""
        value = self.values.get(column)
        return list((json.loads(value) if isinstance(value, str) and value else value) or ())

    def _fault(self, column: str, what: str) -> DataError:
        where = f"{self.file}, line {self.line}: " if self.file else ""
        return DataError(f"{where}column {column!r} holds {self.values.get(column)!r}, where {what} is needed.")


def scored_files(source: str | Path, format: str | None = None) -> list[str]:
    """The files of rows at a path or an address, without what `predict` writes beside them; standard input as '-'."""
    if str(source) == STDIN:
        return [STDIN]
    return [file for file, _ in row_files(source, format) if not file.endswith(BESIDE)]


def scored_rows(source: str | Path, needed: Sequence[str], *, format: str | None = None) -> Iterator[ScoredRow]:
    """The rows of these files. A row that cannot be read is an error, and so is a missing column."""
    for file in scored_files(source, format):
        for i, scored in enumerate(map(ScoredRow.of, read_rows(file, format=format))):
            if not i:
                check_columns(scored, needed)
            yield scored


def check_columns(row: ScoredRow, needed: Sequence[str]) -> None:
    """Raise where the first row of a file has no prediction, or lacks one of the other columns that are needed."""
    answers = ANSWER_COLUMNS[:1] if row.answer_column is None else ()
    if missing := [column for column in (*answers, *needed) if column not in row.values]:
        raise DataError(
            f"{row.file} has no column {missing[0]!r}, so it is not what 'uatlite predict' writes; its columns are: "
            f"{', '.join(row.values)}. Needed are: {', '.join([row.answer_column or ANSWER_COLUMNS[0], *needed])}."
        )


def columns_of_input(scored: str | Path) -> dict[str, Any]:
    """Role -> column (`Layout.columns`) of the file that was scored, by the summary beside; empty without one."""
    columns = job_of(scored).get("columns", {})
    roles = {role: columns[role] for role in ("text", "pair", "options") if columns.get(role) is not None}
    if scores := columns.get("scores"):
        roles["scores"] = dump(load(ScoreColumns, scores, advice="score again, with --overwrite.").kept)
    return roles


def job_of(scored: str | Path) -> dict[str, Any]:
    """The job that wrote a file, by the summary beside it; empty without one."""
    return dict((read_record(Path(f"{scored}.summary.json")) or {}).get("job", {}))
