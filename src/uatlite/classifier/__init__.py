"""The tool that a user meets: a checkpoint and a few hundred labelled rows to a decision."""

from uatlite.classifier.calibration import Calibration
from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.explanation import Explanation
from uatlite.classifier.figures import Figures
from uatlite.classifier.prediction import Prediction, Predictions

__all__ = ["Calibration", "Explanation", "Figures", "Prediction", "Predictions", "UncertaintyClassifier"]
