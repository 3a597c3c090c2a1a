"""The rows of a scored file that a person should see first, with their text and the reason.

The order, from the first:

1. Rows that are out of scope, beyond what chance explains in this file (Benjamini–Hochberg), the strangest first.
2. The other rows that are abstained on, the farthest below the threshold first.
3. Rows whose text was cut.
4. All others, the nearest to the threshold first.

Where there is no threshold, the calibrated confidence takes its place.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uatlite.classifier.display import ABSTAINING, CUT, OUT_OF_SCOPE, sentence
from uatlite.errors import ConfigurationError, DataError
from uatlite.scoring.scored_rows import INPUT_PREFIX, ScoredRow, columns_of_input, scored_files, scored_rows
from uatlite.text.scores import WRITTEN
from uatlite.trust.scope import benjamini_hochberg
from uatlite.values import Floats, Integers

FALSE_DISCOVERIES = 0.1
"""Of the rows that come first as out of scope, at most this share is in scope, on average."""
NEEDED = ("id", "confidence", "reason")


def review_rows(scored: str | Path, count: int) -> list[dict[str, Any]]:
    """The first `count` rows to review: id and kept columns, label, confidence, reason, and the reason in a sentence.

    The file is read twice: once for the numbers of all rows, once for the chosen rows.
    """
    if count < 1:
        raise ConfigurationError(f"{count} rows to review are not 1 or more.")
    order = _order_of_file(scored)[:count].tolist()
    chosen = set(order)
    rows = {i: row for i, row in enumerate(scored_rows(scored, NEEDED)) if i in chosen}
    return [_shown(rows[i]) for i in order]


def review_order(reasons: Sequence[str], above_threshold: Floats, confidence: Floats, scope: Floats | None) -> Integers:
    """The places of all rows in the order of review; (rows,) each, `above_threshold` NaN where it is not known."""
    reason = np.array(reasons, dtype=np.str_)
    doubt = above_threshold if np.isfinite(above_threshold).all() else confidence
    outside = reason == OUT_OF_SCOPE
    if scope is not None and outside.any():
        outside &= benjamini_hochberg(scope, FALSE_DISCOVERIES)
    group = np.select([outside, np.isin(reason, ABSTAINING), reason == CUT], [0, 1, 2], 3)
    strange = np.zeros(len(reason)) if scope is None else np.where(group == 0, scope, 0.0)
    return np.lexsort((doubt, strange, group))  # the last key counts first; ties keep the order of the file


def _order_of_file(scored: str | Path) -> Integers:
    """The order of the rows of a file; one without the texts in it is an error."""
    reasons, numbers = list[str](), list[tuple[float | None, ...]]()
    text = columns_of_input(scored_files(scored)[0]).get("text")
    for row in scored_rows(scored, NEEDED):
        if not reasons and (row.kept == ["id"] or (text and not {text, INPUT_PREFIX + text} & set(row.kept))):
            raise DataError(
                f"{scored} holds no texts to look at; score the rows again with --keep-text, or into a .csv file, "
                f"which has them. Its columns are: {', '.join(row.values)}."
            )
        reasons.append(str(row.values["reason"]))
        numbers.append(tuple(row.optional(name) for name in ("above_threshold", "confidence", "scope")))
    above, confidence, scope = np.array(numbers, dtype=np.float64).reshape(-1, 3).T  # None becomes NaN
    return review_order(reasons, above, confidence, scope if len(scope) and not np.isnan(scope).any() else None)


def _answer(row: ScoredRow) -> str:
    """The label; of many labels those reported, else those in doubt with a question mark; or the entities."""
    if row.answer_column == "entities":
        entities = row.listed("entities")
        return ", ".join(
            f"{entity['text']} {entity['label']}{'' if entity['reported'] else '?'}" for entity in entities
        )
    if row.answer_column == "labels":
        return ", ".join(row.listed("labels") or [f"{name}?" for name in row.listed("withheld")])
    return str(row.answer)


def _shown(row: ScoredRow) -> dict[str, Any]:
    reason, confidence = row.values["reason"], row.optional("confidence")
    numbers = {name: row.optional(name) for name in ("above_threshold", "scope", "cut_tokens")}
    labels = {"labels": row.listed("labels")} if row.answer_column == "labels" else {}
    why = sentence({"reason": reason, **numbers, **labels})
    kept = {name: row.values[name] for name in row.kept if name not in WRITTEN}
    return {**kept, "label": _answer(row), "confidence": confidence, "reason": reason, "why": why}
