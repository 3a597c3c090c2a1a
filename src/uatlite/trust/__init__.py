"""From logits to probabilities to decisions: calibrators, abstention rules and promises, label sets, scope, shift."""

from uatlite.trust.auto import CALIBRATORS, SIMPLEST_FIRST, Auto, Candidate, calibrator_from_dict, make_calibrator
from uatlite.trust.calibrators import (
    TEMPERATURE_BOUNDS,
    Calibrator,
    Identity,
    Temperature,
    VectorScaling,
)
from uatlite.trust.gaussians import ScopeFit
from uatlite.trust.input_temperature import InputTemperature
from uatlite.trust.label_sets import NONCONFORMITY, LabelSets, label_sets, text_uniforms
from uatlite.trust.menu import Menu, MenuLine, RiskCurve, risk_menu
from uatlite.trust.one_vs_rest import HistogramBinning, Isotonic, Platt
from uatlite.trust.per_class import target_risk_per_class
from uatlite.trust.promise import RULES, target_risk
from uatlite.trust.rule import (
    SCORES,
    AbstentionRule,
    ClassPromise,
    Uncertainties,
    allowed_errors,
    coverage_interval,
    fixed_threshold,
    risk_upper_bound,
    target_coverage,
    trust,
)
from uatlite.trust.scope import Scope, benjamini_hochberg, chance_in_scope, fit_scope
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
    "ClassPromise",
    "HistogramBinning",
    "Identity",
    "InputTemperature",
    "Isotonic",
    "LabelSets",
    "Menu",
    "MenuLine",
    "Platt",
    "RiskCurve",
    "Scope",
    "ScopeFit",
    "ShiftReference",
    "ShiftReport",
    "Temperature",
    "Uncertainties",
    "VectorScaling",
    "allowed_errors",
    "benjamini_hochberg",
    "calibrator_from_dict",
    "chance_in_scope",
    "coverage_interval",
    "fit_scope",
    "fixed_threshold",
    "label_sets",
    "make_calibrator",
    "risk_menu",
    "risk_upper_bound",
    "summarise",
    "target_coverage",
    "target_risk",
    "target_risk_per_class",
    "text_uniforms",
    "trust",
]
