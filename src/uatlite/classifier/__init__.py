"""The product in Python: a checkpoint and a few hundred labelled rows become calibrated, explained decisions."""

from uatlite.classifier.calibrate import Calibration
from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.evidence import Figures
from uatlite.classifier.explanation import Explanation
from uatlite.classifier.predictions import Prediction, Predictions

__all__ = ["Calibration", "Explanation", "Figures", "Prediction", "Predictions", "UncertaintyClassifier"]
