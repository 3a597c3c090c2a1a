"""The streamed Gaussians against scikit-learn and loops."""

import numpy as np
import pytest
from sklearn.covariance import oas

from uatlite.errors import CalibrationError, InputError
from uatlite.trust.gaussians import Gaussians, ScopeFit, shrink


def draw(rows, units, classes, rng, *, spread=3.0):
    """Vectors (rows, units) around the means of their classes (rows,), correlated; a few classes may be rare."""
    centres = np.random.default_rng(99).standard_normal((classes, units)) * spread
    own = rng.choice(classes, rows, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    scale = 1 / np.sqrt(1 + np.arange(units))
    return centres[own] + rng.standard_normal((rows, units)) * scale + 100.0, own


def fitted(x, own, classes, **settings):
    fit = ScopeFit(x.shape[1], classes)
    fit.add(x, own)
    return fit.gaussians(**settings)


@pytest.mark.parametrize("rows, units", [(400, 6), (60, 40)])
def test_the_shrinkage_is_that_of_scikit_learn(rows, units):
    x, _ = draw(rows, units, 1, np.random.default_rng(0))
    x -= x.mean(axis=0)
    expected, alpha = oas(x, assume_centered=True)
    covariance, shrinkage = shrink(x.T @ x / rows, rows)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10)
    assert shrinkage == pytest.approx(alpha)


def test_means_and_covariance_by_loops():
    x, own = draw(300, 5, 4, np.random.default_rng(1))
    got = fitted(x, own, 4)
    residuals = np.concatenate([x[own == k] - x[own == k].mean(axis=0) for k in range(4)])
    np.testing.assert_allclose(got.means, [x[own == k].mean(axis=0) for k in range(4)])
    np.testing.assert_array_equal(got.rows, np.bincount(own))
    np.testing.assert_allclose(got.covariance, shrink(residuals.T @ residuals / 296, 296)[0], rtol=1e-9)
    whole = fitted(x, own, 4, by_class=False)
    np.testing.assert_allclose(whole.means, [x.mean(axis=0)])
    np.testing.assert_allclose(whole.covariance, shrink(np.cov(x.T), 299)[0], rtol=1e-9)


def test_batches_give_the_same():
    x, own = draw(500, 7, 3, np.random.default_rng(2))
    x[250:] += 50.0  # far from the first batch, whose mean is the origin
    whole, parts = ScopeFit(7, 3), ScopeFit(7, 3)
    whole.add(x, own)
    for start in range(0, 500, 32):
        parts.add(x[start : start + 32].astype(np.float64), own[start : start + 32])
    assert whole.rows == parts.rows == 500
    for name in ("means", "rows", "covariance"):
        np.testing.assert_allclose(getattr(parts.gaussians(), name), getattr(whole.gaussians(), name), rtol=1e-9)


def test_a_class_without_rows_is_left_out():
    x, own = draw(100, 4, 3, np.random.default_rng(3))
    gaussians = fitted(x, 2 * own, 6)
    assert len(gaussians.means) == 3
    np.testing.assert_allclose(gaussians.distances(x), fitted(x, own, 3).distances(x))


def slow_distance(x, gaussians):
    """The distance of one row (units,), a class at a time."""
    inverse = np.linalg.inv(gaussians.covariance)
    pairs = zip(gaussians.means, gaussians.rows, strict=True)
    return min((x - mean) @ inverse @ (x - mean) / (1 + 1 / n) for mean, n in pairs)


def test_distances_by_brute_force():
    rng = np.random.default_rng(4)
    gaussians = fitted(*draw(300, 8, 5, rng), 5)
    new, _ = draw(40, 8, 5, rng)
    np.testing.assert_allclose(gaussians.distances(new), [slow_distance(row, gaussians) for row in new], rtol=1e-8)


@pytest.mark.parametrize("rows, units, spread", [(80, 5, 3.0), (60, 90, 0.3), (80, 20, 0.0)])
def test_leaving_one_out_is_a_fit_of_the_others(rows, units, spread):
    """Means and scatter computed afresh from the others, shrinkage and mean variance held; one class has one row."""
    x, own = draw(rows, units, 6, np.random.default_rng(5), spread=spread)
    own = np.unique(np.concatenate([[6], own[1:]]), return_inverse=True)[1]
    whole = fitted(x, own, own.max() + 1)
    assert whole.rows.min() == 1
    ridge = whole.shrinkage * np.trace(whole.covariance) / units * np.eye(units)
    slow = []
    for i in range(rows):
        rest, classes = np.delete(x, i, axis=0), np.delete(own, i)
        present = np.unique(classes)
        means = np.array([rest[classes == k].mean(axis=0) for k in present])
        residuals = np.concatenate([rest[classes == k] - rest[classes == k].mean(axis=0) for k in present])
        scatter = residuals.T @ residuals / (len(rest) - len(present))
        counts = np.array([(classes == k).sum() for k in present])
        fit = Gaussians(means, counts, (1 - whole.shrinkage) * scatter + ridge, whole.shrinkage)
        slow.append(slow_distance(x[i], fit))
    np.testing.assert_allclose(whole.left_out_distances(x, own), slow, rtol=1e-6)
    assert whole.distances(x).mean() < 0.97 * np.mean(slow)


def test_the_size_of_a_class_does_not_show_in_the_distances_of_new_rows():
    """Rows of a class of 3 and of one of 3,000 have one distribution of distances."""
    rng = np.random.default_rng(6)
    ratios = []
    for _ in range(40):
        own = np.repeat([0, 1], [3, 3000])
        gaussians = fitted(rng.standard_normal((3003, 10)) + 100.0 * own[:, None], own, 2)
        small, large = (gaussians.distances(rng.standard_normal((200, 10)) + 100.0 * k) for k in (0, 1))
        ratios.append(small.mean() / large.mean())
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.1)  # 1.33 without the denominator


def test_what_cannot_be_used_is_refused():
    fit = ScopeFit(4, 2)
    with pytest.raises(CalibrationError, match="0 texts"):
        fit.gaussians()
    with pytest.raises(InputError, match="5 units"):
        fit.add(np.ones((3, 5)), [0, 1, 0])
    with pytest.raises(InputError, match="labels"):
        fit.add(np.ones((3, 4)), [0, 2, 0])
    fit.add(np.ones((60, 4)), np.zeros(60, dtype=int))
    with pytest.raises(CalibrationError, match="do not vary"):
        fit.gaussians()
