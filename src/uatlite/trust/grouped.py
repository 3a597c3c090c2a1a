"""Promises about answers of which a text may have none or many: texts are the unit, whatever their answers share.

At most `target` of the reported answers are wrong; or at most `target` wrong answers a text; or at most `target` of the
gold answers of answered texts are missed. Thresholds are tested in an order that is fixed beforehand, each by a bet
that needs nothing but independent texts and a bound of the answers that a text may report.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, InputError, check_choice
from uatlite.trust.answers import check_texts
from uatlite.trust.promise import STARTS, pilot_rows
from uatlite.trust.rule import StoredDecision
from uatlite.values import Floats, Integers, check_scores, check_share

GROUPED_KINDS = ("precision", "per-text", "recall")
"""At most `target` of the reported answers are wrong; wrong answers a text; gold answers of answered texts missed."""


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores (answers,) of the answers of some texts, the text (answers,) of each, ascending, and how many texts."""

    scores: Floats
    text: Integers
    texts: int


@dataclass(frozen=True, kw_only=True)
class GroupedRule(StoredDecision):
    """Report an answer if its score is above the threshold and it is one of the `most` surest of its text.

    Of kind "recall" the score is one of the text, and the text is answered if it is above the threshold; `most` is then
    the bound of the gold answers of a text that count. `texts` labelled texts decided; they have `answers` answers, of
    which `reported` are reported, `errors` of them wrong (recall: gold answers, those of answered texts, those missed).
    `coverage` is reported / answers (recall: the share of texts answered); its interval is that of a ratio over texts,
    by the normal approximation.
    """

    stored_name: ClassVar[str] = "rule for several answers"
    kind: str
    score: str
    threshold: float
    most: int
    target: float
    confidence: float
    texts: int
    answers: int
    reported: int
    errors: int
    coverage: float
    coverage_interval: tuple[float, float]
    promised: bool
    reason: str = ""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, GROUPED_KINDS)

    def reports(self, scores: ArrayLike, text: ArrayLike) -> NDArray[np.bool_]:
        """True where to report an answer, (answers,): its score and its text, as in `Answers`."""
        s = check_scores(scores)
        index = check_texts(text, answers=len(s), texts=int(np.max(text, initial=-1)) + 1)
        return np.asarray((s > self.threshold) & (ranks(s, index) < self.most))

    def describe(self) -> str:
        """What is promised, in a sentence or two for a person."""
        if not self.promised:
            return f"Report nothing: {self.reason}"
        return (
            f"Report answers where {self.score} > {self.threshold:.6g}, at most {self.most} a text: at most "
            f"{self.target:.2%} of them are wrong; {self.coverage:.1%} of answers are reported, {self.errors} of "
            f"{self.reported} wrongly (confidence {self.confidence:g}, {self.texts} calibration texts)."
        )


def ranks(scores: Floats, text: Integers) -> Integers:
    """The rank of each answer within its text, (answers,): 0 for the surest; the first of equals comes first."""
    order = np.lexsort((-scores, text))
    sorted_text = text[order]
    firsts = np.searchsorted(sorted_text, sorted_text, side="left")
    found = np.empty(len(scores), dtype=np.int64)
    found[order] = np.arange(len(scores)) - firsts
    return found


def grouped_risk(
    scores: ArrayLike,
    wrong: ArrayLike,
    text: ArrayLike,
    texts: int,
    target: float,
    *,
    confidence: float = 0.95,
    most: int | None = None,
    reference: TextScores | None = None,
    score: str = "confidence",
    seed: int = 0,
) -> GroupedRule:
    """The lowest threshold at which E[wrong reported]/E[reported] is at most `target` with the stated confidence.

    `scores`, `wrong` and `text` (answers,) are of the answers of `texts` labelled texts.
    """
    s, w = check_scores(scores), np.asarray(wrong, dtype=bool)
    index = check_texts(text, answers=len(s), texts=texts)
    check_share("target", target)
    check_share("confidence", confidence)
    if w.shape != s.shape:
        raise InputError(f"wrong has shape {w.shape}; allowed is ({len(s)},), one for each score.")
    if texts == 0:
        raise CalibrationError("there are no calibration texts; give labelled texts that the model was not trained on.")
    if reference is None:
        aside = pilot_rows(texts, seed)
        of_pilot, number = aside[index], np.cumsum(aside) - 1
        reference = TextScores(s[of_pilot], number[index[of_pilot]], int(aside.sum()))
        number = np.cumsum(~aside) - 1
        s, w, index, texts = s[~of_pilot], w[~of_pilot], number[index[~of_pilot]], int((~aside).sum())
    if most is None:
        counts = np.bincount(reference.text, minlength=max(reference.texts, 1))
        most = max(1, int(np.quantile(counts[counts > 0], 0.95))) if (counts > 0).any() else 1
    kept = ranks(s, index) < most
    others = np.sort(reference.scores)[::-1]
    threshold, level = math.inf, 0.0
    grid = [*others.tolist(), -math.inf]
    starts = [(math.ceil(share * len(others)), part * (1.0 - confidence)) for share, part in STARTS]
    ends = [first for first, _ in starts[1:]] + [len(grid) - 1]
    for (first, part), last in zip(starts, ends, strict=True):
        level += part
        for place in range(first, last + 1):
            shown = kept & (s > grid[place])
            losses = np.bincount(index[shown], weights=w[shown] - target, minlength=texts).astype(np.float64)
            if bet(losses, most * (1.0 - target)) * level < 1.0:
                level = 0.0
                break
            threshold = grid[place]
    shown = kept & (s > threshold)
    share = float(shown.sum() / max(len(s), 1))
    return GroupedRule(
        kind="precision",
        score=score,
        threshold=threshold,
        most=most,
        target=target,
        confidence=confidence,
        texts=texts,
        answers=len(s),
        reported=int(shown.sum()),
        errors=int((shown & w).sum()),
        coverage=share,
        coverage_interval=(share, share),
        promised=threshold < math.inf,
        reason="" if threshold < math.inf else f"{texts} texts cannot promise a risk of {target:.2%}.",
    )


STAKES = np.linspace(0.02, 0.98, 25)


def bet(losses: Floats, largest: float) -> float:
    """The value of the mean bet that E[loss] < 0: losses (texts,), none above `largest`."""
    return float(np.exp(np.log1p(-STAKES[:, None] * losses / largest).sum(axis=1)).mean())
