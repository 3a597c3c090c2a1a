"""Every metric by name (`METRICS`), and their confidence intervals by the bootstrap.

A resample is a vector of counts, how often each row is drawn. Many resamples are one matrix (resamples, rows), and a
metric over all of them is a matrix product or a running sum. Statistics without a `truth` get the interval of
percentiles. The others are biased upward by noise, and again in every resample. They get the pivotal interval: the
error of a resample's estimate about the sample's truth stands for the error of the sample's about the population's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.metrics.accuracy import (
    DETECTION,
    accuracy,
    brier,
    brier_calibration,
    brier_refinement,
    check_detection,
    error_aupr,
    error_auroc,
    error_fpr95,
    macro_f1,
    nll,
)
from uatlite.metrics.calibration import SHIFT, adaptive_ece, classwise_ece, combine, debiased_ece, ece, mce, smooth_ece
from uatlite.metrics.metric import Metric, Statistic, at_once
from uatlite.metrics.ranking import Rows
from uatlite.metrics.selective import accuracy_at, augrc, aurc, count_at, coverage_at, e_aurc, risk_at_coverage
from uatlite.values import Floats, check_share

TAUS = (0.9, 0.8, 0.7)
COVERAGES = (0.9, 0.8, 0.7)

# A new metric is a function, a line here and a test.
METRICS: dict[str, Metric[[]]] = {
    "accuracy": accuracy,
    "macro_f1": macro_f1,
    "ece": ece.bind(),
    "debiased_ece": debiased_ece.bind(),
    "adaptive_ece": adaptive_ece.bind(),
    "classwise_ece": classwise_ece.bind(),
    "smooth_ece": smooth_ece,
    "mce": mce.bind(),
    "nll": nll,
    "brier": brier,
    "brier_calibration": brier_calibration.bind(),
    "brier_refinement": brier_refinement.bind(),
    "aurc": aurc,
    "augrc": augrc,
    "e_aurc": e_aurc,
    **{f"coverage@{tau}": coverage_at.bind(tau) for tau in TAUS},
    **{f"accuracy@{tau}": accuracy_at.bind(tau) for tau in TAUS},
    **{f"count@{tau}": count_at.bind(tau) for tau in TAUS},
    **{f"risk@{coverage}": risk_at_coverage.bind(coverage) for coverage in COVERAGES},
    "error_auroc": error_auroc,
    "error_aupr": error_aupr,
    "error_fpr95": error_fpr95,
}


CHUNK = 2_000_000  # counts held at once, 16 MB; a few arrays of that size are alive at a time


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval; `undefined` is the share of resamples without a value."""

    point: float
    low: float
    high: float
    undefined: float = 0.0

    def excludes(self, value: float) -> bool:
        """Whether the value lies outside; never where the interval is NaN."""
        return value < self.low or value > self.high


@dataclass(frozen=True)
class Estimate:
    """A statistic to resample, the truth that it estimates (see Metric), and its lowest possible value."""

    statistic: Statistic
    truth: Statistic | None = None
    lowest: float = -np.inf


def intervals(
    estimates: Mapping[str, Estimate],
    strata: tuple[int, ...],
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, Interval]:
    """Resample every estimate; rows come in strata of the given sizes, and each stratum is drawn by itself."""
    if resamples < 1:
        raise ConfigurationError(f"resamples={resamples} is not allowed: at least 1; 1000 is usual.")
    check_share("confidence", confidence)
    drawn: dict[str, list[Floats]] = {name: [] for name in estimates}
    for counts in draw_counts(strata, resamples, seed):
        for name, estimate in estimates.items():
            drawn[name].append(estimate.statistic(counts))
    return {
        name: interval_of(estimate, np.concatenate(drawn[name]), sum(strata), confidence)
        for name, estimate in estimates.items()
    }


def draw_counts(strata: tuple[int, ...], resamples: int, seed: int) -> Iterator[Floats]:
    """How often each row is drawn, in chunks (resamples, rows): n draws from the n rows of each stratum."""
    generator = np.random.default_rng(seed)
    # One at a time from the generator: the draws are then the same whatever the size of a chunk.
    chunk = max(1, CHUNK // sum(strata))
    for start in range(0, resamples, chunk):
        counts = [
            np.concatenate([np.bincount(generator.integers(size, size=size), minlength=size) for size in strata])
            for _ in range(min(chunk, resamples - start))
        ]
        yield np.asarray(counts, dtype=np.float64)


def interval_of(estimate: Estimate, values: Floats, rows: int, confidence: float) -> Interval:
    """The interval from the estimate's values over the resamples (resamples,)."""
    point = at_once(estimate.statistic, rows)
    defined = values[np.isfinite(values)]
    undefined = 1 - len(defined) / len(values)
    if not np.isfinite(point) or len(defined) == 0:
        return Interval(point, np.nan, np.nan, undefined)
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    if estimate.truth is not None:
        centre = point + at_once(estimate.truth, rows)
        low, high = max(centre - high, estimate.lowest), max(centre - low, estimate.lowest)
    return Interval(point, float(low), float(high), undefined)


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
    estimates = metric_estimates(rows, metrics)
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
    wanted = chosen(metrics)
    estimates = paired_estimates(metric_estimates(a, wanted), metric_estimates(b, wanted))
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
    estimates = shift_estimates(in_domain, shifted)
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
    estimates = detection_estimates(scores, positives)
    rows = len(np.asarray(positives))
    return intervals(estimates, (rows,), resamples=resamples, confidence=confidence, seed=seed)


def metric_estimates(rows: Rows, metrics: Metrics = METRICS) -> dict[str, Estimate]:
    """Each metric of the rows, ready to resample."""
    return {
        name: Estimate(metric.prepare(rows), metric.truth and metric.truth(rows), lowest=0.0)
        for name, metric in chosen(metrics).items()
    }


def paired_estimates(first: Mapping[str, Estimate], second: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The difference first - second of each estimate, ready to resample what both are about."""
    return {
        name: Estimate(
            difference(one.statistic, second[name].statistic),
            difference(one.truth, truth) if one.truth and (truth := second[name].truth) else None,
        )
        for name, one in first.items()
    }


def shift_estimates(in_domain: Rows, shifted: Rows) -> dict[str, Estimate]:
    """ΔECE and the robustness score, ready to resample; the strata are the in-domain rows, then the shifted ones."""
    statistics = {name: combine(in_domain, shifted, weights) for name, weights in SHIFT.items()}
    lowest = {name: -np.inf if min(weights) < 0 else 0.0 for name, weights in SHIFT.items()}
    return {name: Estimate(one, truth=one, lowest=lowest[name]) for name, one in statistics.items()}


def detection_estimates(scores: ArrayLike, positives: ArrayLike) -> dict[str, Estimate]:
    """AUROC, AUPR and FPR95 of scores (rows,) for positives (rows,), ready to resample."""
    ranking, found = check_detection(scores, positives)
    return {name: Estimate(statistic_of(ranking, found)) for name, statistic_of in DETECTION.items()}


def chosen(metrics: Metrics) -> Mapping[str, Metric[[]]]:
    """The metrics by name: a mapping as it is, names as `METRICS` has them."""
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
