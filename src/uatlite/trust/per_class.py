"""Promises for each class: at most a target share of the answers c is wrong, for every class c, or for one of them."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import ConfigurationError, check_choice
from uatlite.trust.promise import PILOT_ROWS, lowest_in_sequence, pilot_rows, plan_starts, why_not
from uatlite.trust.rule import AbstentionRule, ClassPromise, check_rows, check_target, risk_upper_bound
from uatlite.values import Floats, Integers, check_labels, check_scores


def target_risk_per_class(
    scores: ArrayLike,
    wrong: ArrayLike,
    predicted: ArrayLike,
    target: float,
    *,
    classes: Sequence[str],
    only: str | None = None,
    score: str = "confidence",
    confidence: float = 0.95,
    reference: ArrayLike | None = None,
    reference_predicted: ArrayLike | None = None,
    seed: int = 0,
) -> AbstentionRule:
    """A threshold for each class: at most `target` of the answers c are wrong, for every class c at once.

    `predicted` (rows,) are the columns of the predicted classes, `classes` their names. The rows predicted as c are a
    sample of all rows predicted as c, so the search of `target_risk` is run on them alone, with the starts from the
    `reference` scores whose `reference_predicted` (others,) is c. Each of m classes has the level (1 - confidence)/m,
    so that all promises hold together with the confidence. A class that cannot be promised is abstained on.
    With `only`, a name, the promise is of the precision of that class alone, at the full level: at least 1 - target of
    the answers `only` are right. Predictions of other classes are answered always, and nothing is said about them.
    """
    s, w = check_rows(scores, wrong, confidence)
    check_target(target, s, score)
    columns = check_labels(predicted, rows=len(s), classes=len(classes))
    if only is not None:
        check_choice("only", only, classes)
    asked = [only in (None, name) for name in classes]
    level = (1.0 - confidence) / sum(asked)
    others, other_columns = _reference_of_classes(reference, reference_predicted, len(classes))
    if others is None:
        aside = pilot_rows(len(s), seed, PILOT_ROWS * sum(asked))
        others, other_columns = s[aside], columns[aside]
        s, w, columns = s[~aside], w[~aside], columns[~aside]
    parts = []
    for column, name in enumerate(classes):
        of_class = columns == column
        starting = others[other_columns == column]
        parts.append(_class_promise(name, asked[column], s[of_class], w[of_class], target, starting, 1.0 - level))
    return _joined(parts, len(s), score=score, target=target, confidence=confidence)


def _reference_of_classes(
    reference: ArrayLike | None, predicted: ArrayLike | None, classes: int
) -> tuple[Floats | None, Integers]:
    if (reference is None) != (predicted is None):
        raise ConfigurationError("reference and reference_predicted belong together; give both or neither.")
    if reference is None or predicted is None:
        return None, np.empty(0, dtype=np.int64)
    others = check_scores(reference)
    return others, check_labels(predicted, rows=len(others), classes=classes)


def _class_promise(
    name: str,
    asked: bool,
    scores: Floats,
    wrong: NDArray[np.bool_],
    target: float,
    others: Floats,
    confidence: float,
) -> ClassPromise:
    threshold, reason = -math.inf, ""
    if asked and len(scores) == 0:
        threshold, reason = math.inf, f"no labelled row is predicted {name}."
    elif asked:
        starts = plan_starts(others, len(scores), target, 1.0 - confidence)
        threshold = lowest_in_sequence(scores, wrong, target, starts)
        if threshold == math.inf:
            reason = why_not(scores, wrong, target, others, confidence, f"rows predicted {name}")
    answered = scores > threshold
    return ClassPromise(
        name=name,
        asked=asked,
        threshold=threshold,
        rows=len(scores),
        answered=int(answered.sum()),
        errors=int((answered & wrong).sum()),
        promised=asked and threshold < math.inf,
        reason=reason,
    )


def _joined(parts: list[ClassPromise], rows: int, *, score: str, target: float, confidence: float) -> AbstentionRule:
    """The rule of all classes. 1 - coverage is a sum over classes, with a Dvoretzky–Kiefer–Wolfowitz band for each."""
    answered, errors = sum(one.answered for one in parts), sum(one.errors for one in parts)
    share = answered / rows
    asked, bounded = sum(one.asked for one in parts), sum(one.threshold > -math.inf for one in parts)
    width = bounded * math.sqrt(math.log(2.0 * asked / (1.0 - confidence)) / (2.0 * rows))
    promised = any(one.promised for one in parts)
    exact = all(one.threshold == math.inf for one in parts)
    return AbstentionRule(
        kind="risk",
        score=score,
        threshold=min(one.threshold for one in parts),
        target=target,
        confidence=confidence,
        rows=rows,
        answered=answered,
        errors=errors,
        risk_bound=risk_upper_bound(errors, answered, confidence) if answered else None,
        coverage=share,
        coverage_interval=(share, share) if exact else (max(share - width, 0.0), min(share + width, 1.0)),
        promised=promised,
        reason=" ".join(one.reason for one in parts if one.reason),
        per_class=tuple(parts),
    )
