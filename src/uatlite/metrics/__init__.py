"""Metrics: pure functions metric(probabilities, labels), and their confidence intervals.

Probabilities are (rows, classes), labels (rows,). `METRICS` lists them all with the direction that is better.
"""

from uatlite.metrics.accuracy import (
    accuracy,
    aupr,
    auroc,
    brier,
    brier_calibration,
    brier_refinement,
    error_aupr,
    error_auroc,
    error_fpr95,
    fpr95,
    macro_f1,
    nll,
)
from uatlite.metrics.bootstrap import (
    METRICS,
    Interval,
    bootstrap,
    detection_bootstrap,
    paired_bootstrap,
    shift_bootstrap,
)
from uatlite.metrics.calibration import (
    adaptive_ece,
    classwise_ece,
    debiased_ece,
    delta_ece,
    ece,
    mce,
    robustness_score,
    smooth_ece,
)
from uatlite.metrics.metric import Metric
from uatlite.metrics.selective import (
    accuracy_at,
    augrc,
    aurc,
    count_at,
    coverage_at,
    e_aurc,
    risk_at_coverage,
)

__all__ = [
    "METRICS",
    "Interval",
    "Metric",
    "accuracy",
    "accuracy_at",
    "adaptive_ece",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "bootstrap",
    "brier",
    "brier_calibration",
    "brier_refinement",
    "classwise_ece",
    "count_at",
    "coverage_at",
    "debiased_ece",
    "delta_ece",
    "detection_bootstrap",
    "e_aurc",
    "ece",
    "error_aupr",
    "error_auroc",
    "error_fpr95",
    "fpr95",
    "macro_f1",
    "mce",
    "nll",
    "paired_bootstrap",
    "risk_at_coverage",
    "robustness_score",
    "shift_bootstrap",
    "smooth_ece",
]
