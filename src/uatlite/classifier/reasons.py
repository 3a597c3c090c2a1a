"""Why a row is answered or not: one reason for each row, from a fixed list, and the same in a sentence.

Files, the service, the page and Python use these words, so that rows can be counted and filtered by them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from uatlite.values import Integers, Marks

ANSWERED = "answered"
CUT = "cut"
BELOW = "below the threshold"
DISAGREE = "passes disagree"
OUT_OF_SCOPE = "out of scope"
MISSED = "an entity may be missed"
NO_PROMISE = "no promise"
NO_RULE = "no rule"

REASONS: dict[str, str] = {
    ANSWERED: "the score is above the threshold",
    CUT: "as answered (or no rule), but the text was too long and only its beginning was read",
    BELOW: "the score is not above the threshold",
    DISAGREE: "the same, and one standard deviation over the passes is enough to change the label",
    OUT_OF_SCOPE: "it does not look like a text of the task",
    MISSED: "of a tagger: an entity is likely to be missed, or to be found wrongly",
    NO_PROMISE: "the calibration rows can promise nothing, so nothing is answered",
    NO_RULE: "nothing decides: calibration was not asked for a rule",
}
"""Reason -> what it means."""

ABSTAINING = (OUT_OF_SCOPE, MISSED, DISAGREE, BELOW, NO_PROMISE)
"""The reasons with which a row is abstained on, where there is a rule."""


def first_reason(cases: Mapping[str, Marks] | None, *, out_of_scope: Marks | None, cut: Integers) -> list[str]:
    """For each row the first that holds: out of scope, one of `cases` (rows,), cut; None where there is no rule."""
    outside = np.zeros(len(cut), dtype=np.bool_) if out_of_scope is None else out_of_scope
    reasons = {OUT_OF_SCOPE: outside, **(cases or {}), CUT: cut > 0}
    otherwise = NO_RULE if cases is None else ANSWERED
    return np.select(list(reasons.values()), list(reasons), otherwise).tolist()  # type: ignore[no-any-return]


def sentence(row: Mapping[str, Any]) -> str:
    """The reason of a row of output with its numbers: '0.42 below the threshold'."""
    reason = str(row["reason"])
    distance = _distance(row.get("above_threshold"))
    if reason == ANSWERED and row.get("labels") == []:
        return "no label is likely enough" + (f", the highest score is {distance}" if distance else "")
    if reason == BELOW:
        return distance or BELOW
    if reason in (ANSWERED, DISAGREE):
        return f"{reason}, {distance}" if distance else reason
    if reason == OUT_OF_SCOPE:
        return f"{OUT_OF_SCOPE}, p = {float(row['scope']):.2g}"
    if reason == CUT:
        return f"{int(row['cut_tokens']):,} tokens were cut off"
    return {NO_PROMISE: "no risk can be promised", NO_RULE: "no rule to abstain by"}.get(reason, reason)


def _distance(above: float | None) -> str:
    if above is None:
        return ""
    return f"{abs(above):.2g} {'above' if above > 0 else 'below'} the threshold"
