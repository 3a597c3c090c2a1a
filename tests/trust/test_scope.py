"""The scope: conformal p-values that are valid under exchangeability and small out of scope; its Gaussians."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import softmax
from sklearn.covariance import oas

from by_hand import again
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.scope import Gaussians, ScopeFit, benjamini_hochberg, chance_in_scope, energy, fit_scope, shrink

UNITS, CLASSES = 12, 4
NOISE = 1.5 ** -np.arange(UNITS)
CENTRES = np.random.default_rng(99).standard_normal((CLASSES, UNITS)) * 2.0 * NOISE
NO_LOGITS = np.zeros((0, CLASSES))


def draw(rows, rng):
    """Representations (rows, units) and the logits (rows, classes) of a model that reads the nearest centre."""
    return read(CENTRES[rng.integers(CLASSES, size=rows)] + rng.standard_normal((rows, UNITS)) * NOISE)


def strangers(rows, rng):
    """The same, of texts that belong to no class."""
    return read(5.0 * rng.standard_normal((rows, UNITS)) * NOISE)


def read(x):
    return x, -0.5 * np.square((x[:, None] - CENTRES) / NOISE).sum(axis=2)


def reference(rows, rng):
    x, logits = draw(rows, rng)
    fit = ScopeFit(UNITS, CLASSES)
    fit.add(x, logits.argmax(axis=1))
    return fit


def scope_of(form, rows, rng, **settings):
    """Four forms: reference texts, few of them, calibration rows alone, logits alone."""
    x, logits = draw(rows, rng)
    fit = reference({"reference": 2000, "few": 15}[form], rng) if form in ("reference", "few") else None
    return fit_scope(fit, None if form == "logits" else x, logits, **settings)


FORMS = ("reference", "few", "calibration", "logits")


@pytest.mark.parametrize("form", FORMS)
def test_p_values_are_uniform_for_texts_in_scope(form):
    """Each repetition draws calibration rows and one new row, so the p-values are independent."""
    rng = np.random.default_rng(0)
    p = np.concatenate([scope_of(form, 60, rng).p_values(*draw(1, rng)) for _ in range(800)])
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        deviation = math.sqrt(level * (1 - level) / 800)
        share = np.mean(p <= level)
        assert share <= level + 3 * deviation
        assert share >= level - 1 / 61 - 3 * deviation  # and not conservative: the test has power


def test_ties_do_not_raise_the_rate():
    """Logits of two values: half of all rows are tied with the new row."""
    rng = np.random.default_rng(1)

    def tied(rows):
        return np.where(rng.random((rows, 1)) < 0.1, [[0.0, 0.0]], [[3.0, -3.0]])

    p = np.concatenate([fit_scope(None, None, tied(60)).p_values(None, tied(1)) for _ in range(1000)])
    for level in np.unique(p):
        assert np.mean(p <= level) <= level + 3 * math.sqrt(level / 1000)


@pytest.mark.parametrize("form", FORMS[:3])
def test_false_alarms_come_at_the_stated_rate_and_strangers_are_found(form):
    rng = np.random.default_rng(2)
    alarms, found = [], []
    for _ in range(60):
        scope = scope_of(form, 199, rng, false_alarm=0.05)
        alarms.append(scope.out_of_scope(scope.p_values(*draw(300, rng))).mean())
        found.append(scope.out_of_scope(scope.p_values(*strangers(300, rng))).mean())
    assert np.mean(alarms) <= 0.05 + 3 * np.std(alarms) / math.sqrt(60)
    assert np.mean(alarms) >= 0.03
    assert np.mean(found) > 0.7


def test_p_values_by_counting():
    rng = np.random.default_rng(4)
    x, logits = draw(99, rng)
    fit = reference(500, rng)
    scope = fit_scope(fit, x, logits)
    gaussians, (new, new_logits) = fit.gaussians(), draw(30, rng)
    calibration = [slow_distance(row, gaussians) for row in x]
    expected = [(1 + sum(other >= slow_distance(row, gaussians) for other in calibration)) / 100 for row in new]
    np.testing.assert_allclose(scope.p_values(new, new_logits), expected)


def test_a_rate_that_is_met_exactly_is_flagged():
    """The strangest of 99 + 1 rows has p = 1/100, and the rate is 0.01."""
    rng = np.random.default_rng(5)
    scope = fit_scope(reference(500, rng), *draw(99, rng), false_alarm=0.01)
    p = scope.p_values(np.full((1, UNITS), 1e3), np.zeros((1, CLASSES)))
    assert p == [1 / 100]
    assert scope.out_of_scope(p) == [True]
    few = fit_scope(reference(500, rng), *draw(98, rng), false_alarm=0.01)
    assert not few.out_of_scope(few.p_values(np.full((1, UNITS), 1e3), np.zeros((1, CLASSES)))).any()
    assert "no text can be flagged" in few.describe()
    assert "99 rows" in few.describe()


@pytest.mark.parametrize("false_alarm", [0.005, 0.01, 0.05, 0.29])
@pytest.mark.parametrize("rows", [99, 150])
def test_calibration_rows_in_scope_are_below_the_limit_for_new_texts(false_alarm, rows):
    """Row by row: a text just beyond this calibration row is flagged, or the row itself is the limit."""
    rng = np.random.default_rng(14)
    x, logits = draw(rows, rng)
    scope = fit_scope(reference(500, rng), x, logits, false_alarm=false_alarm)
    strange = scope.nonconformity(x, logits)
    beyond = np.array([(1 + (strange > own).sum()) / (1 + rows) for own in strange])
    np.testing.assert_array_equal(scope.inside, beyond > false_alarm)


def test_with_few_texts_for_a_class_the_energy_is_added():
    """By hand: both terms standardised on the calibration rows."""
    rng = np.random.default_rng(6)
    x, logits = draw(70, rng)
    fit = reference(19, rng)  # fewer than 5 for each of 4 classes
    scope, whole = fit_scope(fit, x, logits), fit.gaussians(by_class=False)
    assert scope.scales is not None
    distances, energies = whole.distances(x), energy(logits)
    by_hand = (distances - distances.mean()) / distances.std() + (energies - energies.mean()) / energies.std()
    np.testing.assert_allclose(scope.nonconformities, np.sort(by_hand))
    assert fit_scope(reference(20, rng), x, logits).scales is None


def test_the_energy_of_two_classes_orders_rows_as_the_largest_probability_does():
    logits = np.random.default_rng(7).standard_normal((50, 2)) * 3.0
    np.testing.assert_array_equal(np.argsort(energy(logits)), np.argsort(-softmax(logits, axis=1).max(axis=1)))
    shifted = logits + np.arange(50)[:, None]
    np.testing.assert_allclose(energy(shifted), energy(logits))
    np.testing.assert_allclose(energy(logits[:1]), -np.log(np.exp(logits[0] - logits[0].mean()).sum()))


@pytest.mark.parametrize("form", FORMS)
def test_a_scope_comes_back_whole(form):
    rng = np.random.default_rng(8)
    scope = scope_of(form, 120, rng, false_alarm=0.02)
    new, stored = draw(50, rng), again(scope)
    np.testing.assert_array_equal(stored.p_values(*new), scope.p_values(*new))
    assert stored.describe() == scope.describe()


@pytest.mark.parametrize("form, words", [
    ("reference", "2,000 reference texts"),
    ("few", "and the energy of the logits"),
    ("calibration", "can find more"),
    ("logits", "for want of representations"),
])  # fmt: skip
def test_it_says_what_it_rests_on(form, words):
    text = scope_of(form, 199, np.random.default_rng(9)).describe()
    assert words in text
    assert "0.01 false alarms by 199 calibration rows" in text


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.5])
def test_false_discoveries_by_the_step_up_procedure(rate):
    p = np.random.default_rng(10).random(100) ** 4
    ordered = np.sort(p)
    last = max(k for k in range(1, 101) if ordered[k - 1] <= rate * k / 100)
    np.testing.assert_array_equal(benjamini_hochberg(p, rate), p <= ordered[last - 1])
    assert not benjamini_hochberg(np.ones(5), rate).any()
    assert len(benjamini_hochberg([], rate)) == 0


def test_false_discoveries_are_held_for_conformal_p_values():
    """Of the rows flagged in batches with 20 % strangers, at most a tenth is in scope on average."""
    rng = np.random.default_rng(11)
    shares = []
    for _ in range(60):
        scope = scope_of("reference", 400, rng)
        batches = zip(draw(80, rng), strangers(20, rng), strict=True)
        flagged = benjamini_hochberg(scope.p_values(*(np.concatenate(pair) for pair in batches)), 0.1)
        shares.append(flagged[:80].sum() / max(1, flagged.sum()))
    assert np.mean(shares) <= 0.1 + 3 * np.std(shares) / math.sqrt(60)
    assert np.mean(shares) > 0.02


def test_the_chance_in_scope_by_integration():
    """The density out of scope averaged over its parameter by quadrature."""
    for p in (1e-4, 0.01, 0.3, 0.9, 1 - 1e-6, 1.0):
        density = quad(lambda a, p=p: a * p ** (a - 1), 0.0, 1.0)[0]
        assert chance_in_scope([p], share=0.2) == pytest.approx(0.8 / (0.8 + 0.2 * density), rel=1e-4)
    assert (np.diff(chance_in_scope(np.linspace(0.001, 1, 500))) >= 0).all()
    assert chance_in_scope([0.0]) == pytest.approx(0.0, abs=1e-12)


def test_what_cannot_be_used_is_refused():
    rng = np.random.default_rng(12)
    x, logits = draw(100, rng)
    scope = fit_scope(None, x, logits)
    for error, message, call in (
        (CalibrationError, "49 rows are too few", lambda: fit_scope(None, x[:49], logits[:49])),
        (ConfigurationError, "false_alarm=1", lambda: fit_scope(None, x, logits, false_alarm=1)),
        (InputError, "same rows", lambda: fit_scope(None, x[:99], logits)),
        (InputError, "same rows", lambda: scope.p_values(x[:99], logits)),
        (InputError, "give those of the new rows", lambda: scope.p_values(None, logits)),
        (InputError, "12", lambda: fit_scope(reference(100, rng), np.ones((100, 5)), logits)),
        (InputError, "from 0 to 1", lambda: chance_in_scope([0.5, 1.5])),
        (InputError, "NaN", lambda: scope.p_values(np.full((100, UNITS), np.nan), logits)),
    ):
        with pytest.raises(error, match=message):
            call()
    assert scope.p_values(x[:0], NO_LOGITS).shape == (0,)


# --- the Gaussians, against scikit-learn and loops


def classed(rows, units, classes, rng, *, spread=3.0):
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
    x, _ = classed(rows, units, 1, np.random.default_rng(0))
    x -= x.mean(axis=0)
    expected, alpha = oas(x, assume_centered=True)
    covariance, shrinkage = shrink(x.T @ x / rows, rows)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10)
    assert shrinkage == pytest.approx(alpha)


def test_means_and_covariance_by_loops():
    x, own = classed(300, 5, 4, np.random.default_rng(1))
    got = fitted(x, own, 4)
    residuals = np.concatenate([x[own == k] - x[own == k].mean(axis=0) for k in range(4)])
    np.testing.assert_allclose(got.means, [x[own == k].mean(axis=0) for k in range(4)])
    np.testing.assert_array_equal(got.rows, np.bincount(own))
    np.testing.assert_allclose(got.covariance, shrink(residuals.T @ residuals / 296, 296)[0], rtol=1e-9)
    whole = fitted(x, own, 4, by_class=False)
    np.testing.assert_allclose(whole.means, [x.mean(axis=0)])
    np.testing.assert_allclose(whole.covariance, shrink(np.cov(x.T), 299)[0], rtol=1e-9)


def test_batches_give_the_same():
    x, own = classed(500, 7, 3, np.random.default_rng(2))
    x[250:] += 50.0  # far from the first batch, whose mean is the origin
    whole, parts = ScopeFit(7, 3), ScopeFit(7, 3)
    whole.add(x, own)
    for start in range(0, 500, 32):
        parts.add(x[start : start + 32].astype(np.float64), own[start : start + 32])
    assert whole.rows == parts.rows == 500
    for name in ("means", "rows", "covariance"):
        np.testing.assert_allclose(getattr(parts.gaussians(), name), getattr(whole.gaussians(), name), rtol=1e-9)


def test_a_class_without_rows_is_left_out():
    x, own = classed(100, 4, 3, np.random.default_rng(3))
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
    gaussians = fitted(*classed(300, 8, 5, rng), 5)
    new, _ = classed(40, 8, 5, rng)
    np.testing.assert_allclose(gaussians.distances(new), [slow_distance(row, gaussians) for row in new], rtol=1e-8)


@pytest.mark.parametrize("rows, units, spread", [(80, 5, 3.0), (60, 90, 0.3), (80, 20, 0.0)])
def test_leaving_one_out_is_a_fit_of_the_others(rows, units, spread):
    """Means and scatter computed afresh from the others, shrinkage and mean variance held; one class has one row."""
    x, own = classed(rows, units, 6, np.random.default_rng(5), spread=spread)
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


def test_what_cannot_be_fitted_is_refused():
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
