"""The value that decides: a threshold on a score, with what it promises and on what evidence."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.decision.inputs import check_scores
from uatlite.decision.scores import SCORES
from uatlite.errors import CalibrationError, check_choice

KINDS = ("threshold", "coverage", "risk")


@dataclass(frozen=True, kw_only=True)
class AbstentionRule:
    """Answer where the score is above the threshold, abstain elsewhere.

    `threshold` is -inf to answer all and +inf to abstain on all. `target` is the risk or coverage asked for.
    `rows`, `answered` and `errors` are counts of the calibration rows that the statement rests on; `coverage` is
    answered / rows, and `coverage_interval` holds with `confidence`. `risk_bound` is the Clopper–Pearson bound at
    the threshold: a promise by itself for a threshold given beforehand; for a target risk the promise is the target.
    `promised` says whether the target is promised, `reason` why not.
    """

    kind: str
    score: str
    threshold: float
    target: float | None
    confidence: float
    rows: int
    answered: int
    errors: int | None
    risk_bound: float | None
    coverage: float
    coverage_interval: tuple[float, float]
    promised: bool
    reason: str = ""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("score", self.score, SCORES)

    def answers(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """True where to answer, False where to abstain: scores (rows,) > threshold."""
        return np.asarray(check_scores(scores) > self.threshold)

    def describe(self) -> str:
        """What is promised, in a sentence or two for a person."""
        if not self.promised:
            return f"Abstain on all: {self.reason}"
        where = f"Answer where {self.score} > {self.threshold:.6g}" if self.threshold > -math.inf else "Answer all"
        low, high = self.coverage_interval
        share = f"{self.coverage:.1%} of rows ({low:.1%} to {high:.1%}) are answered"
        basis = f"confidence {self.confidence:g}, {self.rows} calibration rows"
        if self.kind == "risk":
            return (
                f"{where}: at most {self.target:.2%} of the answers are wrong; {share}, "
                f"{self.errors} of {self.answered} wrongly ({basis})."
            )
        if self.kind == "coverage":
            return f"{where}: at least {self.target:.1%} of rows are answered on average; {share} ({basis})."
        bound = "" if self.risk_bound is None else f", at most {self.risk_bound:.2%} of them wrongly"
        return f"{where}: {share}{bound} ({basis})."

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; an infinite threshold, which JSON has not, as "inf" or "-inf"."""
        state = asdict(self)
        state["coverage_interval"] = list(self.coverage_interval)
        if math.isinf(self.threshold):
            state["threshold"] = str(self.threshold)
        return state

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The rule that `to_dict` described."""
        try:
            low, high = state["coverage_interval"]
            return cls(**{**state, "threshold": float(state["threshold"]), "coverage_interval": (low, high)})
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"the stored abstention rule is broken ({error}); calibrate again.") from error
