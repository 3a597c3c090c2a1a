"""One class a text, or one option of a question: what is said about it, and whether to answer."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from uatlite.classifier.predictions import MEASURES, Predictions, Rule
from uatlite.classifier.reasons import BELOW, DISAGREE, NO_PROMISE
from uatlite.errors import CalibrationError
from uatlite.predictive import Predictive
from uatlite.trust.answers import Answers
from uatlite.trust.rule import AbstentionRule, trust
from uatlite.values import Floats, Marks

OF_PASSES = ("mutual-information", "variance")
"""The scores of a rule that measure nothing but how much the passes disagree."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClassPredictions(Predictions, Predictive):
    """Labels, probabilities and uncertainties of texts (see `Predictive`), and whether to answer each.

    There is one answer a text, its predicted class, ranked by the margin of the logits; it is right with `confidence`.
    As an array it is its labels, which is what scikit-learn's tools ask for.
    """

    by_text = (
        *Predictions.by_text, *Predictive.__dataclass_fields__, "sets", "second_probabilities",
        "second_mutual_information",
    )  # fmt: skip
    shown = ("label", "abstain", "reason", "label_set", "confidence", "entropy", "mutual_information", "scope")
    advice: ClassVar[str] = (
        "abstain by; ask for one: clf.calibrate(texts, labels, target_risk=0.05), or target_coverage= or threshold=."
    )

    sets: Marks | None = None
    """(texts, classes): True where the class is in the text's label set"""
    indices: bool = False
    """whether labels are columns rather than names"""

    second_probabilities: Floats | None = None
    """(texts, classes): by a second look, NaN where a text had none; None where none was asked for at calibration"""
    second_mutual_information: Floats | None = None
    """(texts,): what the passes of a second look disagree about, as `mutual_information`"""

    @cached_property
    def labels(self) -> NDArray[Any]:
        """(texts,): the predicted class of each text, by name (or by column, as the classifier was told)."""
        return self.predicted if self.indices else np.array(self.classes, dtype=np.str_)[self.predicted]

    @cached_property
    def label_sets(self) -> list[tuple[str, ...]]:
        """For each text the labels that conform. Raises where no label sets were asked for."""
        if self.sets is None:
            raise CalibrationError(
                "there are no label sets; ask for them: clf.calibrate(texts, labels, label_sets=0.9)."
            )
        return [tuple(name for name, inside in zip(self.classes, row, strict=True) if inside) for row in self.sets]

    @cached_property
    def second_labels(self) -> list[str | int | None]:
        """For each text the class by a second look; None where it had none."""
        if self.second_probabilities is None:
            return [None] * len(self)
        names = range(len(self.classes)) if self.indices else self.classes
        return [None if np.isnan(row).any() else names[int(row.argmax())] for row in self.second_probabilities]

    def scores(self, name: str) -> Floats:
        return trust(name, self)

    def text_scores(self, name: str) -> Floats:
        return trust(name, self)

    @property
    def passes_disagree(self) -> Marks:
        """(texts,): margin ≤ 2·sd, where sd is that of the predicted class's probability over the passes.

        Of two classes the label changes where its probability falls by half the margin: in about one pass of six or
        more. Where the variance is not known, nothing disagrees.
        """
        spread = np.sqrt(np.nan_to_num(self.variance))
        return np.asarray((self.margin <= 2.0 * spread) & (spread > 0.0))

    def _reported_by(self, rule: Rule | None) -> Marks:
        if rule is None:
            return np.ones(len(self), dtype=np.bool_)
        assert isinstance(rule, AbstentionRule)
        return rule.answers(self.scores(rule.score), self.predicted)

    def _cases(self) -> dict[str, Marks]:
        assert self.rule is not None
        below, disagree = ~self._reported_by(self.rule), self.passes_disagree
        if self.rule.score in OF_PASSES:
            disagree = below
        return {NO_PROMISE: below & np.isneginf(self._above()), DISAGREE: below & disagree, BELOW: below}

    def _above(self) -> Floats:
        rule = self.rule
        assert isinstance(rule, AbstentionRule)
        thresholds = rule.threshold if rule.thresholds is None else np.array(rule.thresholds)[self.predicted]
        return np.asarray(self.scores(rule.score) - thresholds)

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"label": self.labels, **{name: getattr(self, name) for name in MEASURES}}
        if self.sets is not None:
            columns["label_set"] = self.label_sets
        if self.second_probabilities is not None:
            columns |= {"second_label": self.second_labels, "second_confidence": self.second_probabilities.max(axis=1)}
            columns["second_mutual_information"] = self.second_mutual_information
        return columns | {
            f"p_{name}": chances for name, chances in zip(self.classes, self.probabilities.T, strict=True)
        }

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.labels, dtype=dtype)


def class_answers(predictive: Predictive) -> dict[str, Any]:
    """The fields of `ClassPredictions` that say what each text's answer is."""
    texts, margins = np.arange(len(predictive.predicted)), np.nan_to_num(predictive.logit_margin)
    answers = Answers(text=texts, kind=predictive.predicted, log_odds=margins, variance=None, texts=len(texts))
    return {**vars(predictive), "answers": answers, "sure": predictive.confidence}
