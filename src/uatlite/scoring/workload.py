"""A day's reviews: the threshold of one file by its own scores, so that so many of its texts are left to a person.

No label of the file is known and no labelled row chose the threshold, so the labelled rows above it bound the risk of
the answers exactly, without a search.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from uatlite.classifier.display import ANSWERED, BELOW, CUT, UNSTABLE
from uatlite.classifier.record import Calibration
from uatlite.errors import ConfigurationError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.trust.all_texts import LabelledScores
from uatlite.trust.rule import Rule
from uatlite.values import counted


def check_reviews(calibration: Calibration | None) -> LabelledScores:
    """The labelled rows that bound the risk; an error where there are none."""
    if calibration is None or calibration.sample is None:
        raise ConfigurationError(
            "--reviews bounds the risk of the answers by the labelled rows of a calibrated classifier of one class a "
            "text, and this one has none; run uatlite calibrate first (again after recheck --update with answers only)."
        )
    return calibration.sample


@dataclass(frozen=True)
class Workload:
    """The threshold of a file with so many `rows`, of which `reviewed` are left to a person."""

    sample: LabelledScores
    threshold: float
    rows: int
    reviewed: int

    @classmethod
    def of(cls, sample: LabelledScores, rows: Iterable[ScoredRow], reviews: int) -> Self:
        """The threshold that leaves `reviews` rows to a person: those out of scope, then the lowest scores.

        Rows that tie with the last of them are left to a person too.
        """
        of_rows = (math.nan if row.truth("out_of_scope") else row.score(sample.score) for row in rows)
        scores = np.fromiter(of_rows, dtype=np.float64)
        inside = np.sort(scores[~np.isnan(scores)])
        below = min(reviews - (len(scores) - len(inside)), len(inside))
        threshold = float(inside[below - 1]) if below > 0 else -math.inf
        return cls(sample, threshold, len(scores), len(scores) - int((inside > threshold).sum()))

    def decided(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a row with the decision of this threshold."""
        row = ScoredRow(values)
        above = row.score(self.sample.score) - self.threshold
        outside, below, reason = bool(row.truth("out_of_scope")), above <= 0, str(values["reason"])
        if not outside and not below:
            reason = CUT if values["cut_tokens"] else ANSWERED
        elif not outside:
            reason = UNSTABLE if reason == UNSTABLE else BELOW
        finite = above if math.isfinite(above) else None
        return {**values, "abstain": outside or below, "reason": reason, "above_threshold": finite}

    @property
    def rule(self) -> Rule:
        """The threshold as a rule, with the bound of its risk."""
        return self.sample.at(self.threshold)

    def describe(self) -> str:
        """What is left to a person, and what that means for the others."""
        rule = self.rule
        lines = f"{self.reviewed:,} of {counted(self.rows, 'text')} to review"
        if rule.risk_bound is None:
            return f"{lines}; nothing is known of the others: no labelled row is above the threshold."
        return (
            f"{lines}; of the others at most {rule.risk_bound:.1%} are wrong (confidence {rule.confidence:g}, "
            f"{rule.errors} of {rule.reported} labelled rows above the threshold)."
        )
