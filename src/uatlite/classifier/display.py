"""Predictions in a terminal and in a notebook: a table of the first rows, and what the reader must not miss."""

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.values import Text, strings

if TYPE_CHECKING:
    from uatlite.classifier.predictions import Prediction, Predictions, TextPredictions

SHOWN = 10
"""Rows of a table; the rest is counted."""
WIDTH = 60
"""Characters of a text."""


def as_text(predictions: "Predictions") -> str:
    """A heading, a table of the first rows, and what the reader must not miss."""
    cells = _cells(predictions)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([_heading(predictions), *(lines if len(predictions) else []), *_notes(predictions)])


def as_html(predictions: "Predictions") -> str:
    """The same as a table for a notebook; every string of the user's is escaped."""
    header, *rows = _cells(predictions)
    head = "".join(f"<th style='text-align:left'>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in _notes(predictions))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div><p>{escape(_heading(predictions))}</p>{table}{notes}</div>"


def describe_one(prediction: "Prediction") -> str:
    """A line for the decision, a line for each measure."""
    row = prediction.as_row()
    lines = [f"{name:<20} {_spelt(value)}" for name, value in row.items()]
    return "\n".join([f"Prediction of {excerpt(prediction.text)!r}", *lines])


def excerpt(text: Text) -> str:
    """The start of a text on one line; the parts of a pair, or a question and its options, parted by ' | '."""
    line = " ".join(" | ".join(strings(text)).split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def as_list(predictions: "TextPredictions[Any]", heading: str, lines: Iterable[str]) -> str:
    """A heading, a line for each of the first texts, how many more there are, and a shift where there is one."""
    more = [f"… and {len(predictions) - SHOWN:,} more"] if len(predictions) > SHOWN else []
    shift = predictions.shift
    return "\n".join([heading, *lines, *more, *([shift.describe()] if shift is not None and shift.shifted else [])])


def _heading(predictions: "Predictions") -> str:
    count = len(predictions)
    heading = f"{count:,} prediction{'' if count == 1 else 's'} of {len(predictions.classes)} classes"
    if predictions.rule is None or not count:
        return heading
    abstained = int(predictions.abstain.sum())
    outside = 0 if predictions.out_of_scope is None else int(predictions.out_of_scope.sum())
    of_them = f", {outside:,} of them out of scope" if outside else ""
    return f"{heading}, {abstained:,} abstained ({abstained / count:.1%}){of_them}"


def _cells(predictions: "Predictions") -> list[tuple[str, ...]]:
    """A header and the first rows; only the columns that say something."""
    columns = ["label", *(["abstain", "reason"] if predictions.rule is not None else [])]
    columns += ["label_set"] if predictions.sets is not None else []
    columns += ["confidence", "entropy"]
    columns += [] if np.isnan(predictions.mutual_information).all() else ["mutual_information"]
    columns += [] if predictions.scope is None else ["scope"]
    rows = [prediction.as_row() for prediction in predictions[:SHOWN]]
    texts = [excerpt(text) for text in predictions.texts[:SHOWN]]
    table = [(*(_spelt(row[column]) for column in columns), text) for row, text in zip(rows, texts, strict=True)]
    return [(*(column.replace("_", " ") for column in columns), "text"), *table]


def _spelt(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if value == 0 or abs(value) >= 1e-4 else f"{value:.1e}"
    return "{" + ", ".join(value) + "}" if isinstance(value, list) else str(value)


def _notes(predictions: "Predictions") -> list[str]:
    notes = [f"… and {len(predictions) - SHOWN:,} more"] if len(predictions) > SHOWN else []
    if predictions.rule is not None and not predictions.rule.promised:
        notes.append(predictions.rule.describe())
    if predictions.truncated_texts:
        notes.append(
            f"{predictions.truncated_texts:,} texts were cut, {predictions.truncated_tokens:,} tokens in all; "
            "windows=True reads them whole."
        )
    if predictions.shift is not None and predictions.shift.shifted:
        notes.append(predictions.shift.describe())
    return notes
