"""Answers and their calibrator: never worse than none where rows are few, monotone, and stored exactly."""

import json

import numpy as np
import pytest

from uatlite.codec import dump, load
from uatlite.errors import InputError
from uatlite.predictive import PROBIT
from uatlite.trust.answers import CHOICES, AnswerCalibrator, Answers, losses
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
    assert set(calibrator.choices[:2] + calibrator.choices[4:6]) == {"own"}
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
    assert AnswerCalibrator.fit(*draw(60, rng)).choices[0] in CHOICES


def test_features_and_shrinkage_help_where_they_should():
    rng = np.random.default_rng(2)
    answers, right = draw(1500, rng, spread=0.0)
    length = rng.integers(1, 5, len(answers)).astype(float)
    right &= rng.random(len(answers)) < 1 / length
    plain = AnswerCalibrator.fit(answers, right)
    with_length = Answers(
        answers.text, answers.kind, answers.log_odds, answers.variance, answers.texts, length[:, None]
    )
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
        higher = Answers(answers.text, answers.kind, answers.log_odds + 1.0, answers.variance, answers.texts)
        assert (calibrator.slopes >= 0).all()
        assert (calibrator.confidence(higher) >= calibrator.confidence(answers)).all()


def test_it_is_stored_exactly_and_fits_the_same_twice():
    rng = np.random.default_rng(4)
    answers, right = draw(300, rng)
    calibrator = AnswerCalibrator.fit(answers, right)
    again = load(AnswerCalibrator, json.loads(json.dumps(dump(calibrator))), advice="")
    np.testing.assert_array_equal(again.confidence(answers), calibrator.confidence(answers))
    assert dump(AnswerCalibrator.fit(answers, right)) == dump(calibrator) == dump(again)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_handful_of_answers_is_no_fault(count):
    answers = Answers(np.arange(count), np.arange(count) % 2, np.linspace(-1, 3, count), None, 5)
    calibrator = AnswerCalibrator.fit(answers, np.arange(count) > 0)
    unseen = Answers(np.array([0]), np.array([7]), np.array([0.4]), None, 1)
    assert 0 < calibrator.confidence(unseen)[0] < 1
    if count == 0:
        assert calibrator.choices == ("none",)
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
    rows = Labelled({"log-odds": answers.log_odds}, None, answers.text, 5).of(
        np.array([True, False, False, True, True])
    )
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
        calibrator.confidence(Answers(answers.text, answers.kind, answers.log_odds, None, answers.texts))
