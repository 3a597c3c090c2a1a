"""Answer or abstain: scores, rules and what they promise, label sets, and whether the promise still holds."""

from uatlite.decision.abstention import AbstentionRule
from uatlite.decision.bounds import allowed_errors, coverage_interval, risk_upper_bound
from uatlite.decision.conformal import NONCONFORMITY, LabelSets, label_sets, text_uniforms
from uatlite.decision.guarantee import target_risk
from uatlite.decision.rules import RULES
from uatlite.decision.scores import SCORES, Uncertainties, trust
from uatlite.decision.shift import ShiftReference, ShiftReport, summarise
from uatlite.decision.thresholds import fixed_threshold, target_coverage

__all__ = [
    "NONCONFORMITY",
    "RULES",
    "SCORES",
    "AbstentionRule",
    "LabelSets",
    "ShiftReference",
    "ShiftReport",
    "Uncertainties",
    "allowed_errors",
    "coverage_interval",
    "fixed_threshold",
    "label_sets",
    "risk_upper_bound",
    "summarise",
    "target_coverage",
    "target_risk",
    "text_uniforms",
    "trust",
]
