"""Every score by name, how it is read, and confidence intervals by the bootstrap.

    intervals(metric_estimates(Rows.of(probabilities, labels)))
    intervals(metric_estimates(first) - metric_estimates(second), Resampling(confidence=0.9))

A resample is a vector of counts, how often each row is drawn. Many resamples are one matrix (resamples, rows), and a
metric over all of them is a matrix product or a running sum. Statistics without a `truth` get the interval of
percentiles. The others are biased upward by noise, and again in every resample. They get the pivotal interval: the
error of a resample's estimate about the sample's truth stands for the error of the sample's about the population's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uatlite.codec import NOT_STORED
from uatlite.errors import ConfigurationError, InputError, check_choice
from uatlite.metrics import calibration, selective
from uatlite.metrics.accuracy import (
    DETECTION,
    accuracy,
    brier,
    check_detection,
    error_aupr,
    error_auroc,
    error_fpr95,
    macro_f1,
    nll,
)
from uatlite.metrics.rows import Metric, Rows, Statistic, at_once
from uatlite.values import Floats, check_share

RESAMPLES = 1000
"""Resamples of an interval, where nothing else is asked for."""

TAUS = (0.9, 0.8, 0.7)
COVERAGES = (0.9, 0.8, 0.7)

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Scale:
    """How a score is read, and how it is computed."""

    heading: str
    """in tables"""
    better: Better | None
    """None where neither direction is better by itself"""
    metric: Metric[[]] | None = None
    """of probabilities against labels; None for a score of something else"""
    decimals: int = 3
    narrow: bool = False
    """whether it fits a terminal of 80 columns beside the others"""
    charted: bool = False
    """whether a report draws it"""


# A new metric is a function, a line here and a test.
SCALES: dict[str, Scale] = {
    "accuracy": Scale("Accuracy", "higher", accuracy, narrow=True),
    "macro_f1": Scale("Macro F1", "higher", macro_f1),
    "ece": Scale("ECE", "lower", calibration.ece.bind(), narrow=True, charted=True),
    "debiased_ece": Scale("ECE debiased", "lower", calibration.debiased_ece.bind()),
    "adaptive_ece": Scale("ECE adaptive", "lower", calibration.adaptive_ece.bind()),
    "classwise_ece": Scale("ECE classwise", "lower", calibration.classwise_ece.bind()),
    "smooth_ece": Scale("ECE smooth", "lower", calibration.smooth_ece),
    "mce": Scale("MCE", "lower", calibration.mce.bind()),
    "nll": Scale("NLL", "lower", nll, narrow=True, charted=True),
    "brier": Scale("Brier", "lower", brier, narrow=True),
    "brier_calibration": Scale("brier_calibration", "lower", calibration.brier_calibration.bind()),
    "brier_refinement": Scale("brier_refinement", "lower", calibration.brier_refinement.bind()),
    "aurc": Scale("AURC", "lower", selective.aurc, narrow=True, charted=True),
    "augrc": Scale("AUGRC", "lower", selective.augrc),
    "e_aurc": Scale("E-AURC", "lower", selective.e_aurc),
    **{f"coverage@{tau}": Scale(f"Cov@{tau}", None, selective.coverage_at.bind(tau=tau)) for tau in TAUS},
    **{f"accuracy@{tau}": Scale(f"Acc@{tau}", None, selective.accuracy_at.bind(tau=tau)) for tau in TAUS},
    **{f"count@{tau}": Scale(f"N@{tau}", None, selective.count_at.bind(tau=tau), decimals=0) for tau in TAUS},
    **{f"risk@{c}": Scale(f"Risk@{c}", "lower", selective.risk_at_coverage.bind(coverage=c)) for c in COVERAGES},
    "error_auroc": Scale("Error AUROC", "higher", error_auroc),
    "error_aupr": Scale("error_aupr", "higher", error_aupr),
    "error_fpr95": Scale("error_fpr95", "lower", error_fpr95),
    # under a shift; ΔECE is low for a model that is badly calibrated in domain already
    "delta_ece": Scale("ΔECE", None),
    "robustness_score": Scale("Robustness", "lower"),
    # of texts out of scope, and of both together
    "auroc": Scale("AUROC", "higher"),
    "aupr": Scale("AUPR", "higher"),
    "fpr95": Scale("FPR95", "lower"),
    "confidence_aurc": Scale("By confidence", "lower", decimals=4),
    "scope_aurc": Scale("× in scope", "lower", decimals=4),
    "scope_change": Scale("Change", None, decimals=4),
    # of several answers a text: uatlite.metrics.answers
    "answer_ece": Scale("ECE", "lower", narrow=True, charted=True),
    "answer_debiased_ece": Scale("ECE debiased", "lower"),
    "answer_smooth_ece": Scale("ECE smooth", "lower"),
    "answer_nll": Scale("NLL", "lower", narrow=True, charted=True),
    "answer_aurc": Scale("AURC", "lower", narrow=True, charted=True),
    "wrong_auroc": Scale("Wrong AUROC", "higher"),
    "wrong_aupr": Scale("Wrong AUPR", "higher"),
    "f1": Scale("F1", "higher", narrow=True),
    "precision": Scale("Precision", "higher"),
    "recall": Scale("Recall", "higher"),
    "label_ece": Scale("ECE", "lower", decimals=4, narrow=True, charted=True),
    "label_nll": Scale("NLL", "lower", decimals=4, narrow=True, charted=True),
    "label_brier": Scale("Brier", "lower", decimals=4),
    "pair_aurc": Scale("AURC", "lower", decimals=4, narrow=True, charted=True),
    "micro_average_precision": Scale("AP micro", "higher", narrow=True),
    "macro_average_precision": Scale("AP macro", "higher"),
    "micro_f1": Scale("Micro F1", "higher"),
}

METRICS: dict[str, Metric[[]]] = {name: scale.metric for name, scale in SCALES.items() if scale.metric is not None}


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
class Resampling:
    """How intervals are computed."""

    resamples: int = RESAMPLES
    confidence: float = 0.95
    seed: int = 0
    over_seeds: bool = field(default=False, metadata=NOT_STORED)
    """whether the trained models of several seeds are drawn too: see `uatlite.lab.evaluate.comparison`"""

    def __post_init__(self) -> None:
        if self.resamples < 1:
            raise ConfigurationError(f"resamples={self.resamples} is not allowed: at least 1; {RESAMPLES} is usual.")
        check_share("confidence", self.confidence)


@dataclass(frozen=True)
class Estimate:
    """A statistic to resample, the truth that it estimates (see Metric), and its lowest possible value."""

    statistic: Statistic
    truth: Statistic | None = None
    lowest: float = -np.inf


class Estimates(dict[str, Estimate]):
    """Estimates by name, all of the same rows, ready to be resampled.

    Rows come in strata of these sizes, and each is drawn by itself.
    """

    def __init__(self, of: Mapping[str, Estimate], strata: tuple[int, ...]) -> None:
        super().__init__(of)
        self.strata = strata

    def chosen(self, *names: str) -> "Estimates":
        """Those with these names."""
        for name in names:
            check_choice("metric", name, self)
        return Estimates({name: self[name] for name in names}, self.strata)

    def points(self) -> dict[str, float]:
        """The values of the rows themselves."""
        return {name: at_once(estimate.statistic, sum(self.strata)) for name, estimate in self.items()}

    def __sub__(self, other: "Estimates") -> "Estimates":
        """The differences on the same rows: both see the same resamples."""
        if self.strata != other.strata:
            raise InputError(
                f"the first is of {sum(self.strata)} rows or texts and the second of {sum(other.strata)}; compare "
                "both on the same ones."
            )

        def minus(a: Statistic, b: Statistic) -> Statistic:
            return lambda counts: a(counts) - b(counts)

        of = {}
        for name, first in self.items():
            second = other[name]
            truth = first.truth and second.truth and minus(first.truth, second.truth)
            of[name] = Estimate(minus(first.statistic, second.statistic), truth)
        return Estimates(of, self.strata)


def metric_estimates(rows: Rows, metrics: Iterable[str] | Mapping[str, Metric[[]]] = METRICS) -> Estimates:
    """Each metric of the rows, by a mapping or by names of `METRICS`."""
    if isinstance(metrics, str):
        raise ConfigurationError(f"metrics={metrics!r} is one string; allowed is a list of names, [{metrics!r}].")
    of = {
        name: Estimate(partial(metric.values, rows), metric.truth and partial(metric.truth, rows), lowest=0.0)
        for name, metric in (metrics if isinstance(metrics, Mapping) else METRICS).items()
    }
    return Estimates(of, (len(rows),)).chosen(*metrics)


def shift_estimates(in_domain: Rows, shifted: Rows) -> Estimates:
    """ΔECE and the robustness score of an in-domain and a shifted set, each resampled by itself."""
    of = {}
    for name, weights in calibration.SHIFT.items():
        statistic = partial(calibration.combine, in_domain, shifted, weights)
        of[name] = Estimate(statistic, truth=statistic, lowest=-np.inf if min(weights) < 0 else 0.0)
    return Estimates(of, (len(in_domain), len(shifted)))


def detection_estimates(scores: ArrayLike, positives: ArrayLike) -> Estimates:
    """AUROC, AUPR and FPR95 of scores (rows,) for positives (rows,)."""
    ranking, marks = check_detection(scores, positives)
    of = {name: Estimate(partial(statistic, ranking, marks)) for name, statistic in DETECTION.items()}
    return Estimates(of, (len(marks),))


def intervals(estimates: Estimates, how: Resampling | None = None) -> dict[str, Interval]:
    """Each estimate with its interval."""
    how = how or Resampling()
    drawn: dict[str, list[Floats]] = {name: [] for name in estimates}
    for counts in draw_counts(estimates.strata, how.resamples, how.seed):
        for name, estimate in estimates.items():
            drawn[name].append(estimate.statistic(counts))
    rows = sum(estimates.strata)
    return {
        name: interval_of(
            at_once(estimate.statistic, rows),
            np.concatenate(drawn[name]),
            how.confidence,
            truth=estimate.truth and at_once(estimate.truth, rows),
            lowest=estimate.lowest,
        )
        for name, estimate in estimates.items()
    }


CHUNK = 2_000_000  # counts held at once, 16 MB; a few arrays of that size are alive at a time


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


def interval_of(
    point: float, values: Floats, confidence: float, *, truth: float | None = None, lowest: float = -np.inf
) -> Interval:
    """The interval of an estimate from its values over the resamples (resamples,)."""
    defined = values[np.isfinite(values)]
    undefined = 1 - len(defined) / len(values)
    if not np.isfinite(point) or len(defined) == 0:
        return Interval(point, np.nan, np.nan, undefined)
    low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
    if truth is not None:
        low, high = max(point + truth - high, lowest), max(point + truth - low, lowest)
    return Interval(point, float(low), float(high), undefined)
