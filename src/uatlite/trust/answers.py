"""Answers, of which a text may have none or many (its entities, or its labels), and the calibrator of their confidence.

An answer is right or wrong. The calibrator turns its log-odds, and the variance of them, into the probability that it
is right; kinds of answers (entity types, labels) share what they have too few rows to learn alone.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import InputError
from uatlite.predictive import widened
from uatlite.trust.calibrators import Learned, vector
from uatlite.values import Floats, Integers, check_array, check_scores


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of some texts, in the order of the texts; (answers,) each unless stated."""

    text: Integers
    """the index of the text that it belongs to, ascending"""
    kind: Integers
    """the index of its label: the type of an entity, or the label itself"""
    log_odds: Floats
    """uncalibrated log-odds that it is right"""
    variance: Floats | None
    """of the log-odds under dropout; None where it is not known"""
    texts: int
    """how many texts there are, also those without answers"""
    features: Floats | None = None
    """(answers, features): what else tells right from wrong, such as the length of an entity"""

    def __post_init__(self) -> None:
        rows = len(self.text)
        check_texts(self.text, answers=rows, texts=self.texts)
        check_array("log_odds", self.log_odds, {"rows": 0})
        for name in ("kind", "log_odds", "variance", "features"):
            values = getattr(self, name)
            if values is not None and len(values) != rows:
                raise InputError(f"{name} has {len(values)} entries for {rows} answers; give one for each answer.")

    def __len__(self) -> int:
        return len(self.text)

    @property
    def counts(self) -> Integers:
        """(texts,): how many answers each text has"""
        return np.bincount(self.text, minlength=self.texts)

    def of_texts(self, chosen: NDArray[np.bool_]) -> "Answers":
        """The answers of the chosen texts, (texts,) bool, which are numbered anew."""
        kept = chosen[self.text]
        number = np.cumsum(chosen) - 1
        return replace(
            self,
            text=number[self.text[kept]],
            kind=self.kind[kept],
            log_odds=self.log_odds[kept],
            variance=None if self.variance is None else self.variance[kept],
            texts=int(chosen.sum()),
            features=None if self.features is None else self.features[kept],
        )


@dataclass(frozen=True, eq=False)
class TextScores:
    """Scores (answers,) of the answers of some texts, the text (answers,) of each, ascending, and how many texts."""

    scores: Floats
    text: Integers
    texts: int

    def __post_init__(self) -> None:
        check_texts(self.text, answers=len(check_scores(self.scores)), texts=self.texts)

    def of_texts(self, chosen: NDArray[np.bool_]) -> "TextScores":
        """The answers of the chosen texts, (texts,) bool, which are numbered anew."""
        kept = chosen[self.text]
        return TextScores(self.scores[kept], (np.cumsum(chosen) - 1)[self.text[kept]], int(chosen.sum()))

    @cached_property
    def ranks(self) -> Integers:
        """The rank of each answer within its text, (answers,): 0 for the surest; the first of equals comes first."""
        order = np.lexsort((-self.scores, self.text))
        of_text = self.text[order]
        found = np.empty(len(order), dtype=np.int64)
        found[order] = np.arange(len(order)) - np.searchsorted(of_text, of_text, side="left")
        return found

    def tally(self, threshold: float, most: int, weights: NDArray[np.bool_] | None = None) -> Floats:
        """(texts,): how many answers each text reports, or how many of those with a weight."""
        shown = (self.scores > threshold) & (self.ranks < most)
        if weights is not None:
            shown &= weights
        return np.bincount(self.text[shown], minlength=self.texts).astype(np.float64)


def check_texts(text: ArrayLike, *, answers: int, texts: int) -> Integers:
    """The text of each answer as int64 (answers,), ascending, each from 0 to texts - 1."""
    given = np.asarray(text)
    if given.shape != (answers,) or (answers and given.dtype.kind not in "iu"):
        raise InputError(
            f"text has type {given.dtype} and shape {given.shape}; allowed is ({answers},), the index of the text of "
            "each answer."
        )
    if answers and (given.min() < 0 or given.max() >= texts):
        raise InputError(f"text goes from {given.min()} to {given.max()}; allowed are 0 to {texts - 1}, {texts} texts.")
    if (np.diff(given) < 0).any():
        raise InputError("text is not ascending; give the answers in the order of their texts.")
    return given.astype(np.int64)


class AnswerCalibrator(Learned):
    """sigmoid((a + a_k)·z/sqrt(1 + w·π/8·variance) + b + b_k + c·features): the probability that an answer is right."""

    name = "answers"
    learned: ClassVar = {"slope": float, "bias": float, "widening": float, "weights": vector}
    slope_: float
    bias_: float
    widening_: float
    weights_: Floats

    def fit(self, answers: Answers, right: ArrayLike) -> Self:
        """Learn from the answers of labelled texts, and whether each is right, (answers,)."""
        from sklearn.linear_model import LogisticRegression

        y = np.asarray(right, dtype=bool)
        features = np.empty((len(answers), 0)) if answers.features is None else answers.features
        self.widening_, self.slope_, self.bias_ = 0.0, 1.0, 0.0
        self.weights_ = np.zeros(features.shape[1])
        if len(np.unique(y)) == 2:
            columns = np.column_stack([answers.log_odds, features])
            found = LogisticRegression(C=100.0).fit(columns, y)
            self.slope_, self.weights_ = float(max(found.coef_[0, 0], 0.0)), found.coef_[0, 1:]
            self.bias_ = float(found.intercept_[0])
        return self

    def confidence(self, answers: Answers) -> Floats:
        """The probability that each answer is right, (answers,)."""
        self.check_fitted()
        scale = 1.0 if answers.variance is None else widened(answers.variance, self.widening_)
        z = self.slope_ * answers.log_odds * scale + self.bias_
        if answers.features is not None:
            z = z + answers.features @ self.weights_
        return np.asarray(1.0 / (1.0 + np.exp(-z)))

    def to_dict(self) -> dict[str, Any]:
        """Everything that was learned, as plain JSON values."""
        return super().to_dict()
