"""Shrunk logistic regression against a slow minimiser and scikit-learn."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from uatlite.trust.answers import RegressionRows, Shrunk, losses


def draw(rows, kinds, seed, sign=1.0):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, kinds, rows)
    x, columns = rng.normal(size=rows), rng.normal(size=(rows, 2))
    slopes, biases = sign * rng.gamma(5, 0.2, kinds), rng.normal(0, 0.7, kinds)
    logits = slopes[kind] * x + biases[kind] + columns @ [0.5, -0.3]
    return RegressionRows(x, columns, kind, rng.random(rows) < 1 / (1 + np.exp(-logits)))


def slow_objective(theta, rows, kinds, strength, prior, identity):
    """The definition: parameters are slopes, biases, weights, the shared slope and the shared bias."""
    slopes, biases, weights, (a, b) = theta[:kinds], theta[kinds : 2 * kinds], theta[2 * kinds : -2], theta[-2:]
    total = 0.0
    for x, column, k, y in zip(rows.x, rows.columns, rows.kind, rows.right, strict=True):
        logit = slopes[k] * x + biases[k] + weights @ column
        total += np.log1p(np.exp(-logit if y else logit))
    apart = ((slopes - a) ** 2).sum() + ((biases - b) ** 2).sum()
    return total + apart / (2 * strength**2) + ((a - identity) ** 2 + b**2 + weights @ weights) / (2 * prior**2)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["free", "at the bound"])
def test_it_minimises_what_it_says(sign):
    rows, kinds = draw(120, 3, 0, sign), 3
    found = Shrunk.fit(rows, kinds=kinds, strength=0.4, prior=3.0, identity=1.2)
    start = np.concatenate([np.ones(kinds), np.zeros(kinds), np.zeros(2), [1.0, 0.0]])
    bounds = [(0, None)] * kinds + [(None, None)] * (kinds + 4)
    slow = minimize(slow_objective, start, args=(rows, kinds, 0.4, 3.0, 1.2), method="L-BFGS-B", bounds=bounds,
                    options={"ftol": 1e-14, "gtol": 1e-8, "maxfun": 100_000})  # fmt: skip
    theta = np.concatenate([found.slopes, found.biases, found.weights, [found.slope, found.bias]])
    np.testing.assert_allclose(theta, slow.x, atol=2e-3)
    assert slow_objective(theta, rows, kinds, 0.4, 3.0, 1.2) <= slow.fun + 1e-7
    assert (found.slopes == 0).any() == (sign < 0)


def test_without_kinds_it_is_the_logistic_regression_of_scikit_learn():
    rows = draw(800, 1, 1)
    found = Shrunk.fit(rows, kinds=1, strength=0.0, prior=1e6, identity=1.0)
    columns = np.column_stack([rows.x, rows.columns])
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(columns, rows.right)
    np.testing.assert_allclose([found.slope, *found.weights], reference.coef_[0], atol=1e-5)
    assert found.bias == pytest.approx(reference.intercept_[0], abs=1e-5)
    np.testing.assert_allclose(
        np.exp(-found.losses(rows)), reference.predict_proba(columns)[np.arange(800), rows.right.astype(int)], atol=1e-5
    )


def test_strength_goes_from_shared_to_each_by_itself():
    rows = draw(3000, 4, 2)
    shared = Shrunk.fit(rows, kinds=4, strength=0.0, prior=1e6, identity=1.0)
    assert np.ptp(shared.slopes) == 0
    nearly = Shrunk.fit(rows, kinds=4, strength=1e-4, prior=1e6, identity=1.0)
    np.testing.assert_allclose(nearly.slopes, shared.slopes, atol=1e-3)
    np.testing.assert_allclose(nearly.biases, shared.biases, atol=1e-3)
    plain = RegressionRows(rows.x, rows.columns[:, :0], rows.kind, rows.right)
    free = Shrunk.fit(plain, kinds=4, strength=1e4, prior=1e6, identity=1.0)
    for kind in range(4):
        own = rows.at(rows.kind == kind)
        alone = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(own.x[:, None], own.right)
        assert free.slopes[kind] == pytest.approx(alone.coef_[0, 0], abs=1e-4)
        assert free.biases[kind] == pytest.approx(alone.intercept_[0], abs=1e-4)


def test_kinds_without_rows_have_the_shared_parameters_and_separable_rows_stay_finite():
    rows = draw(200, 2, 3)
    found = Shrunk.fit(rows, kinds=5, strength=0.5, prior=5.0, identity=1.0)
    np.testing.assert_allclose(found.slopes[2:], found.slope, atol=1e-9)
    np.testing.assert_allclose(found.biases[2:], found.bias, atol=1e-9)
    separable = RegressionRows(rows.x, rows.columns[:, :0], rows.kind, rows.x > 0)
    assert 1 < Shrunk.fit(separable, kinds=2, strength=0.5, prior=5.0, identity=1.0).slope < 100
    nothing = RegressionRows(np.zeros(0), np.zeros((0, 0)), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool))
    assert Shrunk.fit(nothing, kinds=2, strength=0.5, prior=5.0, identity=1.3).slopes.tolist() == [1.3, 1.3]


def test_losses_are_exact_where_probabilities_round_to_one():
    np.testing.assert_allclose(losses(np.array([800.0, -800.0]), np.array([False, True])), 800.0)
