"""Metrics: pure functions metric(probabilities, labels), and their confidence intervals.

Probabilities are (rows, classes), labels (rows,). `METRICS` lists them all with the direction that is better.
"""

from uatlite.metrics.accuracy import (
    accuracy,
    aupr,
    auroc,
    brier,
    error_aupr,
    error_auroc,
    error_fpr95,
    fpr95,
    macro_f1,
    nll,
)
from uatlite.metrics.answers import AnswerRows, Found, LabelRows
from uatlite.metrics.calibration import (
    adaptive_ece,
    brier_calibration,
    brier_refinement,
    classwise_ece,
    debiased_ece,
    ece,
    mce,
    smooth_ece,
)
from uatlite.metrics.intervals import (
    METRICS,
    SCALES,
    Interval,
    Resampling,
    detection_estimates,
    intervals,
    metric_estimates,
    shift_estimates,
)
from uatlite.metrics.rows import Metric, Rows
from uatlite.metrics.selective import accuracy_at, augrc, aurc, count_at, coverage_at, e_aurc, risk_at_coverage

__all__ = [
    "METRICS", "SCALES", "AnswerRows", "Found", "Interval", "LabelRows", "Metric", "Resampling", "Rows", "accuracy",
    "accuracy_at", "adaptive_ece", "augrc", "aupr", "aurc", "auroc", "brier", "brier_calibration", "brier_refinement",
    "classwise_ece", "count_at", "coverage_at", "debiased_ece", "detection_estimates", "e_aurc", "ece", "error_aupr",
    "error_auroc", "error_fpr95", "fpr95", "intervals", "macro_f1", "mce", "metric_estimates", "nll",
    "risk_at_coverage", "shift_estimates", "smooth_ece",
]  # fmt: skip
