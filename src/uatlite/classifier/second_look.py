"""A second look: a further method for the texts that are abstained on, as the paper recommends for its passes.

The first look decides. Its score is what a promise is about, what a shift is told by and what is watched. A second look
stands beside it, for the person who reads the text, and never turns an abstention into an answer. Its probabilities
have a calibrator of their own, fitted on the calibration texts that were abstained on; where these are few, on all.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.answer_kind import Gold
from uatlite.classifier.predictions import Predictions
from uatlite.classifier.record import SecondLook
from uatlite.classifier.settings import CalibrationOptions
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.methods.registry import parse_method
from uatlite.values import Integers

if TYPE_CHECKING:
    from uatlite.classifier.calibrate import CalibrationTexts
    from uatlite.classifier.product import Predictor

FEWEST_TEXTS = 40
"""Calibration texts that were abstained on; fewer do not fit a calibrator of their own."""


def look(second: SecondLook, predictions: Predictions, predictor: "Predictor") -> Any:
    """The same predictions, with what the second method says about the texts that are abstained on."""
    rows = np.flatnonzero(predictions.doubted)
    texts = [predictions.texts[row] for row in rows.tolist()]
    settings = predictor.settings
    method = parse_method(second.method).seeded(settings.seed)
    reading = predictor.kind.read(predictor.runtime, texts, replace(settings, method=method))
    said = predictor.kind.say(texts, reading, second.calibrator if texts else None, predictions.classes)
    places = np.full(len(predictions), -1)
    places[rows] = np.arange(len(rows))
    passes = predictions.passes.copy()
    passes[rows] += reading.passes
    return replace(predictions, passes=passes, second=replace(said, indices=predictions.indices), looked=places)


def learn_second_look(
    options: CalibrationOptions, data: "CalibrationTexts", gold: Gold, decided: Predictions
) -> SecondLook:
    """The second look that was asked for, calibrated on the texts that the calibration abstains on."""
    spelling = str(options.second_look)
    method = parse_method(spelling)
    if method.learns:
        raise ConfigurationError(
            f"second_look={spelling!r} learns from calibration rows; a second look is by a method that runs as it is, "
            "such as 'uat', 'fast' or 'analytic'."
        )
    if not decided.rules and decided.out_of_scope is None:
        raise ConfigurationError(
            f"second_look={spelling!r} is for texts that are abstained on, and there is no rule to "
            f"{data.kind.words.advice}"
        )
    rows = np.flatnonzero(decided.doubted)
    if len(rows) >= FEWEST_TEXTS:
        try:
            return _fitted(spelling, data, gold, rows, options)
        except CalibrationError:  # their gold is all the same
            pass
    return _fitted(spelling, data, gold, np.arange(len(decided)), options)


def _fitted(
    spelling: str, data: "CalibrationTexts", gold: Gold, rows: Integers, options: CalibrationOptions
) -> SecondLook:
    reading = data.read_texts(parse_method(spelling), [data.texts[row] for row in rows.tolist()])
    calibrator = data.kind.fit(reading, gold.at(rows), options, np.ones(len(rows), dtype=np.bool_))
    return SecondLook(spelling, calibrator, len(rows))
