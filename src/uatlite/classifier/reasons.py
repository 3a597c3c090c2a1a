"""Why a row is answered or not: one reason for each row, from a fixed list, and the same in a sentence.

Files, the service, the page and Python use these words, so that rows can be counted and filtered by them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uatlite.predictive import Predictive
from uatlite.trust.rule import AbstentionRule, trust
from uatlite.values import Floats, Integers

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

OF_PASSES = ("mutual-information", "variance")
"""The scores of a rule that measure nothing but how much the passes disagree."""


def above_threshold(rule: AbstentionRule, predictive: Predictive) -> Floats:
    """The rule's score minus its threshold for the predicted class, (rows,); infinite where the threshold is."""
    thresholds = rule.threshold if rule.thresholds is None else np.array(rule.thresholds)[predictive.predicted]
    return np.asarray(trust(rule.score, predictive) - thresholds)


def passes_disagree(predictive: Predictive) -> NDArray[np.bool_]:
    """(rows,): margin ≤ 2·sd, where sd is that of the predicted class's probability over the passes.

    Of two classes the label changes where its probability falls by half the margin: in about one pass of six or more.
    Where the variance is not known, nothing disagrees.
    """
    spread = np.sqrt(np.nan_to_num(predictive.variance))
    return np.asarray((predictive.margin <= 2.0 * spread) & (spread > 0.0))


def reasons(
    predictive: Predictive,
    rule: AbstentionRule | None,
    *,
    out_of_scope: NDArray[np.bool_] | None,
    cut: Integers,
) -> list[str]:
    """The reason of each row; `cut` (rows,) are the tokens that were cut off, `out_of_scope` (rows,) where known."""
    rows = len(predictive.predicted)
    if rule is None:
        return first_reason(None, out_of_scope=out_of_scope, cut=cut)
    above = above_threshold(rule, predictive)
    below = ~rule.answers(trust(rule.score, predictive), predictive.predicted)
    disagree = passes_disagree(predictive) if rule.score not in OF_PASSES else np.ones(rows, dtype=np.bool_)
    cases = {NO_PROMISE: below & np.isneginf(above), DISAGREE: below & disagree, BELOW: below}
    return first_reason(cases, out_of_scope=out_of_scope, cut=cut)


def first_reason(
    cases: Mapping[str, NDArray[np.bool_]] | None, *, out_of_scope: NDArray[np.bool_] | None, cut: Integers
) -> list[str]:
    """For each row the first that holds: out of scope, one of `cases` (rows,), cut; None where there is no rule."""
    outside = np.zeros(len(cut), dtype=np.bool_) if out_of_scope is None else out_of_scope
    found = {OUT_OF_SCOPE: outside, **(cases or {}), CUT: cut > 0}
    otherwise = NO_RULE if cases is None else ANSWERED
    return np.select(list(found.values()), list(found), otherwise).tolist()  # type: ignore[no-any-return]


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
