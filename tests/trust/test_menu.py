"""The menu of risks: its lines are those of `target_risk`, its curve is counted by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from reference import rule_of
from uatlite.codec import dump, load
from uatlite.errors import ConfigurationError, StoreError
from uatlite.trust.planners import RowsPlanner
from uatlite.trust.promise import Labelled, decide, risk_curve
from uatlite.trust.rule import Menu, Wanted
from uatlite.trust.search import RISKS


@pytest.fixture
def rows(sample):
    rng = np.random.default_rng(0)
    scores, wrong = sample(500, rng)
    return scores, wrong, rng.random(600)


def test_each_line_is_the_rule_of_its_target(rows):
    scores, wrong, _ = rows
    arguments = {"confidence": 0.9, "score": "margin", "seed": 3}
    menu = decide(Labelled({"margin": scores}, wrong), Wanted(confidence=0.9, seed=3), menu=True).menu
    assert [line.target for line in menu.lines] == list(RISKS)
    kept = 0
    for line in menu.lines:
        rule = rule_of(scores, wrong, line.target, **arguments)
        assert line.rule == (rule if rule.promised else None)
        assert menu.rule(line.target) == line.rule
        kept += rule.promised
    assert 0 < kept < len(RISKS)


def test_what_cannot_be_promised_has_the_rows_it_would_take(rows):
    scores, wrong, others = rows
    planner = RowsPlanner(Wanted(), scores, wrong, others)
    menu = planner.menu()
    least, some, promised = (next(line for line in menu.lines if line.target == risk) for risk in (0.01, 0.05, 0.2))
    assert (least.rule, least.texts_needed) == (None, None)
    assert some.texts_needed == planner.needed(0.05) > 500
    assert (promised.rule is not None, promised.texts_needed) == (True, None)
    head, *lines, last = menu.describe()
    assert "confidence 0.95, 500 labelled rows, by confidence" in head
    assert "more rows will hardly help" in lines[0]
    assert f"it would take about {some.texts_needed:,} labelled rows, not 500" in lines[3]
    assert f"{promised.rule.coverage:.1%} answered" in lines[-1]
    assert last.startswith("Each line is a promise by itself")


def test_the_curve_by_hand():
    """Rows 0.8 and 0.7 tie with one another: they come together, as do all points between."""
    scores = np.array([0.9, 0.8, 0.8, 0.7, 0.6])
    curve = risk_curve(scores, np.array([False, False, True, True, False]), 0.9)
    np.testing.assert_allclose(curve.coverages, [0.2, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(curve.risks, [0, 1 / 3, 2 / 4, 2 / 5])
    for errors, count, low, high, t in zip(
        [0, 1, 2, 2], [1, 3, 4, 5], curve.low, curve.high, curve.thresholds, strict=True
    ):
        interval = binomtest(errors, count).proportion_ci(0.9, method="exact")
        assert (low, high) == pytest.approx((interval.low, interval.high), abs=1e-12)
        assert (scores > t).sum() == count


def test_the_curve_has_forty_points_and_all_rows_at_the_end(rows):
    scores, wrong, _ = rows
    curve = risk_curve(scores, wrong, 0.95)
    assert len(curve.coverages) == 40
    assert curve.risks[-1] == wrong.mean()
    assert all(low <= risk <= high for low, risk, high in zip(curve.low, curve.risks, curve.high, strict=True))
    answered = scores > curve.thresholds[9]
    assert (curve.coverages[9], curve.risks[9]) == (answered.mean(), wrong[answered].mean())


def test_a_menu_comes_back_from_json_and_a_broken_one_or_an_unknown_target_is_refused(rows):
    menu = replace(RowsPlanner(Wanted(), *rows).menu(), curve=risk_curve(*rows[:2], 0.95))
    state = dump(menu)
    assert load(Menu, json.loads(json.dumps(state, allow_nan=False)), advice="calibrate again.") == menu
    for broken in ({**state, "lines": 1}, {**state, "extra": 1}, {"rows": 1}, {**state, "curve": {"x": [1]}}):
        with pytest.raises(StoreError, match="calibrate again"):
            load(Menu, broken, advice="calibrate again.")
    with pytest.raises(ConfigurationError, match="not on the menu"):
        menu.rule(0.07)
