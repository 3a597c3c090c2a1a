"""The bet with texts as the unit: against a slow one, fair in every world, nested in its level, and as strong as the
exact binomial test where that exists."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import gammaincc, gammaln
from scipy.stats import binom

from uatlite.trust.bets import OWN_ERRORS, OWN_TEXTS, Game, stakes_of, won


def exact_stake(money, mean):
    """P(Poisson(mean) = x) where P(Poisson(mean) ≤ x) = money, with a continuous x."""
    x = brentq(lambda x: gammaincc(x + 1, mean) - money, -1 + 1e-12, 10 * mean + 50, xtol=1e-12)
    return np.exp(x * np.log(mean) - mean - gammaln(x + 1))


def slow(counts, errors, target, levels, loss, gain, mean, clump):
    """One hypothesis, text by text; returns the money of each level at the end."""
    money = list(levels)
    seen, answers, wrong, square = OWN_TEXTS, OWN_TEXTS * mean, OWN_ERRORS, OWN_ERRORS * clump
    for place, (n, w) in enumerate(zip(counts, errors, strict=True)):
        if n == 0:
            continue
        left = sum(count > 0 for count in counts[place:])
        jump = (1 - target) * square / wrong
        below, stake_below, after = 0.0, 0.0, []
        for v in money:
            stake = float(stakes_of(np.array([v]), np.array([target * answers / seen * left / jump]))[0]) / jump
            stake = min(max(stake, stake_below - (v - below) / gain), stake_below + (v - below) / loss)
            stake = 0.0 if v >= 1 else max(stake, 0.0)
            after.append(v - stake * (w - target * n))
            below, stake_below = v, stake
        money = after
        seen, answers, wrong, square = seen + 1, answers + n, wrong + w, square + w * w
    return money


def play(counts, errors, target, levels, most, mean=1.5, clump=1.2):
    """`won` for one hypothesis on texts with at most `most` answers, (levels,)."""
    n, w = (np.asarray(values, dtype=float)[:, None] for values in (counts, errors))
    return won(n, w, target, np.array([levels]), Game(most * (1 - target), most * target, mean, clump))[0]


def texts(rng, shape, most, risk, clumped):
    """Counts from 0 to `most` and errors, `shape` each; a text's answers are all right or all wrong where clumped."""
    counts = rng.integers(0, most + 1, shape)
    together = rng.random(shape) < clumped
    return counts, np.where(together, counts * (rng.random(shape) < risk), rng.binomial(counts, risk))


@pytest.mark.parametrize("mean", [0.05, 1.0, 12.0, 300.0])
@pytest.mark.parametrize("money", [0.002, 0.05, 0.4, 0.97])
def test_the_table_has_the_stakes_of_a_poisson_test(money, mean):
    found = float(stakes_of(np.array([money]), np.array([mean]))[0])
    assert found == pytest.approx(exact_stake(money, mean), rel=0.02)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 5), st.sampled_from([0.05, 0.2, 0.5]))
def test_it_is_the_slow_bet_and_more_level_never_loses(seed, rows, most, target):
    rng = np.random.default_rng(seed)
    counts, errors = texts(rng, rows, most, target / 3, 0.5)
    levels = np.sort(rng.choice([0.01, 0.05, 0.1, 0.3, 0.6, 0.9], 3, replace=False))
    found = play(counts, errors, target, levels, most)
    money = np.array(
        slow(counts.tolist(), errors.tolist(), target, levels, most * (1 - target), most * target, 1.5, 1.2)
    )
    assert (money >= -1e-15).all()  # the reference rounds; money is in units of 1
    np.testing.assert_array_equal(found, money >= 1)
    assert (np.diff(found.astype(int)) >= 0).all()


@pytest.mark.parametrize("level", [0.2, 0.5])
@pytest.mark.parametrize(
    "chances", [{(1, 1): 0.25, (1, 0): 0.5, (0, 0): 0.25}, {(2, 2): 0.3, (2, 0): 0.5, (1, 0): 0.2}]
)
def test_a_fair_game_is_won_with_at_most_the_level_by_adding_up_every_outcome(level, chances):
    """Four texts, each one of three outcomes, at the target that is just broken: E[W] = target·E[N]."""
    expected = [sum(chance * outcome[i] for outcome, chance in chances.items()) for i in (0, 1)]
    target, most = expected[1] / expected[0], max(n for n, _ in chances)
    chance_won = 0.0
    for outcomes in itertools.product(chances, repeat=4):
        counts, errors = zip(*outcomes, strict=True)
        if play(counts, errors, target, [level], most)[0]:
            chance_won += np.prod([chances[outcome] for outcome in outcomes])
    assert chance_won <= level


@pytest.mark.parametrize("clumped", [0.0, 0.5, 1.0], ids=["independent", "half together", "all together"])
@pytest.mark.parametrize("most, target", [(2, 0.1), (6, 0.2), (3, 0.4)])
def test_it_is_won_with_at_most_the_level_where_the_target_is_just_broken(most, target, clumped):
    rng, worlds, level = np.random.default_rng(0), 3000, 0.1
    counts, errors = texts(rng, (150, worlds), most, target, clumped)
    game = Game(most * (1 - target), most * target, counts[counts > 0].mean())
    found = won(counts.astype(float), errors.astype(float), target, np.full((worlds, 1), level), game)
    assert found.mean() <= level + 3 * np.sqrt(level * (1 - level) / worlds)
    assert found.mean() > 0.005  # a test that is never won would be fair too


def test_with_one_answer_a_text_it_is_nearly_the_exact_binomial_test():
    rng, worlds = np.random.default_rng(1), 1500
    errors = (rng.random((300, worlds)) < 0.06).astype(float)
    found = won(np.ones_like(errors), errors, 0.1, np.full((worlds, 1), 0.05), Game(0.9, 0.1))[:, 0]
    exact = binom.cdf(errors.sum(axis=0), 300, 0.1) <= 0.05
    assert (found == exact).mean() > 0.95
    assert found.mean() > exact.mean() - 0.02
