"""Bounds against scipy's own and against sums written out."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from uatlite.trust.rule import allowed_errors, coverage_interval, risk_upper_bound


def tail(errors: int, answered: int, risk: float) -> float:
    """P(Binomial(answered, risk) ≤ errors), term by term."""
    return sum(math.comb(answered, k) * risk**k * (1 - risk) ** (answered - k) for k in range(errors + 1))


@pytest.mark.parametrize("errors, answered", [(0, 1), (0, 59), (3, 100), (17, 40), (39, 40)])
def test_the_bound_is_clopper_pearson(errors, answered):
    bound = risk_upper_bound(errors, answered, 0.95)
    reference = binomtest(errors, answered, alternative="less").proportion_ci(0.95, method="exact").high
    assert bound == pytest.approx(reference, rel=1e-9)
    assert tail(errors, answered, bound) == pytest.approx(0.05, rel=1e-9)


def test_all_wrong_bounds_nothing():
    assert risk_upper_bound(5, 5, 0.95) == 1.0


@pytest.mark.parametrize("target", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_the_allowed_errors_are_those_whose_bound_keeps_the_target(target, confidence):
    for answered, allowed in enumerate(allowed_errors(np.arange(120), target, confidence)):
        if allowed >= 0:
            assert tail(allowed, answered, target) <= 1 - confidence
            assert risk_upper_bound(allowed, answered, confidence) <= target + 1e-12
        assert tail(allowed + 1, answered, target) > 1 - confidence


def test_without_an_error_59_rows_promise_five_percent():
    """The textbook number: 0.95^59 = 0.0485."""
    np.testing.assert_array_equal(allowed_errors([58, 59], 0.05, 0.95), [-1, 0])


def test_the_coverage_interval_by_hand():
    low, high = coverage_interval(60, 100, 0.95)
    assert (low, high) == pytest.approx((0.6 - 0.13581, 0.6 + 0.13581), abs=1e-5)
    assert coverage_interval(100, 100, 0.95)[1] == 1.0
    assert coverage_interval(0, 100, 0.95)[0] == 0.0
