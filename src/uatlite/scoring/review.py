"""The rows of a scored file that a person should see first, with their text and the reason.

The order, from the first:

1. Rows that are out of scope, beyond what chance explains in this file (Benjamini–Hochberg), the strangest first.
2. The other rows that are abstained on, the farthest below the threshold first.
3. Rows whose text was cut.
4. All others, the nearest to the threshold first.

Where there is no threshold, the calibrated confidence takes its place.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.reasons import ABSTAINING, CUT, OUT_OF_SCOPE, sentence
from uatlite.errors import ConfigurationError, DataError
from uatlite.scoring.parts import PREFIX
from uatlite.text.pieces import read_record
from uatlite.text.rows import Reject, read_rows
from uatlite.text.write import row_writer
from uatlite.trust.scope import benjamini_hochberg
from uatlite.values import Floats

FALSE_DISCOVERIES = 0.1
"""Of the rows that come first as out of scope, at most this share is in scope, on average."""
NEEDED = ("id", "confidence", "reason")
ANSWERS = ("label", "labels", "entities")
"""The first column of a prediction: one label, many, or entities; the id and the kept columns stand before it."""


def review_rows(scored: str | Path, count: int) -> list[dict[str, Any]]:
    """The first `count` rows to review: id and kept columns, label, confidence, reason, and the reason in a sentence.

    The file is read twice: once for the numbers of all rows, once for the chosen rows.
    """
    if count < 1:
        raise ConfigurationError(f"{count} rows to review are not 1 or more.")
    order = _order_of_file(scored)[:count].tolist()
    chosen = set(order)
    found = {place: row for place, row in enumerate(_rows(scored)) if place in chosen}
    return [_shown(found[place]) for place in order]


def review_order(
    reasons: Sequence[str], above_threshold: Floats, confidence: Floats, scope: Floats | None
) -> NDArray[np.int64]:
    """The places of all rows in the order of review; (rows,) each, `above_threshold` NaN where it is not known."""
    reason = np.array(reasons, dtype=np.str_)
    doubt = above_threshold if np.isfinite(above_threshold).all() else confidence
    outside = reason == OUT_OF_SCOPE
    if scope is not None and outside.any():
        outside &= benjamini_hochberg(scope, FALSE_DISCOVERIES)
    group = np.select([outside, np.isin(reason, ABSTAINING), reason == CUT], [0, 1, 2], 3)
    strange = np.zeros(len(reason)) if scope is None else np.where(group == 0, scope, 0.0)
    return np.lexsort((doubt, strange, group))  # the last key counts first; ties keep the order of the file


def write_review(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the rows to review as CSV, JSONL or Parquet, by extension."""
    with row_writer(path) as write:
        for row in rows:
            write(row)


def _order_of_file(scored: str | Path) -> NDArray[np.int64]:
    reasons: list[str] = []
    numbers: list[tuple[float, float, float]] = []
    for row in _rows(scored):
        if not reasons:
            _check_columns(row, scored)
        reasons.append(str(row["reason"]))
        numbers.append((_number(row.get("above_threshold")), _number(row["confidence"]), _number(row.get("scope"))))
    above, confidence, scope = np.array(numbers, dtype=np.float64).reshape(-1, 3).T
    return review_order(reasons, above, confidence, scope if len(scope) and not np.isnan(scope).any() else None)


def _rows(scored: str | Path) -> Iterator[Mapping[str, Any]]:
    for row in read_rows(scored):
        if isinstance(row, Reject):
            raise DataError(f"{row.file}, line {row.line}: {row.reason}. Score the rows again.")
        yield row.values


def _check_columns(row: Mapping[str, Any], scored: str | Path) -> None:
    """Raise unless the file is one that `predict` wrote, with the texts in it."""
    answers = ANSWERS[:1] if _answer_column(row) is None else ()
    if missing := [column for column in (*answers, *NEEDED) if column not in row]:
        raise DataError(
            f"{scored} has no column {missing[0]!r}, so it is not what 'uatlite predict' writes; its columns are: "
            f"{', '.join(row)}."
        )
    text = columns_of_input(scored).get("text")
    before = _before_prediction(row)
    if before == ["id"] or (text is not None and not {text, PREFIX + text} & set(before)):
        raise DataError(
            f"{scored} holds no texts to look at; score the rows again with --keep-text, or into a .csv file, which "
            f"has them. Its columns are: {', '.join(row)}."
        )


def columns_of_input(scored: str | Path) -> dict[str, str]:
    """Role -> column (`Layout.columns`) of the file that was scored, by the summary beside; empty without one."""
    record = read_record(Path(f"{scored}.summary.json")) or {}
    columns = record.get("job", {}).get("columns", {})
    return {role: columns[role] for role in ("text", "pair", "options") if columns.get(role) is not None}


def _before_prediction(row: Mapping[str, Any]) -> list[str]:
    columns, first = list(row), _answer_column(row)
    assert first is not None
    return columns[: columns.index(first)]


def _answer_column(row: Mapping[str, Any]) -> str | None:
    return next((column for column in ANSWERS if column in row), None)


def _answer(row: Mapping[str, Any]) -> str:
    """The label; of many labels those reported, else those in doubt with a question mark; or the entities."""
    if "label" in row:
        return str(row["label"])
    if "entities" in row:
        found = json.loads(row["entities"]) if isinstance(row["entities"], str) else row["entities"]
        return ", ".join(f"{one['text']} {one['label']}{'' if one['reported'] else '?'}" for one in found or ())
    reported, doubtful = (_names(row.get(column)) for column in ("labels", "withheld"))
    return ", ".join(reported or [f"{name}?" for name in doubtful])


def _names(value: Any) -> list[str]:
    """A list of labels; CSV has it as JSON."""
    found = json.loads(value) if isinstance(value, str) else value
    return [str(name) for name in found or ()]


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: _known(row.get(name)) for name in ("above_threshold", "scope", "cut_tokens")}
    kept = {name: row[name] for name in _before_prediction(row)}
    labels = {"labels": _names(row["labels"])} if "labels" in row else {}
    why = sentence({"reason": row["reason"], **numbers, **labels})
    return {**kept, "label": _answer(row), "confidence": _known(row["confidence"]), "reason": row["reason"], "why": why}


def _number(value: object) -> float:
    """A number of the output, NaN where it is empty; CSV has it as text."""
    return float("nan") if value is None or value == "" else float(str(value))


def _known(value: object) -> float | None:
    number = _number(value)
    return None if np.isnan(number) else number
