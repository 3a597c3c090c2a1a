"""A classifier that is ready to run: settings and calibration are built and checked once, for any number of texts."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.calibrate import Calibration
from uatlite.classifier.one_class import ClassPredictions, class_answers
from uatlite.classifier.product import CheckedPredictor
from uatlite.classifier.run import run
from uatlite.classifier.runtime import Outputs, TorchRuntime
from uatlite.errors import ModelError
from uatlite.predictive import Predictive, summarise
from uatlite.text.labels import option_names
from uatlite.trust.calibrators import Calibrator
from uatlite.trust.distribution import predictive
from uatlite.values import Text

if TYPE_CHECKING:
    from uatlite.classifier.classifier import UncertaintyClassifier
    from uatlite.classifier.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Predictor(CheckedPredictor[Calibration]):
    """A classifier at one moment; its texts are already checked (`uatlite.text.examples.check_texts`)."""

    class_names: tuple[str, ...]
    """empty for an uncalibrated multiple choice, where each question has its own number of options"""
    indices: bool

    @classmethod
    def of(cls, classifier: "UncertaintyClassifier") -> "Predictor":
        """The predictor of a classifier; raises where its calibration was made under other settings."""
        settings, calibration = classifier.checked_settings(), classifier.calibration_
        return cls(classifier.runtime, settings, calibration, classifier.class_names, classifier.indices)

    @property
    def calibrator(self) -> Calibrator | None:
        """The fitted calibrator, where there is a calibration."""
        return None if self.calibration is None else self.calibration.calibrator

    def predict(self, texts: list[Text]) -> ClassPredictions:
        """Predictions for checked texts, without the comparison of all of them with the calibration rows."""
        if not texts:
            return self._without_texts()
        return self._look_again(self.predictions(texts, run(self.runtime, texts, self.settings)))

    def _look_again(self, predictions: ClassPredictions) -> ClassPredictions:
        second = None if self.calibration is None else self.calibration.second_look
        return predictions if second is None else second.look(predictions, self.runtime, self.settings)

    def explain(self, text: Text, **options: Any) -> "Explanation":
        """The prediction for a checked text, and where its uncertainty comes from; `ExplanationOptions` by name."""
        if not isinstance(self.runtime, TorchRuntime):
            raise ModelError(
                "an exported model cannot be explained, which takes gradients; explain the checkpoint that it was "
                "exported from."
            )
        from uatlite.classifier import explainer

        asked = explainer.ExplanationOptions(**options)
        reading = explainer.read(self.runtime.model, self.runtime.tokenizer, text, self.settings)
        predictions = self._look_again(self.predictions([text], reading.outputs))
        return explainer.explain(reading, predictions[0], asked, self.calibrator)

    def predictions(self, texts: list[Text], outputs: Outputs) -> ClassPredictions:
        """Predictions from what the method's passes say about the texts."""
        found = predictive(outputs, self.calibrator)
        predictions = self._filled(
            texts=tuple(texts),
            classes=self.class_names or option_names(outputs.logits.shape[2]),
            predictive=found,
            passes=outputs.passes,
            cut=outputs.cut,
        )
        scope = None if self.calibration is None else self.calibration.scope
        if scope is None:
            return predictions
        p_values = scope.p_values(outputs.representations, outputs.mean_logits)
        return replace(predictions, scope=p_values, out_of_scope=scope.out_of_scope(p_values))

    def _filled(self, predictive: Predictive, **fields: Any) -> ClassPredictions:
        calibration = self.calibration
        sets = None if calibration is None else calibration.label_sets
        return ClassPredictions(
            **class_answers(predictive),
            indices=self.indices,
            rules=() if calibration is None or calibration.rule is None else (calibration.rule,),
            sets=None if sets is None else sets.sets(predictive.probabilities),
            **fields,
        )

    def _without_texts(self) -> ClassPredictions:
        classes = self.class_names or option_names(2)
        none = np.zeros((0, len(classes)))
        nothing = summarise(none, none[None], none)
        return self._filled(nothing, texts=(), classes=classes, passes=np.zeros(0, dtype=np.int64))
