"""Scores of contenders on a set and its shifts, from stored predictions alone: no model, no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from uatlite.calibration import Calibrator
from uatlite.experiments.comparison import Estimates, Score, Tick, compare
from uatlite.experiments.contenders import Contender
from uatlite.experiments.probabilities import Outcome, fit_calibrator, outcome_of
from uatlite.experiments.store import Predictions
from uatlite.metrics import METRICS
from uatlite.metrics.detection import DETECTION, check_detection
from uatlite.metrics.intervals import Estimate
from uatlite.metrics.metric import Better
from uatlite.metrics.rows import Rows
from uatlite.metrics.shift import SHIFT, combine

HEADLINE = (
    "accuracy", "macro_f1", "ece", "debiased_ece", "nll", "brier", "aurc", "coverage@0.9", "accuracy@0.9", "error_auroc"
)  # fmt: skip
"""What is scored unless other metrics are asked for."""

# Coverage and accuracy at a fixed threshold trade against each other: an overconfident model admits the most rows, an
# underconfident one only the easiest. And ΔECE is low for whoever is badly calibrated in domain already. Alone, none of
# them has a better direction.
_NEITHER = ("coverage@", "count@", "accuracy@", "delta_ece")
DIRECTIONS: dict[str, Better | None] = {
    **{name: None if name.startswith(_NEITHER) else metric.better for name, metric in METRICS.items()},
    **{name: None if name.startswith(_NEITHER) else "lower" for name in SHIFT},
    "auroc": "higher",
    "aupr": "higher",
    "fpr95": "lower",
}
"""Which way is better, for everything that is scored; None where neither is."""

Outcomes = Mapping[str, Sequence[Outcome]]
"""contender -> what it comes to on a set, for each seed"""


@dataclass(frozen=True)
class Resampling:
    """How intervals are made."""

    resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class SetScores:
    """Every contender on one set. `rows` are scored; `left_out` have no gold label that the model knows."""

    name: str
    source: str
    alignment: str
    rows: int
    left_out: int
    truncated_texts: int
    truncated_tokens: int
    scores: Mapping[str, Mapping[str, Score]]
    """contender -> metric -> score"""
    shift: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    """contender -> delta_ece, robustness_score, against the first set; empty for that one"""
    detection: Mapping[str, Mapping[str, Score]] = field(default_factory=dict)
    """contender -> auroc, aupr, fpr95 of finding out-of-scope rows; empty where a task has none"""
    runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """method -> the keys of its runs in the store, one for each seed"""


def fit_calibrators(contender: Contender, calibration: Sequence[Predictions]) -> list[Calibrator]:
    """A calibrator for each seed, fitted on that seed's predictions of the calibration split."""
    return [fit_calibrator(contender.calibrator, predictions) for predictions in calibration]


def outcomes_of(predictions: Sequence[Predictions], calibrators: Sequence[Calibrator | None]) -> list[Outcome]:
    """What a contender comes to on a set, for each seed."""
    return [outcome_of(run, calibrator) for run, calibrator in zip(predictions, calibrators, strict=True)]


def score_set(outcomes: Outcomes, metrics: Sequence[str], how: Resampling, tick: Tick) -> dict[str, dict[str, Score]]:
    """Metrics of every contender on the same rows."""
    estimates: dict[str, dict[str, list[Estimate]]] = {}
    for contender, seeds in outcomes.items():
        rows = [Rows.of(outcome.probabilities, outcome.labels) for outcome in seeds]
        estimates[contender] = {name: [_estimate(name, seed) for seed in rows] for name in metrics}
    return _compare(estimates, metrics, (_rows(outcomes),), how, tick)


def score_shift(
    in_domain: Outcomes, shifted: Outcomes, how: Resampling, tick: Tick = lambda share: None
) -> dict[str, dict[str, Score]]:
    """ΔECE and the robustness score of every contender; both sets are resampled, each by itself."""
    estimates: dict[str, dict[str, list[Estimate]]] = {}
    for contender, seeds in in_domain.items():
        pairs = [
            (Rows.of(first.probabilities, first.labels), Rows.of(second.probabilities, second.labels))
            for first, second in zip(seeds, shifted[contender], strict=True)
        ]
        estimates[contender] = {}
        for name, weights in SHIFT.items():
            statistics = [combine(first, second, weights) for first, second in pairs]
            lowest = -np.inf if min(weights) < 0 else 0.0
            estimates[contender][name] = [Estimate(one, truth=one, lowest=lowest) for one in statistics]
    strata = (_rows(in_domain), _rows(shifted))
    return _compare(estimates, tuple(SHIFT), strata, how, tick)


def score_detection(outcomes: Outcomes, how: Resampling) -> dict[str, dict[str, Score]]:
    """AUROC, AUPR and FPR95 of telling out-of-scope rows from the others; empty where there are not both kinds."""
    estimates: dict[str, dict[str, list[Estimate]]] = {}
    rows = 0
    for contender, seeds in outcomes.items():
        estimates[contender] = {name: [] for name in DETECTION}
        for outcome in seeds:
            if outcome.doubt is None or outcome.out_of_scope is None or len(np.unique(outcome.out_of_scope)) < 2:
                return {}
            ranking, positives = check_detection(outcome.doubt, outcome.out_of_scope)
            rows = len(positives)
            for name, statistic_of in DETECTION.items():
                estimates[contender][name].append(Estimate(statistic_of(ranking, positives)))
    return _compare(estimates, tuple(DETECTION), (rows,), how, lambda share: None)


def _compare(
    estimates: Estimates, metrics: Sequence[str], strata: tuple[int, ...], how: Resampling, tick: Tick
) -> dict[str, dict[str, Score]]:
    better = {name: DIRECTIONS[name] for name in metrics}
    return compare(
        estimates, better, strata, resamples=how.resamples, confidence=how.confidence, seed=how.seed, tick=tick
    )


def _estimate(metric: str, rows: Rows) -> Estimate:
    chosen = METRICS[metric]
    return Estimate(chosen.prepare(rows), chosen.truth and chosen.truth(rows), lowest=0.0)


def _rows(outcomes: Outcomes) -> int:
    return len(next(iter(outcomes.values()))[0].labels)
