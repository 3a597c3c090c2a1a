"""Many labels a text: from a fine-tuned checkpoint to labels that are reported only where they can be trusted."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.calibrate import CalibrationOptions
from uatlite.classifier.evidence import Figures
from uatlite.classifier.learn import CalibrationTexts, Report
from uatlite.classifier.many_labels import LabelPredictions, label_answers
from uatlite.classifier.product import CheckedPredictor, Product
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs
from uatlite.classifier.several import (
    LOG_ODDS,
    AnswerCalibration,
    AnswerOptions,
    calibrate_answers,
    scope_logits,
    sigmoid,
)
from uatlite.errors import CalibrationError, InputError
from uatlite.metrics.answers import LabelRows, text_bootstrap
from uatlite.text.examples import check_text, check_texts
from uatlite.text.labels import label_matrix
from uatlite.trust.answers import AnswerCalibrator, Answers
from uatlite.trust.grouped import GroupedRule
from uatlite.values import Floats, Kind, Text

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import LabelExplanation


LEAST = 0.1
"""A label at or below this probability is never reported: a promise is planned for those that may be."""


SHOWN = ("label_nll", "label_ece", "label_brier", "micro_f1")
FOLDS = 3
FEWEST_TEXTS = 20
"""Of a fold of figures."""


class UncertaintyLabeler(Product[AnswerCalibration]):
    """A classifier of many labels with calibrated probabilities, and a rule for which labels to report.

    It is for models with `problem_type="multi_label_classification"`. `config` is a UATConfig, or the spelling of any
    method; by default 'distilled' with a teacher of ten passes with masks of their own for each text, which give the
    variances of all labels at once: once it is calibrated they are read off one plain pass, or left out where they
    cannot be. Texts longer than `max_length` tokens are cut, and counted; with `windows` they are read in overlapping
    windows and the logits averaged.
    """

    answers: ClassVar[tuple[Kind, ...]] = ("labels",)
    default_method: ClassVar[str] = "distilled:of=fast,samples=10,per_input=true"
    usage: ClassVar[str] = "pred.labels, pred.probabilities, pred.reasons"

    def predictor(self) -> "LabelPredictor":
        """The labeler as it is now, ready to run: settings and calibration are built and checked once."""
        return LabelPredictor(self.runtime, self.checked_settings(), self.calibration_, self.class_names)

    def calibrate(
        self,
        texts: Iterable[Any],
        labels: Any,
        *,
        target_precision: float | None = None,
        target_wrong: float | None = None,
        confidence: float = 0.95,
        score: str = LOG_ODDS,
        reference: Iterable[Any] | None = None,
        false_alarm: float = 0.01,
        seed: int = 0,
        menu: bool = False,
        report: Report | None = None,
    ) -> Self:
        """Learn from labelled texts that the model was not trained on; the model itself is left as it is.

        `labels` are for each text a list of names (or columns), which may be empty, or all of them a matrix of 0 and 1,
        (texts, labels). A rule to report labels by comes from `target_precision` (at least this share of the reported
        labels is right, with the stated `confidence`) or `target_wrong` (on average at most so many wrong labels are
        reported a text). Texts are the unit: the promise holds whatever the labels of one text have to do with each
        other. The `score` that ranks labels is by default the log-odds of the model, so that all texts decide; with
        'confidence' a third of them fits the calibrator and the others decide.

        `reference` are unlabelled texts of the task: they tell which texts are in scope, and teach the method. With
        `menu`, `calibration_.menu` lists which shares of wrong labels can be promised.
        """
        options = AnswerOptions(target_precision, target_wrong, confidence, score, false_alarm, seed, menu)
        checked = check_texts(texts, chooses=False)
        if not checked:
            raise CalibrationError(
                "there are no calibration rows; give labelled texts that the model was not trained on."
            )
        names = self.runtime.class_names
        gold = label_matrix(labels, names)
        if len(checked) != len(gold):
            raise InputError(f"{len(checked)} texts came with {len(gold)} rows of labels; give one for each text.")
        known = set(checked)  # a text that fits the scope cannot also say how strange such texts are
        others = [] if reference is None else [one for one in check_texts(reference, chooses=False) if one not in known]
        settings = replace(self.settings, method=self._asked())
        data = CalibrationTexts(self.runtime, settings, checked, gold.astype(np.int64), others, report)
        learned = data.learn(CalibrationOptions(false_alarm=false_alarm, seed=seed))
        answers = label_answers(learned.outputs.mean_logits, learned.outputs.label_variance)
        calibration = calibrate_answers(
            learned,
            answers,
            gold.ravel(),
            options,
            model_hash=self.runtime.hash,
            classes=names,
            least=LEAST,
            gold=gold.sum(axis=1),
            covered="gold labels",
        )
        self.calibration_ = replace(calibration, figures=label_figures(answers, gold, seed))
        rule = calibration.rule
        if rule is not None and not rule.promised:
            warnings.warn(rule.describe(), stacklevel=2)
        return self

    def predict(self, texts: Iterable[Any], *, check_shift: bool = True) -> LabelPredictions:
        """The labels of texts, strings or pairs. One string is a list of one.

        Where it is calibrated, the texts are compared with the calibration rows and a shift is warned of; a caller who
        gives a stream in parts sets `check_shift=False`.
        """
        predictor = self.predictor()
        predictions = predictor.predict(check_texts([texts] if isinstance(texts, str) else texts, chooses=False))
        return predictor.with_shift(predictions) if check_shift else predictions

    def predict_proba(self, texts: Iterable[Any]) -> Floats:
        """Probabilities (texts, labels), calibrated where the labeler is; columns as in `class_names`."""
        return self.predict(texts, check_shift=False).probabilities

    def explain(self, text: Text, label: str | int | None = None) -> "LabelExplanation":
        """Where the uncertainty about one label of a text comes from: words and layers, to first order.

        By default the label that is least sure. It takes the prediction's passes, one forward and one backward pass.
        """
        from uatlite.classifier.answer_explanation import explain_label

        return explain_label(self.predictor(), check_text(text, chooses=False), label)


@dataclass(frozen=True, eq=False)
class LabelPredictor(CheckedPredictor[AnswerCalibration]):
    """A labeler at one moment; its texts are already checked."""

    class_names: tuple[str, ...]

    def predict(self, texts: list[Text]) -> LabelPredictions:
        """The labels of checked texts, without the comparison of all of them with the calibration rows."""
        if not texts:
            none = np.zeros((0, len(self.class_names)))
            return LabelPredictions(
                texts=(),
                classes=self.class_names,
                answers=label_answers(none, None),
                sure=none.ravel(),
                probabilities=none,
                logits=none,
                passes=np.zeros(0, dtype=np.int64),
                rules=self._rules,
            )
        return self.predictions(texts, run(self.runtime, texts, self.settings))

    @property
    def _rules(self) -> tuple[GroupedRule, ...]:
        return () if self.calibration is None or self.calibration.rule is None else (self.calibration.rule,)

    def predictions(self, texts: list[Text], outputs: Outputs) -> LabelPredictions:
        """The labels of texts from what the method's passes say about them."""
        calibration, logits = self.calibration, outputs.mean_logits
        answers = label_answers(logits, outputs.label_variance)
        chances = sigmoid(answers.log_odds) if calibration is None else calibration.calibrator.confidence(answers)
        found = LabelPredictions(
            texts=tuple(texts),
            classes=self.class_names,
            answers=answers,
            sure=chances,
            probabilities=chances.reshape(logits.shape),
            logits=logits,
            logit_variance=outputs.label_variance,
            passes=outputs.passes,
            rules=self._rules,
            cut=outputs.cut,
        )
        scope = None if calibration is None else calibration.scope
        if scope is None:
            return found
        p_values = scope.p_values(outputs.representations, scope_logits(logits))
        return replace(found, scope=p_values, out_of_scope=scope.out_of_scope(p_values))


def label_figures(answers: Answers, gold: NDArray[np.bool_], seed: int) -> Figures | None:
    """Metrics of the probabilities of each text by a calibrator that was fitted without it; gold (texts, labels).

    None where a fold would have too few texts.
    """
    if answers.texts < FOLDS * FEWEST_TEXTS:
        return None
    folds = np.random.default_rng(seed).permutation(answers.texts) % FOLDS
    chances, right = np.zeros(gold.shape), gold.ravel()
    for fold in range(FOLDS):
        out = folds == fold
        calibrator = AnswerCalibrator.fit(answers.of_texts(~out), right[~out[answers.text]])
        chances[out] = calibrator.confidence(answers.of_texts(out)).reshape(-1, gold.shape[1])
    before, after = (
        text_bootstrap(LabelRows.of(values, gold.astype(np.int64)), metrics=SHOWN)
        for values in (sigmoid(answers.log_odds).reshape(gold.shape), chances)
    )
    basis = f"calibration data: {answers.texts} texts, cross-validated"
    return Figures(basis, answers.texts, calibrated=after, uncalibrated=before)
