"""The menu of risks: which can be promised, with what coverage, why others cannot, and how many texts it takes."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from uatlite.trust.binomial import clopper_pearson
from uatlite.trust.planners import RecallPlanner, RowsPlanner, TextsPlanner
from uatlite.trust.rule import Menu, RiskCurve, RiskLine, Rule
from uatlite.trust.search import HIGHER_RISKS, RISKS, search
from uatlite.values import Floats, Marks, check_share

RiskPlanner = RowsPlanner | TextsPlanner
"""The planners that may be asked for other risks too."""

_CURVE_POINTS = 40
"""The curve has its points at every fortieth of the rows."""


def searched(planner: RiskPlanner | RecallPlanner, target: float) -> Rule:
    """The rule of the search; without a way out where nothing is promised."""
    plan = planner.plan(target)
    return planner.rule(plan, target, search(plan, planner.test(plan, target)))


def promise(planner: RiskPlanner, target: float) -> Rule:
    """The rule of the search; where nothing is promised, with the reason and a way out."""
    rule = searched(planner, target)
    if rule.promised:
        return rule
    return replace(rule, reason=planner.why_not(target, nearest_risk(planner, target), planner.needed(target)))


def nearest_risk(planner: RiskPlanner, target: float) -> float | None:
    """The lowest of the usual risks above the target that these texts promise."""
    return next((risk for risk in RISKS + HIGHER_RISKS if risk > target and searched(planner, risk).promised), None)


def risk_menu(planner: RiskPlanner, targets: Sequence[float] = RISKS) -> Menu:
    """What the labelled texts of a planner promise for each of the target risks."""
    lines = []
    for target in sorted(targets):
        check_share("target", target)
        rule = searched(planner, target)
        needed = None if rule.promised else planner.needed(target)
        lines.append(RiskLine(target=target, rule=rule if rule.promised else None, texts_needed=needed))
    return Menu(
        score=planner.score, confidence=planner.confidence, texts=planner.texts, lines=tuple(lines), unit=planner.unit
    )


def risk_curve(scores: Floats, wrong: Marks, confidence: float) -> RiskCurve:
    """The observed risk at coverages from 1/40 to 1, with the exact interval of each point; tied rows come together.

    Given the (k+1)-th highest score, the k rows above it are a sample of all rows above it, so the interval is exact.
    """
    ranked = np.sort(scores)[::-1]
    errors = np.cumsum(wrong[np.argsort(-scores, kind="stable")])
    wanted = np.ceil(np.arange(1, _CURVE_POINTS + 1) * len(scores) / _CURVE_POINTS).astype(np.int64)
    counts = np.unique(np.searchsorted(-ranked, -ranked[wanted - 1], side="right"))
    k = errors[counts - 1]
    low, high = clopper_pearson(k, counts, confidence)
    return RiskCurve(
        thresholds=tuple(np.nextafter(ranked[counts - 1], -np.inf).tolist()),
        coverages=tuple((counts / len(scores)).tolist()),
        risks=tuple((k / counts).tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )
