"""A second look: a further method for the texts that are abstained on, as the paper recommends for its passes.

The first look decides. Its score is what a promise is about, what a shift is told by and what is watched. A second look
stands beside it, for the person who reads the text, and never turns an abstention into an answer. Its probabilities
have a calibrator of their own, fitted on the calibration rows that were abstained on; where these are few, on all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from uatlite.classifier.run import run
from uatlite.classifier.runtime import Runtime
from uatlite.classifier.settings import Settings
from uatlite.codec import dump, load
from uatlite.errors import ConfigurationError
from uatlite.methods.method import Method
from uatlite.methods.registry import method_from_dict, method_to_dict, parse_method
from uatlite.trust.calibrators import CALIBRATORS, Calibrator
from uatlite.trust.distribution import predictive
from uatlite.trust.rule import trust
from uatlite.values import Integers

if TYPE_CHECKING:
    from uatlite.classifier.calibrate import Calibration, CalibrationOptions
    from uatlite.classifier.learn import CalibrationTexts, Learned
    from uatlite.classifier.one_class import ClassPredictions

FEWEST_ROWS = 40
"""Calibration rows that were abstained on; fewer do not fit a calibrator of their own."""


@dataclass(frozen=True, eq=False)
class SecondLook:
    """The method of a second look, and the calibrator of what it says."""

    method: Method
    calibrator: Calibrator
    rows: int
    """calibration rows that fitted the calibrator"""

    def describe(self) -> str:
        """What will be done, in one sentence."""
        return (
            f"Texts that are abstained on get a second look by {self.method.name} (calibrated on {self.rows} rows); it "
            "is reported beside the first one and answers none of them."
        )

    def look(self, predictions: "ClassPredictions", runtime: Runtime, settings: Settings) -> "ClassPredictions":
        """The same predictions, with what the method says about the texts that are abstained on."""
        probs = np.full_like(predictions.probabilities, np.nan)
        disagreement, passes = np.full(len(predictions), np.nan), predictions.passes.copy()
        rows = np.flatnonzero(predictions.doubted)
        if len(rows):
            texts = [predictions.texts[row] for row in rows.tolist()]
            outputs = run(runtime, texts, replace(settings, method=self.method.seeded(settings.seed)))
            said = predictive(outputs, self.calibrator)
            probs[rows], disagreement[rows] = said.probabilities, said.mutual_information
            passes[rows] += outputs.passes
        return replace(predictions, passes=passes, second_probabilities=probs, second_mutual_information=disagreement)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "method": method_to_dict(self.method),
            "calibrator": dump(self.calibrator, kind=Calibrator),
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SecondLook":
        """The second look that `to_dict` described."""
        calibrator = load(Calibrator, values["calibrator"], advice="calibrate again.")
        return cls(method_from_dict(values["method"]), calibrator, int(values["rows"]))


def learn_second_look(
    spelling: str,
    data: "CalibrationTexts",
    labels: Integers,
    learned: "Learned",
    calibration: "Calibration",
    options: "CalibrationOptions",
) -> SecondLook:
    """The second look by the method of this spelling, calibrated on the rows that the calibration abstains on."""
    method, rule = parse_method(spelling), calibration.rule
    if method.learns:
        raise ConfigurationError(
            f"second_look={spelling!r} learns from calibration rows; a second look is by a method that runs as it is, "
            "such as 'uat', 'fast' or 'analytic'."
        )
    if rule is None and calibration.scope is None:
        raise ConfigurationError(
            f"second_look={spelling!r} is for texts that are abstained on, and there is no rule to abstain by; give "
            "one, as in target_risk=0.05 or threshold=0.9."
        )
    doubted = np.zeros(len(labels), dtype=np.bool_)
    if rule is not None:
        said = predictive(learned.outputs, calibration.calibrator)
        doubted |= ~rule.reports(trust(rule.score, said), kind=said.predicted)
    if calibration.scope is not None and calibration.scope.inside is not None:
        doubted |= ~calibration.scope.inside
    if doubted.sum() < FEWEST_ROWS or len(np.unique(labels[doubted])) < 2:
        doubted[:] = True
    outputs = data.read_texts(method, [data.texts[row] for row in np.flatnonzero(doubted).tolist()])
    chosen, kind = labels[doubted], CALIBRATORS[options.calibrator_of(method)]
    return SecondLook(method, kind.fit(outputs.mean_logits, chosen, outputs.margin_variance), len(chosen))
