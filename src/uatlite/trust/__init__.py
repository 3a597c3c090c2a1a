"""From logits to probabilities to decisions: calibrators, abstention rules and what they promise, label sets, shift."""

from uatlite.trust.auto import CALIBRATORS, SIMPLEST_FIRST, Auto, Candidate, calibrator_from_dict, make_calibrator
from uatlite.trust.calibrators import (
    TEMPERATURE_BOUNDS,
    Calibrator,
    Identity,
    InputTemperature,
    Temperature,
    VectorScaling,
)
from uatlite.trust.label_sets import NONCONFORMITY, LabelSets, label_sets, text_uniforms
from uatlite.trust.one_vs_rest import HistogramBinning, Isotonic, Platt
from uatlite.trust.promise import RULES, target_risk
from uatlite.trust.rule import (
    SCORES,
    AbstentionRule,
    Uncertainties,
    allowed_errors,
    coverage_interval,
    fixed_threshold,
    risk_upper_bound,
    target_coverage,
    trust,
)
from uatlite.trust.shift import ShiftReference, ShiftReport, summarise

__all__ = [
    "CALIBRATORS",
    "NONCONFORMITY",
    "RULES",
    "SCORES",
    "SIMPLEST_FIRST",
    "TEMPERATURE_BOUNDS",
    "AbstentionRule",
    "Auto",
    "Calibrator",
    "Candidate",
    "HistogramBinning",
    "Identity",
    "InputTemperature",
    "Isotonic",
    "LabelSets",
    "Platt",
    "ShiftReference",
    "ShiftReport",
    "Temperature",
    "Uncertainties",
    "VectorScaling",
    "allowed_errors",
    "calibrator_from_dict",
    "coverage_interval",
    "fixed_threshold",
    "label_sets",
    "make_calibrator",
    "risk_upper_bound",
    "summarise",
    "target_coverage",
    "target_risk",
    "text_uniforms",
    "trust",
]
