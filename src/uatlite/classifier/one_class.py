"""One class a text, or one option of a question: what is said about it, and whether to answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from uatlite.classifier.predictions import MEASURES, Predictions, Wording
from uatlite.classifier.reasons import BELOW, DISAGREE, NO_PROMISE
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs, Runtime
from uatlite.classifier.settings import Settings
from uatlite.errors import CalibrationError
from uatlite.predictive import Predictive, summarise
from uatlite.text.examples import check_texts, text_fault
from uatlite.text.labels import option_names
from uatlite.trust.answers import Answers
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import predictive
from uatlite.trust.rule import Rule, trust
from uatlite.values import Choices, Floats, Kind, Marks, Text

if TYPE_CHECKING:
    from uatlite.classifier.answer_kind import Reading
    from uatlite.classifier.calibrate import Calibration
    from uatlite.classifier.several import AnswerCalibration

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
    words = Wording(
        model="one class a text",
        classes="classes",
        task="text-classification",
        usage="pred.labels, pred.confidence, pred.mutual_information",
        advice="abstain by; ask for one: clf.calibrate(texts, labels, target_risk=0.05), or target_coverage= or "
        "threshold=.",
        deciding="abstaining",
        options="--target-risk",
        example="--target-risk 0.05",
    )

    sets: Marks | None = None
    """(texts, classes): True where the class is in the text's label set"""
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
        return [None if np.isnan(row).any() else self.names[int(row.argmax())] for row in self.second_probabilities]

    def under(self, calibration: "Calibration | AnswerCalibration", reading: "Reading") -> Self:
        sets = calibration.label_sets
        decided = super().under(calibration, reading)
        return decided if sets is None else replace(decided, sets=sets.sets(self.probabilities))

    def scores(self, name: str) -> Floats:
        return trust(name, self)

    def text_scores(self, name: str) -> Floats:
        return trust(name, self)

    @property
    def outcomes(self) -> Sequence[object]:
        return self.predicted.tolist()  # type: ignore[no-any-return]

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
        return rule.reports(self.scores(rule.score), kind=self.predicted)

    def _cases(self) -> dict[str, Marks]:
        assert self.rule is not None
        below, disagree = ~self._reported_by(self.rule), self.passes_disagree
        if self.rule.score in OF_PASSES:
            disagree = below
        return {NO_PROMISE: below & np.isneginf(self._above()), DISAGREE: below & disagree, BELOW: below}

    def _above(self) -> Floats:
        rule = self.rule
        assert rule is not None
        return np.asarray(self.scores(rule.score) - rule.thresholds(self.predicted))

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
    """The fields of `ClassPredictions` that say what each text's answer is: its predicted class, by its margin."""
    texts, margins = np.arange(len(predictive.predicted)), np.nan_to_num(predictive.logit_margin)
    answers = Answers(text=texts, kind=predictive.predicted, log_odds=margins, variance=None, texts=len(texts))
    return {**vars(predictive), "answers": answers, "sure": predictive.confidence}


@dataclass(frozen=True)
class OneClass:
    """A text has one class, or a question one right option: an `AnswerKind`."""

    name: Kind
    words: ClassVar[Wording] = ClassPredictions.words

    @property
    def _chooses(self) -> bool:
        return self.name == "choice"

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        if not self._chooses:
            return model.class_names
        return option_names(len(texts[0].options)) if texts and isinstance(texts[0], Choices) else ()

    def texts(self, given: Iterable[object], classes: Sequence[str]) -> list[Text]:
        return check_texts(given, chooses=self._chooses, options=self._options(classes))

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        return text_fault(text, chooses=self._chooses, options=self._options(classes))

    def read(self, model: Runtime, texts: Sequence[Text], settings: Settings, like: Outputs | None = None) -> Outputs:
        return run(model, texts, settings)

    def say(
        self, texts: Sequence[Text], reading: Outputs, calibrator: Calibrator | None, classes: tuple[str, ...]
    ) -> ClassPredictions:
        none = np.zeros((0, len(classes) or reading.logits.shape[2]))
        return ClassPredictions(
            **class_answers(predictive(reading, calibrator) if len(texts) else summarise(none, none[None], none)),
            texts=tuple(texts),
            classes=classes or option_names(reading.logits.shape[2]),
            passes=reading.passes,
            cut=reading.cut,
        )

    def _options(self, classes: Sequence[str]) -> int | None:
        return len(classes) or None if self._chooses else None


ONE, CHOICE = OneClass("one"), OneClass("choice")
