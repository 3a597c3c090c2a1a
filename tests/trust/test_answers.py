"""Answers and their calibrator: never worse than none where rows are few, monotone, and stored exactly; the shrunk
logistic regression against a slow minimiser and scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from by_hand import again
from uatlite.codec import dump
from uatlite.errors import InputError
from uatlite.predictive import PROBIT
from uatlite.trust.answers import AnswerCalibrator, Answers, RegressionRows, Shrunk, losses
from uatlite.trust.planners import TextScores
from uatlite.trust.promise import Labelled


def draw(texts, rng, kinds=6, rare=1.0, sharpness=1.6, spread=0.6, widening=0.0):
    """Answers whose log-odds are `sharpness` times too high, with biases a kind; kind 0 is `rare`."""
    counts = rng.poisson(1.5, texts)
    text = np.repeat(np.arange(texts), counts)
    chances = np.append(rare, np.ones(kinds - 1))
    kind = rng.choice(kinds, len(text), p=chances / chances.sum())
    true, variance = rng.normal(1.0, 1.8, len(text)), rng.gamma(2.0, 1.0, len(text))
    biases = np.linspace(-spread, spread, kinds)
    right = rng.random(len(text)) < 1 / (1 + np.exp(-true))
    log_odds = sharpness * np.sqrt(1 + widening * PROBIT * variance) * (true - biases[kind])
    return Answers(text, kind, log_odds, variance, texts), right


def nll(confidence, right):
    return -np.log(np.where(right, confidence, 1 - confidence)).mean()


def test_it_learns_the_slope_the_biases_and_the_widening():
    rng = np.random.default_rng(0)
    calibrator = AnswerCalibrator.fit(*draw(4000, rng, widening=1.0))
    np.testing.assert_allclose(calibrator.slopes[:-1], 1 / 1.6, atol=0.12)
    np.testing.assert_allclose(calibrator.biases[:-1], np.linspace(-0.6, 0.6, 6), atol=0.25)
    assert 0.4 < calibrator.widenings[0] < 2.5


@pytest.mark.parametrize("spread", [0.0, 0.8], ids=["kinds alike", "kinds differ"])
@pytest.mark.parametrize("sharpness", [1.0, 2.5], ids=["calibrated", "too sure"])
def test_no_kind_is_worse_than_without_a_calibrator(sharpness, spread):
    """In held-out NLL, over 25 samples of 150 texts, of which about 5 answers are of kind 0."""
    rng = np.random.default_rng(5)
    test, right = draw(20_000, rng, rare=0.1, sharpness=sharpness, spread=spread)
    plain = losses(test.log_odds, right)
    ours = np.mean(
        [
            -np.log(np.where(right, p := AnswerCalibrator.fit(*sample).confidence(test), 1 - p))
            for sample in (draw(150, rng, rare=0.1, sharpness=sharpness, spread=spread) for _ in range(25))
        ],
        axis=0,
    )
    for kind in range(6):
        of_kind = test.kind == kind
        assert ours[of_kind].mean() < plain[of_kind].mean() + 0.012
    if sharpness > 1:
        assert ours.mean() < plain.mean() - 0.1


def test_features_and_shrinkage_help_where_they_should():
    rng = np.random.default_rng(2)
    answers, right = draw(1500, rng, spread=0.0)
    length = rng.integers(1, 5, len(answers)).astype(float)
    right &= rng.random(len(answers)) < 1 / length
    plain = AnswerCalibrator.fit(answers, right)
    with_length = replace(answers, features=length[:, None])
    better = AnswerCalibrator.fit(with_length, right)
    assert (better.weights[:, 0] < -0.3).all()
    assert nll(better.confidence(with_length), right) < nll(plain.confidence(answers), right) - 0.02
    with pytest.raises(InputError, match="1 features, the calibrator was fitted on 0"):
        plain.confidence(with_length)


def test_confidence_rises_with_the_log_odds_also_where_they_mislead():
    rng = np.random.default_rng(3)
    answers, right = draw(400, rng)
    for labels in (right, ~right):
        calibrator = AnswerCalibrator.fit(answers, labels)
        higher = replace(answers, log_odds=answers.log_odds + 1.0)
        assert (calibrator.slopes >= 0).all()
        assert (calibrator.confidence(higher) >= calibrator.confidence(answers)).all()


def test_it_is_stored_exactly_and_fits_the_same_twice():
    rng = np.random.default_rng(4)
    answers, right = draw(300, rng)
    calibrator = AnswerCalibrator.fit(answers, right)
    stored = again(calibrator)
    np.testing.assert_array_equal(stored.confidence(answers), calibrator.confidence(answers))
    assert dump(AnswerCalibrator.fit(answers, right)) == dump(calibrator) == dump(stored)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_handful_of_answers_is_no_fault(count):
    answers = Answers(np.arange(count), np.arange(count) % 2, np.linspace(-1, 3, count), None, 5)
    calibrator = AnswerCalibrator.fit(answers, np.arange(count) > 0)
    unseen = Answers(np.array([0]), np.array([7]), np.array([0.4]), None, 1)
    assert 0 < calibrator.confidence(unseen)[0] < 1
    if count == 0:
        assert calibrator.confidence(unseen)[0] == pytest.approx(1 / (1 + np.exp(-0.4)))


def test_answers_that_are_all_right_are_not_called_certain():
    rng = np.random.default_rng(6)
    answers, _ = draw(100, rng)
    confidence = AnswerCalibrator.fit(answers, np.ones(len(answers), dtype=bool)).confidence(answers)
    assert confidence.max() < 1


def test_of_texts_numbers_the_chosen_texts_anew():
    answers = Answers(np.array([0, 0, 2, 3]), np.arange(4), np.arange(4.0), np.arange(4.0), 5, np.arange(4.0)[:, None])
    part = answers.of_texts(np.array([False, True, True, True, False]))
    assert (part.text.tolist(), part.texts, part.counts.tolist()) == ([1, 2], 3, [0, 1, 1])
    assert part.log_odds.tolist() == part.variance.tolist() == part.features[:, 0].tolist() == [2.0, 3.0]
    chosen = np.array([True, False, False, True, True])
    rows = Labelled({"log-odds": answers.log_odds}, None, answers.text, 5).of(chosen)
    assert (rows.text.tolist(), rows.size, rows.scores["log-odds"].tolist()) == ([0, 0, 1], 3, [0.0, 1.0, 3.0])


def test_ranks_and_tallies_count_the_surest_of_each_text():
    scores = TextScores(np.array([0.2, 0.9, 0.9, 0.5]), np.array([0, 0, 0, 2]), 3)
    assert scores.ranks.tolist() == [2, 0, 1, 0]
    assert scores.tally(scores.shown(0.1, 2)).tolist() == [2, 0, 1]
    assert scores.tally(scores.shown(0.6, 5)).tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"text": np.array([1, 0])}, "not ascending"),
        ({"text": np.array([0, 2])}, "allowed are 0 to 1"),
        ({"kind": np.array([0])}, "kind has 1 entries for 2 answers"),
        ({"log_odds": np.array([0.0, np.nan])}, "finite"),
        ({"text": np.array([0.0, 1.0])}, "float64"),
    ],
)
def test_answers_that_cannot_be_are_refused(change, message):
    given = {"text": np.array([0, 1]), "kind": np.array([0, 0]), "log_odds": np.zeros(2), "variance": None, "texts": 2}
    with pytest.raises(InputError, match=message):
        Answers(**{**given, **change})


def test_what_is_missing_is_said():
    answers, right = draw(300, np.random.default_rng(7), widening=3.0)
    with pytest.raises(InputError, match="allowed is bool"):
        AnswerCalibrator.fit(answers, right.astype(int))
    calibrator = AnswerCalibrator.fit(answers, right)
    assert calibrator.widenings.any()
    with pytest.raises(InputError, match="variance of the log-odds"):
        calibrator.confidence(replace(answers, variance=None))


# --- the shrunk regression


def regression(rows, kinds, seed, sign=1.0):
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
    rows, kinds = regression(120, 3, 0, sign), 3
    found = Shrunk.fit(rows, kinds=kinds, strength=0.4, prior=3.0, identity=1.2)
    start = np.concatenate([np.ones(kinds), np.zeros(kinds), np.zeros(2), [1.0, 0.0]])
    bounds = [(0, None)] * kinds + [(None, None)] * (kinds + 4)
    slow = minimize(slow_objective, start, args=(rows, kinds, 0.4, 3.0, 1.2), method="L-BFGS-B", bounds=bounds,
                    options={"ftol": 1e-14, "gtol": 1e-8, "maxfun": 100_000})  # fmt: skip
    shared = [found.slopes[-1], found.biases[-1]]
    theta = np.concatenate([found.slopes[:-1], found.biases[:-1], found.weights, shared])
    np.testing.assert_allclose(theta, slow.x, atol=2e-3)
    assert slow_objective(theta, rows, kinds, 0.4, 3.0, 1.2) <= slow.fun + 1e-7
    assert (found.slopes == 0).any() == (sign < 0)


def test_without_kinds_it_is_the_logistic_regression_of_scikit_learn():
    rows = regression(800, 1, 1)
    found = Shrunk.fit(rows, kinds=1, strength=0.0, prior=1e6, identity=1.0)
    columns = np.column_stack([rows.x, rows.columns])
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(columns, rows.right)
    np.testing.assert_allclose([found.slopes[-1], *found.weights], reference.coef_[0], atol=1e-5)
    assert found.biases[-1] == pytest.approx(reference.intercept_[0], abs=1e-5)
    np.testing.assert_allclose(
        np.exp(-found.losses(rows)), reference.predict_proba(columns)[np.arange(800), rows.right.astype(int)], atol=1e-5
    )


def test_kinds_without_rows_have_the_shared_parameters_and_separable_rows_stay_finite():
    rows = regression(200, 2, 3)
    found = Shrunk.fit(rows, kinds=5, strength=0.5, prior=5.0, identity=1.0)
    np.testing.assert_allclose(found.slopes[2:], found.slopes[-1], atol=1e-9)
    np.testing.assert_allclose(found.biases[2:], found.biases[-1], atol=1e-9)
    separable = RegressionRows(rows.x, rows.columns[:, :0], rows.kind, rows.x > 0)
    assert 1 < Shrunk.fit(separable, kinds=2, strength=0.5, prior=5.0, identity=1.0).slopes[-1] < 100
    nothing = RegressionRows(np.zeros(0), np.zeros((0, 0)), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool))
    assert Shrunk.fit(nothing, kinds=2, strength=0.5, prior=5.0, identity=1.3).slopes.tolist() == [1.3] * 3


def test_losses_are_exact_where_probabilities_round_to_one():
    np.testing.assert_allclose(losses(np.array([800.0, -800.0]), np.array([False, True])), 800.0)
