"""One class a text, or one option of a question: what is said about it, and whether to answer."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from uatlite.classifier.answer_kind import AnswerKind
from uatlite.classifier.display import BELOW, NO_PROMISE, UNSTABLE
from uatlite.classifier.predictions import MEASURES, WORDING, Predictions
from uatlite.classifier.record import CalibrationOptions, Evidence, compare, measured_figures
from uatlite.classifier.runtime import Outputs, Runtime, run
from uatlite.errors import CalibrationError
from uatlite.predictive import Predictive, summarise
from uatlite.text.examples import text_fault
from uatlite.text.labels import class_indices, option_names
from uatlite.trust.answers import Answers
from uatlite.trust.calibrators import CALIBRATORS, Calibrator, Temperature, held_out, stratified_folds
from uatlite.trust.cost import SAVING
from uatlite.trust.distribution import label_sets, predictive
from uatlite.trust.promise import Labelled
from uatlite.trust.rule import RAW_SCORE, SCORES, Rule, RuleKind, Wanted, trust
from uatlite.trust.shift import ShiftReference, Usual
from uatlite.trust.shift import summarise as summarise_scores
from uatlite.values import Choices, Floats, Integers, Kind, Marks, Text

if TYPE_CHECKING:
    from uatlite.classifier.answer_kind import Reading
    from uatlite.classifier.explanation import Explained
    from uatlite.classifier.product import Predictor
    from uatlite.classifier.record import Calibration

OF_PASSES = ("mutual-information", "variance")
"""The scores of a rule that measure nothing but how much the passes disagree."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClassPredictions(Predictions, Predictive):
    """Labels, probabilities and uncertainties of texts (see `Predictive`), and whether to answer each.

    There is one answer a text, its predicted class, ranked by the margin of the logits; it is right with `confidence`.
    As an array it is its labels, which is what scikit-learn's tools ask for.
    """

    by_text = (*Predictions.by_text, *Predictive.__dataclass_fields__, "sets")
    shown = ("label", "abstain", "reason", "label_set", "confidence", "entropy", "mutual_information", "scope")
    seconds: ClassVar[dict[str, str]] = {
        "second_label": "labels", "second_confidence": "confidence", "second_mutual_information": "mutual_information"
    }  # fmt: skip
    words = WORDING["one"]
    promises: ClassVar[dict[str, RuleKind]] = {
        "target_risk": "risk", "target_errors": "errors", "review_share": "coverage", "threshold": "threshold"
    }  # fmt: skip
    ranked_by = (RAW_SCORE, *(name for name in SCORES if name != RAW_SCORE))

    sets: Marks | None = None
    """(texts, classes): True where the class is in the text's label set"""

    @classmethod
    def of(
        cls, texts: Sequence[Text], reading: Outputs, calibrator: Calibrator | None, classes: tuple[str, ...]
    ) -> Self:
        none = np.zeros((0, len(classes) or reading.logits.shape[2]))
        return cls(
            **class_answers(predictive(reading, calibrator) if len(texts) else summarise(none, none[None], none)),
            texts=tuple(texts),
            classes=classes or option_names(reading.logits.shape[2]),
            passes=reading.passes,
            cut=reading.cut,
        )

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
    def second_probabilities(self) -> Floats | None:
        """(texts, classes): by a second look, NaN where a text had none; None where none was asked for."""
        return self._second("probabilities")

    @cached_property
    def second_mutual_information(self) -> Floats | None:
        """(texts,): what the passes of a second look disagree about, as `mutual_information`."""
        return self._second("mutual_information")

    @property
    def second_labels(self) -> list[str | int | None]:
        """For each text the class by a second look; None where it had none."""
        return self._of_second("labels")

    def _second(self, name: str) -> Floats | None:
        """(texts, ...): an array of the second look, NaN where a text had none."""
        if self.second is None or self.looked is None:
            return None
        values: Floats = np.full_like(getattr(self, name), np.nan)
        values[self.looked >= 0] = getattr(self.second, name)[self.looked[self.looked >= 0]]
        return values

    def under(self, calibration: "Calibration", reading: "Reading") -> Self:
        sets = calibration.label_sets
        decided = super().under(calibration, reading)
        return decided if sets is None else replace(decided, sets=sets.sets(self.probabilities))

    def ruled(self, rules: tuple[Rule, ...]) -> Self:
        """With a rule of costs the answer is the cheapest one, which may not be the likeliest."""
        decided, costs = super().ruled(rules), next((rule.costs for rule in rules), None)
        if costs is None:
            return decided
        answer = costs.cheapest(self.probabilities)
        sure = np.take_along_axis(self.probabilities, answer[:, None], axis=1)[:, 0]
        answers = replace(self.answers, kind=answer)
        return replace(decided, predicted=answer, confidence=sure, sure=sure, answers=answers)

    def scores(self, name: str) -> Floats:
        if name == SAVING and self.rule is not None and self.rule.costs is not None:
            return self.rule.costs.saving(self.probabilities)
        return trust(name, self)

    text_scores = scores

    @staticmethod
    def text_score(score: str) -> str:
        return RAW_SCORE if score == SAVING else score

    def reference(self, score: str, inside: Marks, false_alarm: float) -> ShiftReference:
        score = self.text_score(score)
        answered = self._reported & inside if self.rules else None
        usual = Usual.of(self.confidence, self.predicted, answered, self.classes)
        return summarise_scores(self.text_scores(score), score=score, false_alarm=false_alarm, usual=usual)

    def labelled(self, gold: NDArray[Any], wanted: Wanted) -> Labelled:
        if (costs := wanted.costs) is not None:
            answer, scores = costs.cheapest(self.probabilities), {RAW_SCORE: self.scores(RAW_SCORE)}
            scores[SAVING] = costs.saving(self.probabilities)
            return Labelled(scores, answer != gold, kind=answer, paid=costs.paid(gold, answer))
        scores = {score: self.scores(score) for score in (RAW_SCORE, wanted.score)}
        return Labelled(scores, self.predicted != gold, kind=self.predicted)

    @property
    def unlabelled(self) -> Labelled | None:
        return Labelled({RAW_SCORE: self.scores(RAW_SCORE)}, kind=self.predicted)

    @property
    def outcomes(self) -> Sequence[object]:
        return self.predicted.tolist()  # type: ignore[no-any-return]

    @property
    def unstable(self) -> Marks:
        """(texts,): margin ≤ 2·sd, where sd is that of the predicted class's probability over the passes.

        Of two classes the label changes where its probability falls by half the margin: in about one pass of six or
        more. Where the variance is not known, nothing is unstable.
        """
        spread = np.sqrt(np.nan_to_num(self.variance))
        return np.asarray((self.margin <= 2.0 * spread) & (spread > 0.0))

    def _cases(self) -> dict[str, Marks]:
        assert self.rule is not None
        below, unstable = ~self._reported, self.unstable
        if self.rule.score in OF_PASSES:
            unstable = below
        return {NO_PROMISE: below & np.isneginf(self._above()), UNSTABLE: below & unstable, BELOW: below}

    def _above(self) -> Floats:
        rule = self.rule
        assert rule is not None
        return np.asarray(self.scores(rule.score) - rule.thresholds(self.predicted))

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"label": self.labels, **{name: getattr(self, name) for name in MEASURES}}
        if self.sets is not None:
            columns["label_set"] = self.label_sets
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


_FOLDS = 5


@dataclass(frozen=True)
class OneClass(AnswerKind[Outputs, ClassPredictions]):
    """A text has one class, or a question one right option."""

    name: Kind
    chooses: bool = False
    predictions = ClassPredictions
    read = staticmethod(run)

    def classes(self, model: Runtime, texts: Sequence[Text] = ()) -> tuple[str, ...]:
        if not self.chooses:
            return model.class_names
        return option_names(len(texts[0].options)) if texts and isinstance(texts[0], Choices) else ()

    def fault(self, text: Text, classes: Sequence[str]) -> str | None:
        return text_fault(text, chooses=self.chooses, options=len(classes) or None)

    def gold(self, given: Iterable[Any], texts: Sequence[Text], classes: Sequence[str]) -> Integers:
        return class_indices(given, classes)

    def fit(self, reading: Outputs, gold: Integers, options: CalibrationOptions, rows: Marks) -> Calibrator:
        variance = reading.margin_variance
        name = options.calibrator or ("temperature" if variance is None else "input-temperature")
        spread = None if variance is None else variance[rows]
        return CALIBRATORS[name].fit(reading.mean_logits[rows], gold[rows], spread)

    def teaching(self, fitting: Marks) -> Marks:
        return fitting

    def evidence(
        self,
        said: ClassPredictions,
        gold: Integers,
        reading: Outputs,
        read_plain: Callable[[], Outputs],
        calibrator: Calibrator,
        options: CalibrationOptions,
        free: Marks,
    ) -> Evidence:
        """Figures by rows that did not fit the calibrator, a comparison with temperature scaling, label sets."""
        plain = read_plain()
        folds, compares = stratified_folds(gold, _FOLDS, options.seed), Temperature.name != calibrator.name
        held = None
        if free.all() or compares or reading is not plain:
            with suppress(CalibrationError):  # enough rows for the calibrator, too few without a fifth of them
                held = held_out(type(calibrator).fit, reading.mean_logits, gold, reading.margin_variance, folds)
        figures, comparison = None, None
        if not free.all():
            basis = f"calibration data: {int(free.sum())} rows that did not fit the calibrator"
            figures = measured_figures(reading.mean_logits[free], said.probabilities[free], gold[free], basis)
        elif held is not None:
            basis = f"calibration data: {len(gold)} rows, cross-validated"
            figures = measured_figures(reading.mean_logits, held, gold, basis)
        if held is not None and (compares or reading is not plain):
            scaled = held_out(Temperature.fit, plain.mean_logits, gold, None, folds)
            comparison = compare(held, scaled, gold)
        sets = None
        if options.label_sets is not None:
            sets = label_sets(said.probabilities[free], gold[free], options.label_sets)
        return Evidence(figures, comparison, sets)

    def explained(self, predictor: "Predictor", text: Text, which: str | int | None) -> "Explained":
        from uatlite.classifier.explainer import run_text
        from uatlite.classifier.explanation import Explained

        read = run_text(predictor, text)
        said = read["prediction"].among
        predicted, likely = int(said.predicted[0]), np.argsort(-said.probabilities[0], kind="stable").tolist()
        following = next(column for column in likely if column != predicted)
        return Explained(**read, output=(predicted, following), number=predicted, label=said.classes[predicted])


ONE, CHOICE = OneClass("one"), OneClass("choice", chooses=True)
