"""Abstention rules: the score that ranks rows, the threshold on it, and what calibration rows say about that threshold.

The rules here promise no risk: one has a given threshold, one a target coverage. The rule for a target risk is in
`promise.py`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from uatlite.errors import CalibrationError, ConfigurationError, InputError, check_choice
from uatlite.values import Floats, Integers, check_labels, check_scores, check_share


class Uncertainties(Protocol):
    """The figures of each row, (rows,) each, that a score may use; `Predictive` has them all.

    `variance` is that of the method: over passes, or the analytic one.
    """

    @property
    def confidence(self) -> Floats: ...
    @property
    def entropy(self) -> Floats: ...
    @property
    def mutual_information(self) -> Floats: ...
    @property
    def margin(self) -> Floats: ...
    @property
    def logit_margin(self) -> Floats: ...
    @property
    def variance(self) -> Floats: ...


RAW_SCORE = "logit-margin"
"""The score that no labelled row has fitted, so that all of them may decide a rule."""

SCORES: dict[str, Callable[[Uncertainties], Floats]] = {
    "confidence": lambda row: row.confidence,
    RAW_SCORE: lambda row: row.logit_margin,
    "entropy": lambda row: -row.entropy,
    "mutual-information": lambda row: -row.mutual_information,
    "margin": lambda row: row.margin,
    "variance": lambda row: -row.variance,
}
"""The scores to abstain by; of each, higher is more trustworthy."""


def trust(name: str, uncertainties: Uncertainties) -> Floats:
    """The score `name` of each row, (rows,); higher is more trustworthy."""
    check_choice("score", name, SCORES)
    values = SCORES[name](uncertainties)
    if np.isnan(values).any():
        raise ConfigurationError(
            f"the score {name!r} is not known for {int(np.isnan(values).sum()):,} of {len(values):,} rows: "
            "their method runs one pass and says nothing about others. Use another score or method."
        )
    return check_scores(values)


class StoredDecision:
    """Base of the dataclasses that calibration stores as JSON: rules and label sets."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    stored_name: ClassVar[str]
    """What it is called in an error."""

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; JSON has no infinity, so an infinite threshold is "inf" or "-inf"."""
        state = asdict(self)
        state["coverage_interval"] = list(state["coverage_interval"])
        if math.isinf(state["threshold"]):
            state["threshold"] = str(state["threshold"])
        return state

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The rule or the label sets that `to_dict` described."""
        try:
            low, high = state["coverage_interval"]
            return cls(**{**state, "threshold": float(state["threshold"]), "coverage_interval": (low, high)})
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"the stored {cls.stored_name} is broken ({error}); calibrate again.") from error


KINDS = ("threshold", "coverage", "risk")


@dataclass(frozen=True, kw_only=True)
class ClassPromise:
    """The part of a rule that is about the rows predicted as one class.

    `rows` calibration rows are predicted so; `answered` of them are above `threshold`, `errors` of those are wrong.
    Where nothing is `asked` about the class, its threshold is -inf: such predictions are always answered.
    """

    name: str
    asked: bool
    threshold: float
    rows: int
    answered: int
    errors: int
    promised: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class AbstentionRule(StoredDecision):
    """Answer where the score is above the threshold, abstain elsewhere.

    `threshold` is -inf to answer all rows and +inf to abstain on all. `target` is the requested risk or coverage.
    `rows`, `answered` and `errors` are counts of the calibration rows that decided; `coverage` is answered / rows, and
    `coverage_interval` holds with `confidence`. `risk_bound` is the Clopper–Pearson bound at the threshold: a promise
    for a threshold that was given beforehand; for a target risk the promise is the target itself.
    `promised` says whether the target is promised, and `reason` why not.

    With `per_class`, one entry for each column, every class has a threshold of its own and a promise of its own;
    `threshold` is the lowest of them, `promised` says whether any class that was asked about has its promise, and all
    promises hold together with `confidence`.
    """

    stored_name: ClassVar[str] = "abstention rule"
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
    per_class: tuple[ClassPromise, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("score", self.score, SCORES)

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        """The threshold of each class, by column; None where one holds for all."""
        return None if self.per_class is None else tuple(one.threshold for one in self.per_class)

    @property
    def share_of(self) -> str:
        """What `coverage` is the share of, as in "82.0% answered"."""
        return "answered"

    def answers(self, scores: ArrayLike, predicted: ArrayLike | None = None) -> NDArray[np.bool_]:
        """True where to answer, False where to abstain: scores (rows,) > threshold.

        With thresholds for each class, `predicted` (rows,) are the columns of the predicted classes.
        """
        s = check_scores(scores)
        if self.thresholds is None:
            return np.asarray(s > self.threshold)
        if predicted is None:
            raise InputError(
                "this rule has a threshold for each class; pass the predicted columns: answers(s, predicted)."
            )
        columns = check_labels(predicted, rows=len(s), classes=len(self.thresholds))
        return np.asarray(s > np.array(self.thresholds)[columns])

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON values; an infinite threshold is "inf" or "-inf"."""
        state = super().to_dict()
        for one in state["per_class"] or ():
            if math.isinf(one["threshold"]):
                one["threshold"] = str(one["threshold"])
        return state

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """The rule that `to_dict` described; a file without `per_class` has one threshold."""
        rule = super().from_dict(state)
        try:
            parts = [
                ClassPromise(**{**one, "threshold": float(one["threshold"])}) for one in state.get("per_class") or ()
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise CalibrationError(f"the stored {cls.stored_name} is broken ({error}); calibrate again.") from error
        return replace(rule, per_class=tuple(parts) or None)

    def describe(self) -> str:
        """What is promised, in a sentence or two for a person."""
        if self.per_class is not None:
            return self._describe_classes(self.per_class)
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

    def _describe_classes(self, classes: tuple[ClassPromise, ...]) -> str:
        asked = [one for one in classes if one.asked]
        answered = "; ".join(
            f"{one.name} where {self.score} > {one.threshold:.6g} ({one.errors} of {one.answered} wrong)"
            if one.threshold > -math.inf
            else f"{one.name} always ({one.errors} of {one.answered} wrong)"
            for one in asked
            if one.promised
        )
        low, high = self.coverage_interval
        parts = []
        if answered:
            whose = "the answers of each class" if len(asked) > 1 else "these answers"
            parts.append(f"Answer {answered}: at most {self.target:.2%} of {whose} are wrong.")
        refused = [one for one in asked if not one.promised]
        parts += [f"Never answer {one.name}: {one.reason}" for one in refused[:2]]
        if len(refused) > 2:
            names = ", ".join(one.name for one in refused[2:6]) + (f" and {len(refused) - 6} more" * (len(refused) > 6))
            parts.append(f"Never answer {names}, for the like reason.")
        if len(asked) < len(classes):
            parts.append("Nothing is promised about other answers, and none is withheld.")
        together = ", all together" if len(asked) > 1 else ""
        parts.append(
            f"{self.coverage:.1%} of rows ({low:.1%} to {high:.1%}) are answered "
            f"(confidence {self.confidence:g}{together}, {self.rows} calibration rows)."
        )
        return " ".join(parts)


def risk_upper_bound(errors: int, answered: int, confidence: float) -> float:
    """Clopper–Pearson: the risk r with P(Binomial(answered, r) ≤ errors) = 1 - confidence; 1 if all erred.

    For a threshold that was fixed beforehand the true selective risk is at most this with the confidence.
    """
    from scipy.stats import beta

    if errors >= answered:
        return 1.0
    return float(beta.ppf(confidence, errors + 1, answered - errors))


def allowed_errors(answered: ArrayLike, target: float, confidence: ArrayLike) -> Integers:
    """The most errors among `answered` rows with which the Clopper–Pearson bound is at most `target`; else -1.

    The largest k with P(Binomial(answered, target) ≤ k) ≤ 1 - confidence, for each entry of `answered`.
    """
    from scipy.stats import binom

    trials = np.asarray(answered, dtype=np.int64)
    level = 1.0 - np.asarray(confidence)
    most = np.asarray(binom.ppf(level, trials, target), dtype=np.int64)  # the first k with P(≤ k) ≥ level
    return np.where(binom.cdf(most, trials, target) <= level, most, most - 1)


def coverage_interval(answered: int, rows: int, confidence: float) -> tuple[float, float]:
    """Answered share ± sqrt(log(2/(1-confidence)) / (2·rows)), cut to [0, 1].

    Dvoretzky–Kiefer–Wolfowitz with Massart's constant: it holds for all thresholds at once, and so for one
    that was chosen on the same rows.
    """
    share = answered / rows
    width = math.sqrt(math.log(2.0 / (1.0 - confidence)) / (2.0 * rows))
    return max(share - width, 0.0), min(share + width, 1.0)


def conformal_rank(share: float, rows: int) -> int:
    """ceil(share·(rows+1)): of `rows` exchangeable values and a new one, the new one is among this many smallest (or
    largest) with probability `share` or more. Above `rows` no value of the sample will do."""
    return math.ceil(share * (rows + 1) - 1e-9)  # 0.29·100 is 29 and not 28.999999999999996


def check_rows(scores: ArrayLike, wrong: ArrayLike, confidence: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Scores (rows,) and wrong (rows,) of at least one calibration row, and a confidence between 0 and 1."""
    s, w = check_scores(scores), np.asarray(wrong)
    if w.dtype != np.bool_ or w.shape != s.shape:
        raise InputError(
            f"wrong has type {w.dtype} and shape {w.shape}; allowed is bool and ({len(s)},), one for each score: "
            "predicted != label."
        )
    if len(s) == 0:
        raise CalibrationError("there are no calibration rows; give labelled rows that the model was not trained on.")
    check_share("confidence", confidence)
    return s, w


def check_target(target: float, scores: Floats, name: str) -> None:
    """Raise unless 0 < target < 1 and the scores differ: no threshold can choose among equal scores."""
    check_share("target", target)
    if (scores == scores[0]).all():
        raise CalibrationError(
            f"all {len(scores)} rows have the {name} score {scores[0]:g}, so no threshold can tell them apart; "
            "use 'confidence', or two passes or more for a score over passes."
        )


def fixed_threshold(
    scores: ArrayLike,
    wrong: ArrayLike,
    target: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
) -> AbstentionRule:
    """The threshold `target`, given beforehand, with its coverage and an exact bound of its risk.

    `scores` (rows,) and `wrong` (rows,), True where the prediction is wrong, belong to calibration rows.
    """
    s, w = check_rows(scores, wrong, confidence)
    if math.isnan(target):
        raise ConfigurationError("threshold=nan answers no row; give a number.")
    return rule_at(float(target), s, w, kind="threshold", score=score, target=None, confidence=confidence)


def target_coverage(
    scores: ArrayLike,
    wrong: ArrayLike,
    target: float,
    *,
    score: str = "confidence",
    confidence: float = 0.95,
) -> AbstentionRule:
    """The highest threshold at which a new row is answered with probability `target` or more.

    A new row's score is at least the j-th largest of n with probability j/(n+1) or more, by exchangeability. So
    j = ceil(target·(n+1)), and where that is n+1 all rows are answered.
    """
    s, w = check_rows(scores, wrong, confidence)
    check_target(target, s, score)
    rank = conformal_rank(target, len(s))
    # "> the number next below it" is "≥ it": rows that tie with the j-th are answered too.
    threshold = -math.inf if rank > len(s) else float(np.nextafter(np.sort(s)[-rank], -math.inf))
    return rule_at(threshold, s, w, kind="coverage", score=score, target=target, confidence=confidence)


def rule_at(
    threshold: float,
    scores: Floats,
    wrong: NDArray[np.bool_],
    *,
    kind: str,
    score: str,
    target: float | None,
    confidence: float,
    promised: bool = True,
    reason: str = "",
) -> AbstentionRule:
    """The rule at a threshold, with its coverage and risk on the calibration rows (rows,)."""
    answered = scores > threshold
    count, errors = int(answered.sum()), int((answered & wrong).sum())
    share = count / len(scores)
    return AbstentionRule(
        kind=kind,
        score=score,
        threshold=threshold,
        target=target,
        confidence=confidence,
        rows=len(scores),
        answered=count,
        errors=errors,
        risk_bound=risk_upper_bound(errors, count, confidence) if count else None,
        coverage=share,
        coverage_interval=(
            (share, share) if math.isinf(threshold) else coverage_interval(count, len(scores), confidence)
        ),
        promised=promised,
        reason=reason,
    )
