"""The menu of risks: its lines are those of `target_risk`, its curve is counted by hand."""

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.trust.menu import Menu, risk_curve, risk_menu
from uatlite.trust.promise import RISKS, rows_needed, target_risk


@pytest.fixture
def rows(sample):
    rng = np.random.default_rng(0)
    scores, wrong = sample(500, rng)
    return scores, wrong, rng.random(600)


@pytest.mark.parametrize("with_reference", [True, False])
def test_each_line_is_the_rule_of_its_target(rows, with_reference):
    scores, wrong, others = rows
    arguments = {"reference": others if with_reference else None, "confidence": 0.9, "score": "margin", "seed": 3}
    menu = risk_menu(scores, wrong, **arguments)
    assert [line.target for line in menu.lines] == list(RISKS)
    kept = 0
    for line in menu.lines:
        rule = target_risk(scores, wrong, line.target, **arguments)
        assert line.rule == (rule if rule.promised else None)
        assert menu.rule(line.target) == line.rule
        kept += rule.promised
    assert 0 < kept < len(RISKS)


def test_what_cannot_be_promised_has_the_rows_it_would_take(rows):
    scores, wrong, others = rows
    menu = risk_menu(scores, wrong, targets=[0.2, 0.06, 0.005], reference=others)
    assert [line.target for line in menu.lines] == [0.005, 0.06, 0.2]
    least, some, promised = menu.lines
    assert (least.rule, least.rows_needed) == (None, None)
    assert some.rows_needed == rows_needed(scores, wrong, 0.06, 0.95) > 500
    assert (promised.rule is not None, promised.rows_needed) == (True, None)
    head, *lines, last = menu.describe()
    assert "confidence 0.95, 500 labelled rows, by confidence" in head
    assert "more rows will hardly help" in lines[0]
    assert f"it would take about {some.rows_needed:,} labelled rows, not 500" in lines[1]
    assert f"{promised.rule.coverage:.1%} answered" in lines[2]
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


def test_a_menu_comes_back_from_json(rows):
    scores, wrong, others = rows
    menu = risk_menu(scores, wrong, reference=others, targets=[0.01, 0.1, 0.3])
    assert Menu.from_dict(json.loads(json.dumps(menu.to_dict(), allow_nan=False))) == menu


def test_a_broken_menu_and_an_unknown_target_are_refused(rows):
    scores, wrong, others = rows
    menu = risk_menu(scores, wrong, reference=others)
    state = menu.to_dict()
    for broken in ({**state, "lines": 1}, {**state, "extra": 1}, {"rows": 1}, {**state, "curve": {"x": [1]}}):
        with pytest.raises(CalibrationError, match="calibrate again"):
            Menu.from_dict(broken)
    with pytest.raises(ConfigurationError, match="not on the menu"):
        menu.rule(0.07)
    with pytest.raises(ConfigurationError, match="between 0 and 1"):
        risk_menu(scores, wrong, targets=[5])
