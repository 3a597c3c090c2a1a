"""The four questions that are resampled: one set, two methods on it, a shift of domain, a detector."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.metrics.detection import DETECTION, check_detection
from uatlite.metrics.intervals import Estimate, Interval, intervals
from uatlite.metrics.metric import Metric, Statistic
from uatlite.metrics.ranking import Floats
from uatlite.metrics.registry import METRICS
from uatlite.metrics.rows import Rows
from uatlite.metrics.shift import SHIFT, combine

Metrics = Iterable[str] | Mapping[str, Metric[[]]]


def bootstrap(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    metrics: Metrics = METRICS,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Each metric of probabilities (rows, classes) against labels (rows,), with its interval."""
    rows = Rows.of(probabilities, labels)
    estimates = {
        name: Estimate(metric.prepare(rows), metric.truth and metric.truth(rows), lowest=0.0)
        for name, metric in chosen(metrics).items()
    }
    return intervals(estimates, (len(rows),), resamples=resamples, confidence=confidence, seed=seed)


def paired_bootstrap(
    probabilities_a: ArrayLike,
    probabilities_b: ArrayLike,
    labels: ArrayLike,
    *,
    metrics: Metrics = METRICS,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Each metric's difference a - b on the same rows, with its interval; both see the same resamples."""
    a, b = Rows.of(probabilities_a, labels), Rows.of(probabilities_b, labels)
    if a.probabilities.shape != b.probabilities.shape:
        raise InputError(
            f"probabilities have shapes {a.probabilities.shape} and {b.probabilities.shape}; allowed is "
            "the same for both. Compare methods on the same rows and classes."
        )
    estimates = {
        name: Estimate(
            difference(metric.prepare(a), metric.prepare(b)),
            metric.truth and difference(metric.truth(a), metric.truth(b)),
        )
        for name, metric in chosen(metrics).items()
    }
    return intervals(estimates, (len(a),), resamples=resamples, confidence=confidence, seed=seed)


def shift_bootstrap(
    probabilities: ArrayLike,
    labels: ArrayLike,
    shifted_probabilities: ArrayLike,
    shifted_labels: ArrayLike,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """ΔECE and the robustness score of an in-domain and a shifted set, each resampled by itself."""
    in_domain, shifted = Rows.of(probabilities, labels), Rows.of(shifted_probabilities, shifted_labels)
    estimates = {}
    for name, weights in SHIFT.items():
        statistic = combine(in_domain, shifted, weights)
        estimates[name] = Estimate(statistic, truth=statistic, lowest=-np.inf if min(weights) < 0 else 0.0)
    return intervals(estimates, (len(in_domain), len(shifted)), resamples=resamples, confidence=confidence, seed=seed)


def detection_bootstrap(
    scores: ArrayLike,
    positives: ArrayLike,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """AUROC, AUPR and FPR95 of scores (rows,) for positives (rows,), with their intervals."""
    ranking, found = check_detection(scores, positives)
    estimates = {name: Estimate(statistic_of(ranking, found)) for name, statistic_of in DETECTION.items()}
    return intervals(estimates, (len(found),), resamples=resamples, confidence=confidence, seed=seed)


def chosen(metrics: Metrics) -> Mapping[str, Metric[[]]]:
    """The metrics by name: a mapping as it is, names looked up in the registry."""
    if isinstance(metrics, Mapping):
        return metrics
    if isinstance(metrics, str):
        raise ConfigurationError(f"metrics={metrics!r} is one string; allowed is a list of names, [{metrics!r}].")
    names = list(metrics)
    for name in names:
        check_choice("metric", name, METRICS)
    return {name: METRICS[name] for name in names}


def difference(first: Statistic, second: Statistic) -> Statistic:
    """first - second on the same counts."""

    def statistic(counts: Floats) -> Floats:
        return first(counts) - second(counts)

    return statistic
