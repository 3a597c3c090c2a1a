"""The rules by name: each takes calibration scores, errors and a target, and returns an AbstentionRule."""

from collections.abc import Callable

from uatlite.decision.abstention import AbstentionRule
from uatlite.decision.guarantee import target_risk
from uatlite.decision.thresholds import fixed_threshold, target_coverage

RULES: dict[str, Callable[..., AbstentionRule]] = {
    "threshold": fixed_threshold,
    "coverage": target_coverage,
    "risk": target_risk,
}
