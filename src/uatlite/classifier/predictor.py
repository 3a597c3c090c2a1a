"""A product that is ready to run: settings and calibration are built and checked once, for any number of texts."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from uatlite.classifier.answer_kind import AnswerKind
from uatlite.classifier.predictions import Predictions
from uatlite.classifier.runtime import Runtime, TorchRuntime
from uatlite.classifier.second_look import look
from uatlite.classifier.settings import Settings
from uatlite.errors import ModelError
from uatlite.values import Text

if TYPE_CHECKING:
    from uatlite.classifier.explanation import Explanation
    from uatlite.classifier.record import Calibration


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model, its settings and calibration at one moment; its texts are already checked (`AnswerKind.texts`)."""

    kind: AnswerKind
    runtime: Runtime
    settings: Settings
    calibration: "Calibration | None"
    class_names: tuple[str, ...]
    """empty for an uncalibrated multiple choice, where each question has its own number of options"""
    indices: bool = False

    @cached_property
    def model_hash(self) -> str:
        """The hash of the model; that of the calibration, which was checked when it was loaded, saves computing it."""
        return self.runtime.hash if self.calibration is None else self.calibration.model_hash

    @property
    def calibrator(self) -> Any:
        """What calibrates probabilities, where there is a calibration."""
        return None if self.calibration is None else self.calibration.calibrator

    def predict(self, texts: Sequence[Text]) -> Any:
        """The `Predictions` of texts, without the comparison of all of them with the calibration rows."""
        return self._look_again(self.predictions(texts, self.kind.read(self.runtime, texts, self.settings)))

    def predictions(self, texts: Sequence[Text], reading: Any) -> Any:
        """The `Predictions` of texts from what the method's passes say about them, a `Reading`."""
        said = self.kind.say(texts, reading, self.calibrator if len(texts) else None, self.class_names)
        said = replace(said, indices=self.indices)
        return said if self.calibration is None else said.under(self.calibration, reading)

    def with_shift(self, predictions: Predictions) -> Any:
        """The same predictions, compared with the calibration rows; warns of a shift."""
        reference = None if self.calibration is None else self.calibration.shift
        if reference is None or not len(predictions):
            return predictions
        report = reference.check(predictions.text_scores(reference.score), predictions.scope)
        if report.shifted:
            warnings.warn(report.describe(), stacklevel=3)
        return replace(predictions, shift=report)

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

    def _look_again(self, predictions: Any) -> Any:
        second = None if self.calibration is None else self.calibration.second_look
        return predictions if second is None else look(second, predictions, self)
