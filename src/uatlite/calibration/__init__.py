"""Probabilities that mean what they say: calibrators, fitted on validation logits, applied to mean logits."""

from uatlite.calibration.auto import SIMPLEST_FIRST, Auto, Candidate
from uatlite.calibration.calibrator import Calibrator
from uatlite.calibration.histogram import HistogramBinning
from uatlite.calibration.identity import Identity
from uatlite.calibration.input_temperature import InputTemperature
from uatlite.calibration.isotonic import Isotonic
from uatlite.calibration.margin import margin_variance
from uatlite.calibration.platt import Platt
from uatlite.calibration.registry import CALIBRATORS, calibrator_from_dict, make_calibrator
from uatlite.calibration.temperature import TEMPERATURE_BOUNDS, Temperature
from uatlite.calibration.vector import VectorScaling

__all__ = [
    "CALIBRATORS",
    "SIMPLEST_FIRST",
    "TEMPERATURE_BOUNDS",
    "Auto",
    "Calibrator",
    "Candidate",
    "HistogramBinning",
    "Identity",
    "InputTemperature",
    "Isotonic",
    "Platt",
    "Temperature",
    "VectorScaling",
    "calibrator_from_dict",
    "make_calibrator",
    "margin_variance",
]
