"""Many labels a text: from a fine-tuned checkpoint to labels that are reported only where they can be trusted."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier.evidence import Figures
from uatlite.classifier.learn import CalibrationTexts, Report
from uatlite.classifier.many_labels import LABELS, LabelPredictions, label_answers
from uatlite.classifier.predictions import LOG_ODDS
from uatlite.classifier.product import Product
from uatlite.classifier.several import AnswerOptions, calibrate_answers
from uatlite.errors import CalibrationError, InputError
from uatlite.metrics.answers import LabelRows
from uatlite.metrics.intervals import intervals
from uatlite.predictive import sigmoid
from uatlite.text.examples import check_text, check_texts
from uatlite.text.labels import label_matrix
from uatlite.trust.answers import AnswerCalibrator, Answers
from uatlite.values import Floats, Text

if TYPE_CHECKING:
    from uatlite.classifier.answer_explanation import LabelExplanation


LEAST = 0.1
"""A label at or below this probability is never reported: a promise is planned for those that may be."""


SHOWN = ("label_nll", "label_ece", "label_brier", "micro_f1")
FOLDS = 3
FEWEST_TEXTS = 20
"""Of a fold of figures."""


class UncertaintyLabeler(Product[LabelPredictions]):
    """A classifier of many labels with calibrated probabilities, and a rule for which labels to report.

    It is for models with `problem_type="multi_label_classification"`. `config` is a UATConfig, or the spelling of any
    method; by default 'distilled' with a teacher of ten passes with masks of their own for each text, which give the
    variances of all labels at once: once it is calibrated they are read off one plain pass, or left out where they
    cannot be. Texts longer than `max_length` tokens are cut, and counted; with `windows` they are read in overlapping
    windows and the logits averaged.
    """

    kinds = (LABELS,)
    default_method = "distilled:of=fast,samples=10,per_input=true"

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
        learned = CalibrationTexts(LABELS, self.runtime, settings, checked, others, report).learn(gold.astype(np.int64))
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

    def predict_proba(self, texts: Iterable[Any]) -> Floats:
        """Probabilities (texts, labels), calibrated where the labeler is; columns as in `class_names`."""
        probabilities: Floats = self.predict(texts, check_shift=False).probabilities
        return probabilities

    def explain(self, text: Text, label: str | int | None = None) -> "LabelExplanation":
        """Where the uncertainty about one label of a text comes from: words and layers, to first order.

        By default the label that is least sure. It takes the prediction's passes, one forward and one backward pass.
        """
        from uatlite.classifier.answer_explanation import explain_label

        return explain_label(self.predictor(), check_text(text, chooses=False), label)


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
        intervals(LabelRows.of(values, gold.astype(np.int64)).estimates().chosen(*SHOWN))
        for values in (sigmoid(answers.log_odds).reshape(gold.shape), chances)
    )
    basis = f"calibration data: {answers.texts} texts, cross-validated"
    return Figures(basis, answers.texts, calibrated=after, uncalibrated=before)
