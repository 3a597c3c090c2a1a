"""From a fine-tuned checkpoint to a classifier that knows when not to answer."""

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from uatlite.classifier import calibrate as calibrating
from uatlite.classifier.adapters import ScikitLearnMixin
from uatlite.classifier.calibrate import CalibrationOptions
from uatlite.classifier.evidence import Figures, measure
from uatlite.classifier.learn import CalibrationTexts, Report
from uatlite.classifier.one_class import ClassPredictions
from uatlite.classifier.product import Product
from uatlite.classifier.run import run
from uatlite.classifier.second_look import learn_second_look
from uatlite.errors import CalibrationError, InputError
from uatlite.text.examples import check_text, check_texts
from uatlite.text.labels import class_indices, option_names
from uatlite.trust.distribution import probabilities
from uatlite.values import Choices, Floats, Text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from uatlite.classifier.explanation import Explanation


class UncertaintyClassifier(ScikitLearnMixin, Product[ClassPredictions]):
    """A text classifier with calibrated probabilities, uncertainties, and a rule for when to abstain.

    `config` is a UATConfig, or the spelling of any method ('uat:gate=k', 'base'); by default the one that the model was
    trained for, or 'distilled': UAT-Lite in one pass once it is calibrated, and the method 'analytic' before. Texts
    longer than `max_length` tokens (by default what the model takes) are cut, and counted; with `windows` they are read
    in overlapping windows and the logits averaged. With `indices` labels are the model's columns instead of names.
    """

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, (classes,): their names, or with `indices` their columns."""
        return np.arange(len(self.class_names)) if self.indices else np.array(self.class_names, dtype=np.str_)

    def calibrate(
        self,
        texts: Iterable[Any],
        labels: Iterable[Any],
        *,
        target_risk: float | None = None,
        target_coverage: float | None = None,
        threshold: float | None = None,
        confidence: float = 0.95,
        per_class: bool = False,
        score: str | None = None,
        calibrator: str | None = None,
        label_sets: float | None = None,
        reference: Iterable[Any] | None = None,
        false_alarm: float = 0.01,
        second_look: str | None = None,
        seed: int = 0,
        report: Report | None = None,
    ) -> Self:
        """Learn from labelled texts that the model was not trained on; the model itself is left as it is.

        A rule to abstain by comes from one of `target_risk` (at most this share of answers is wrong, with the stated
        `confidence`; `per_class`: also among the answers of each class), `target_coverage` (at least this share is
        answered) and `threshold` (answer above it). The `score` that ranks texts is by default the margin of the
        logits, which needs no fitting, so that all rows decide; with a threshold it is the confidence. `label_sets`
        is the coverage of label sets. What was learned is in `calibration_`.

        `reference` are unlabelled texts of the task, best those that the model was trained on: they tell which texts
        are in scope. Without them the calibration rows serve, less well. `false_alarm` is the share of texts in scope
        that may be refused, and of runs without a shift that may be called shifted. `report` is called with the number
        of texts read after each step.

        `second_look` names a further method, 'uat' say, for the texts that will be abstained on. What it says stands
        beside the prediction (`Predictions.second_labels`); it turns no abstention into an answer.
        """
        options = CalibrationOptions(
            calibrator=calibrator,
            score=score,
            target_risk=target_risk,
            target_coverage=target_coverage,
            threshold=threshold,
            confidence=confidence,
            label_sets=label_sets,
            per_class=per_class,
            false_alarm=false_alarm,
            seed=seed,
        )
        checked = check_texts(texts, chooses=self.chooses)
        if not checked:
            raise CalibrationError(
                "there are no calibration rows; give labelled texts that the model was not trained on."
            )
        names = option_names(len(checked[0].options)) if self.chooses else self.class_names  # type: ignore[union-attr]
        columns = _paired(checked, class_indices(labels, names))
        settings = replace(self.settings, method=self._asked())
        known = set(checked)  # a text that fits the scope cannot also say how strange such texts are
        given = [] if reference is None else check_texts(reference, chooses=self.chooses)
        others = [text for text in given if text not in known]
        data = CalibrationTexts(self.kind, self.runtime, settings, checked, others, report)
        method = settings.method
        fitting, _ = calibrating.split(columns, options, options.calibrator_of(method), learns=method.learns)
        learned = data.learn(columns, fitting)
        calibration = calibrating.calibrate(learned, columns, options, model_hash=self.runtime.hash, classes=names)
        if second_look is not None:
            look = learn_second_look(second_look, data, columns, learned, calibration, options)
            calibration = replace(calibration, second_look=look)
        self.calibration_ = calibration
        if calibration.rule is not None and not calibration.rule.promised:
            warnings.warn(calibration.rule.describe(), stacklevel=2)
        if calibration.comparison is not None and calibration.comparison.verdict == "worse":
            warnings.warn(calibration.comparison.describe(), stacklevel=2)
        return self

    def predict_proba(self, texts: Iterable[Any] | Choices) -> Floats:
        """Probabilities (rows, classes), calibrated where the classifier is; columns as in `classes_`."""
        probabilities: Floats = self.predict(texts, check_shift=False).probabilities
        return probabilities

    def explain(
        self,
        text: Text,
        *,
        estimator: str = "delta",
        samples: int = 200,
        occlusion: bool = True,
        attention: bool = True,
    ) -> "Explanation":
        """The prediction of one text (a string, a pair or Choices) and where its uncertainty comes from.

        Words and layers take one forward and one backward pass, which with the method 'analytic' are the prediction's
        own; the estimators 'isolated' and 'total-variance' sample `samples` passes for each layer and component.
        `occlusion` masks each word in turn, which costs as much as predicting so many texts; `attention` compares it
        with and without modulation. Print the result, or see its `summary`, for the reason in plain sentences.
        """
        checked = check_text(text, chooses=self.chooses, options=len(self.class_names) or None)
        return self.predictor().explain(
            checked, estimator=estimator, samples=samples, occlusion=occlusion, attention=attention
        )

    def evaluate(self, texts: Iterable[Any], labels: Iterable[Any], *, name: str = "evaluation data") -> Figures:
        """Accuracy, NLL, Brier, ECE and AURC on labelled texts, with intervals; the model card takes them."""
        checked = check_texts(texts, chooses=self.chooses)
        columns = _paired(checked, class_indices(labels, self.class_names))
        predictor = self.predictor()
        outputs = run(self.runtime, checked, predictor.settings)
        calibrated = probabilities(outputs, predictor.calibrator)
        return measure(outputs.mean_logits, calibrated, columns, f"{name}: {len(columns)} rows")

    def as_model(self) -> "PreTrainedModel":
        """A model for `transformers.pipeline("text-classification", model=...)` that gives the calibrated scores."""
        from uatlite.classifier.pipeline import as_model

        return as_model(self)


def _paired(texts: list[Any], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(texts) != len(columns):
        raise InputError(f"{len(texts)} texts came with {len(columns)} labels; give one label for each text.")
    return columns
