"""Every metric of probabilities against labels, by name. A new one is a function, a line here and a test."""

from uatlite.metrics.calibration import adaptive_ece, classwise_ece, debiased_ece, ece, mce
from uatlite.metrics.classification import accuracy, macro_f1
from uatlite.metrics.detection import error_aupr, error_auroc, error_fpr95
from uatlite.metrics.metric import Metric
from uatlite.metrics.proper import brier, brier_calibration, brier_refinement, nll
from uatlite.metrics.selective import (
    accuracy_at,
    augrc,
    aurc,
    count_at,
    coverage_at,
    e_aurc,
    risk_at_coverage,
)
from uatlite.metrics.smooth import smooth_ece

TAUS = (0.9, 0.8, 0.7)
COVERAGES = (0.9, 0.8, 0.7)

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
