"""The rule by which a text stops: against slow references, and its stated confidence by simulation."""

import numpy as np
import pytest
from scipy.stats import t

from uatlite.errors import ConfigurationError
from uatlite.passes.stopping import Stopping, fit_prior
from uatlite.predictive import mean_logits, softmax

CAP = 10


def simulated(
    texts: int, classes: int, seed: int, spread: float = 1.0, freedom: float | None = None, trend: float = 0.0
):
    """Logits (CAP, texts, classes) whose means lie near the decision boundaries of many texts."""
    generator = np.random.default_rng(seed)
    means = generator.normal(scale=0.8, size=(texts, classes))
    best = np.sort(means, axis=1)
    scale = spread * np.exp(trend * (best[:, -1] - best[:, -2]) / 2)
    if freedom is not None:  # each text has a spread of its own, scaled inverse chi-squared
        scale *= np.sqrt(freedom / generator.chisquare(freedom, size=texts))
    return means + scale[:, None] * generator.normal(size=(CAP, texts, classes))


def test_the_chance_is_the_tail_of_students_t_with_the_finite_population_correction():
    logits = simulated(50, 2, 0)[:4]
    stopping = Stopping(confidence=0.9, block=4)
    assert stopping.looks(CAP) == (4, 8)
    for row, settled in enumerate(stopping.settled(logits, CAP)):
        margin = logits[:, row, 0] - logits[:, row, 1]
        error = margin.std(ddof=1) / np.sqrt(4) * np.sqrt(1 - 4 / CAP)
        assert settled == (t.sf(abs(margin.mean()) / error, 3) <= 0.1 / 2)


def test_chances_of_all_other_classes_add_up():
    logits = simulated(400, 5, 1)[:6]
    stopping = Stopping(confidence=0.95, block=3)
    expected = []
    for row in range(400):
        order = np.argsort(-logits[:, row].mean(axis=0))
        total = 0.0
        for other in order[1:]:
            margin = logits[:, row, order[0]] - logits[:, row, other]
            total += t.sf(margin.mean() / (margin.std(ddof=1) * np.sqrt((1 - 6 / CAP) / 6)), 5)
        expected.append(total <= 0.05 / 3)
    settled = stopping.settled(logits, CAP)
    assert 0 < settled.sum() < 400
    np.testing.assert_array_equal(settled, expected)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("boundary", [None, 1.5])
@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_the_decision_is_that_of_all_passes_at_the_stated_rate(classes, boundary, confidence):
    """Texts near a boundary are many here: the rate must hold for those that stopped early, not on average only."""
    logits = simulated(20_000, classes, 2)
    stopping = Stopping(confidence=confidence, boundary=boundary, temperature=1.7)
    counts = stopping.counts(logits)
    stopped = counts < CAP
    assert 0.05 < stopped.mean() < 0.95
    padded = np.where((np.arange(CAP)[:, None] < counts)[..., None], logits, np.nan)
    early, late = mean_logits(padded, counts), logits.mean(axis=0)
    same = early.argmax(axis=1) == late.argmax(axis=1)
    if boundary is not None:
        answers = [softmax(mean / 1.7).max(axis=1) > 1 / (1 + np.exp(-boundary)) for mean in (early, late)]
        same &= answers[0] == answers[1]
    assert same[stopped].mean() >= confidence
    assert same[~stopped].all()


def test_the_boundary_holds_texts_back_that_the_label_would_let_go():
    logits = simulated(500, 3, 3, spread=0.2)
    by_label, by_both = (Stopping(boundary=b).counts(logits) for b in (None, 1.0))
    assert (by_both >= by_label).all()
    assert by_both.sum() > by_label.sum()


def test_no_spread_settles_at_once_and_a_tie_never():
    same = np.repeat(np.array([[[2.0, 1.0], [1.0, 1.0]]]), CAP, axis=0)
    np.testing.assert_array_equal(Stopping().counts(same), [2, CAP])


def test_with_a_prior_the_first_pass_may_do_by_its_spread_alone():
    logits = simulated(400, 2, 6, spread=0.3)[:1]
    stopping = Stopping(confidence=0.9, block=4, spread=0.5, weight=7.0, trend=-0.8)
    assert stopping.looks(CAP) == (1, 4, 8)
    margin = np.abs(logits[0, :, 0] - logits[0, :, 1])
    error = np.sqrt(0.25 * np.exp(-0.8 * margin) * (1 - 1 / CAP))
    settled = stopping.settled(logits, CAP)
    assert 0 < settled.sum() < 400
    np.testing.assert_array_equal(settled, t.sf(margin / error, 7) <= 0.1 / 3)


def test_the_prior_and_the_passes_count_by_their_degrees_of_freedom():
    logits = simulated(400, 2, 7)[:4]
    stopping = Stopping(confidence=0.9, block=4, spread=0.5, weight=6.0, trend=0.3)
    margin = logits[..., 0] - logits[..., 1]
    mean = np.abs(margin.mean(axis=0))
    variance = (6 * 0.25 * np.exp(0.3 * mean) + 3 * margin.var(axis=0, ddof=1)) / 9
    chance = t.sf(mean / np.sqrt(variance / 4 * (1 - 4 / CAP)), 9)
    np.testing.assert_array_equal(stopping.settled(logits, CAP), chance <= 0.1 / 3)


@pytest.mark.parametrize("trend", [0.0, -0.6, 0.4])
def test_a_learned_prior_is_right_and_saves_passes_at_the_same_rate(trend):
    logits = simulated(20_000, 2, 4, spread=0.4, freedom=6.0, trend=trend)
    spread, weight, found = fit_prior(logits)
    # the margin of two logits has √2 times their spread; its size is known up to the noise of ten passes
    assert spread == pytest.approx(0.4 * np.sqrt(2), rel=0.05)
    assert weight == pytest.approx(6.0, rel=0.2)
    assert found == pytest.approx(trend, abs=0.05)
    plain, learned = Stopping(), Stopping(spread=spread, weight=weight, trend=found)
    fewer, more = learned.counts(logits), plain.counts(logits)
    assert fewer.mean() < more.mean() - 0.3
    padded = np.where((np.arange(CAP)[:, None] < fewer)[..., None], logits, np.nan)
    same = mean_logits(padded, fewer).argmax(axis=1) == logits.mean(axis=0).argmax(axis=1)
    assert same[fewer < CAP].mean() >= 0.99


def test_a_prior_of_texts_that_are_all_alike_do_not_vary_or_are_few():
    assert fit_prior(simulated(5_000, 2, 5, spread=0.3))[1] > 40
    assert fit_prior(np.ones((CAP, 70, 2))) == (0.0, 0.0, 0.0)
    assert fit_prior(simulated(9, 2, 5)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("wrong", [{"confidence": 1.0}, {"confidence": 0.2}, {"block": 1}, {"temperature": 0.0}])
def test_what_is_not_allowed(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Stopping(**wrong)
