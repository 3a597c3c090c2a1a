"""What a reader sees of predictions: the reason of each text, values in words, a table in a terminal or a notebook."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from uatlite.values import Text, counted, strings

if TYPE_CHECKING:
    from uatlite.classifier.predictions import Predictions

ANSWERED = "answered"
CUT = "cut"
BELOW = "below the threshold"
UNSTABLE = "unstable under dropout"
OUT_OF_SCOPE = "out of scope"
MISSED = "an entity may be missed"
NO_PROMISE = "no promise"
NO_RULE = "no rule"

REASONS: dict[str, str] = {
    ANSWERED: "the score is above the threshold",
    CUT: "as answered (or no rule), but the text was too long and only its beginning was read",
    BELOW: "the score is not above the threshold",
    UNSTABLE: "the same, and one standard deviation under dropout is enough to change the label",
    OUT_OF_SCOPE: "it does not look like a text of the task",
    MISSED: "of a tagger: an entity is likely to be missed, or to be found wrongly",
    NO_PROMISE: "the calibration rows can promise nothing, so nothing is answered",
    NO_RULE: "nothing decides: calibration was not asked for a rule",
}
"""Reason of a text -> what it means."""

ABSTAINING = (OUT_OF_SCOPE, MISSED, UNSTABLE, BELOW, NO_PROMISE)
"""The reasons with which a row is abstained on, where there is a rule."""

COLOURS = {"green": "#2e7d32", "amber": "#b26a00", "red": "#c62828"}
"""How bad a shift is -> the colour of its verdict in a notebook, which may be light or dark."""

SCORE_NAMES = {"logit-margin": "logit margin", "mutual-information": "negative mutual information"} | {
    name: f"negative {name}" for name in ("entropy", "variance")
}
"""Score of a rule -> its name for a reader, where that differs: a high score means trust, so some are negative."""

_SHOWN = 10
"""Rows of a printed table; the rest is counted."""
_WIDTH = 60
"""Characters of a text in it."""
_LISTED = 6
"""At most this many classes are listed with their probabilities."""


def table(said: "Predictions") -> str:
    """A heading, a table of the first rows, and what the reader must not miss."""
    cells = _cells(said)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([_heading(said), *(lines if len(said) else []), *_notes(said), *_verdict(said).values()])


def html_table(said: "Predictions") -> str:
    """The same as a table for a notebook; every string of the user's is escaped."""
    header, *rows = _cells(said)
    head = "".join(f"<th style='text-align:left'>{escape(cell)}</th>" for cell in header)
    lines = ("".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    notes = "".join(f"<p>{escape(note)}</p>" for note in _notes(said))
    notes += "".join(f"<p style='color:{COLOURS[level]}'>{escape(told)}</p>" for level, told in _verdict(said).items())
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div><p>{escape(_heading(said))}</p>{table}{notes}</div>"


def _heading(said: "Predictions") -> str:
    count, answers = len(said), said.counted
    heading = f"{counted(count, 'prediction')} of {len(said.classes)} {said.words.classes}"
    if said.rules and count:
        abstained = int(said.abstain.sum())
        heading += f", {abstained:,} abstained ({abstained / count:.1%})"
        if said.out_of_scope is not None and said.out_of_scope.any():
            heading += f", {int(said.out_of_scope.sum()):,} of them out of scope"
    return f"{heading}; {answers}" if answers and count else heading


def _cells(said: "Predictions") -> list[tuple[str, ...]]:
    """A header and the first rows; only the columns that say something."""
    first = said[:_SHOWN].columns
    names = [name for name in said.shown if any(value is not None for value in first.get(name, ()))]
    rows = zip(*([spelt(value) for value in first[name]] for name in names), map(excerpt, said.texts), strict=False)
    return [(*(name.replace("_", " ") for name in names), "text"), *rows]


def _notes(said: "Predictions") -> list[str]:
    notes = [f"… and {len(said) - _SHOWN:,} more"] if len(said) > _SHOWN else []
    notes += [rule.describe() for rule in said.rules if not rule.promised]
    if said.truncated_texts:
        cut = f"{counted(said.truncated_texts, 'text was', 'texts were')} cut"
        tokens = f"{counted(said.truncated_tokens, 'token')} in all"
        notes.append(f"{cut}, {tokens}; windows=True, set before calibrating, reads them whole.")
    return notes


def _verdict(said: "Predictions") -> dict[str, str]:
    """Level -> the verdict on a shift; empty where there are too few texts to tell one."""
    return {said.shift.level: said.shift.describe()} if said.shift is not None and said.shift.level else {}


def excerpt(text: Text) -> str:
    """The start of a text on one line; the parts of a pair, or a question and its options, parted by ' | '."""
    line = " ".join(" | ".join(strings(text)).split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def spelt(value: Any) -> str:
    """A value of a row, for a reader."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}" if value == 0 or abs(value) >= 1e-4 else f"{value:.1e}"
    return "{" + ", ".join(map(str, value)) + "}" if isinstance(value, list | tuple) else str(value)


def listed(probabilities: dict[str, float]) -> list[tuple[str, float]]:
    """The classes and their probabilities, the likeliest first; of many classes the last entry sums up the rest."""
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    if len(ranked) <= _LISTED:
        return ranked
    rest = ranked[_LISTED - 1 :]
    return [*ranked[: _LISTED - 1], (f"{len(rest)} others", sum(value for _, value in rest))]


def sentence(row: Mapping[str, Any]) -> str:
    """The reason of a row of output with its numbers: '0.42 below the threshold'."""
    reason = str(row["reason"])
    above = row.get("above_threshold")
    distance = "" if above is None else f"{abs(above):.2g} {'above' if above > 0 else 'below'} the threshold"
    if reason == ANSWERED and row.get("labels") == []:
        return "no label is likely enough" + (f", the highest score is {distance}" if distance else "")
    if reason == BELOW:
        return distance or BELOW
    if reason in (ANSWERED, UNSTABLE):
        return f"{reason}, {distance}" if distance else reason
    if reason == OUT_OF_SCOPE:
        return f"{OUT_OF_SCOPE}, p = {float(row['scope']):.2g}"
    if reason == CUT:
        return f"{counted(int(row['cut_tokens']), 'token was', 'tokens were')} cut off"
    return {NO_PROMISE: "no risk can be promised", NO_RULE: "no rule to abstain by"}.get(reason, reason)
