"""The interval of the current risk: exact for plain samples, and what follows from it."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from uatlite.errors import InputError
from uatlite.trust.binomial import clopper_pearson
from uatlite.trust.risk_interval import risk_interval


def errors(count, rows):
    return np.arange(rows) < count


@pytest.mark.parametrize(("count", "rows"), [(0, 30), (3, 80), (40, 80), (30, 30), (1, 1)])
def test_a_plain_sample_has_the_exact_interval_of_scipy(count, rows):
    found = risk_interval(errors(count, rows), confidence=0.9)
    reference = binomtest(count, rows).proportion_ci(0.9, method="exact")
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=1e-9)
    assert found.risk == count / rows


def test_equal_probabilities_are_a_plain_sample_and_certain_rows_are_known():
    plain = risk_interval(errors(3, 80))
    assert risk_interval(errors(3, 80), np.full(80, 0.04)) == plain
    # 80 of 400 answers, and 100 more of which each was labelled: 10 are wrong
    both = risk_interval(np.append(errors(3, 80), errors(10, 100)), np.append(np.full(80, 0.2), np.ones(100)))
    assert both.risk == pytest.approx((3 * 5 + 10) / 500)
    assert both.low == pytest.approx((400 * plain.low + 10) / 500)
    assert both.high == pytest.approx((400 * plain.high + 10) / 500)
    everything = risk_interval(errors(10, 100), np.ones(100))
    assert (everything.low, everything.risk, everything.high) == pytest.approx((0.1, 0.1, 0.1))


def test_verdicts_and_how_many_labels_would_tell():
    assert risk_interval(errors(0, 100)).verdict(0.05) == "holds"
    assert risk_interval(errors(20, 100)).verdict(0.05) == "broken"
    open_ = risk_interval(errors(7, 100))
    assert open_.verdict(0.05) == "cannot tell yet"
    assert open_.labels_needed(0.05).low > 100
    assert (risk_interval(errors(0, 20)).labels_needed(0.05).low or 0) >= 72  # without an error it takes 72 answers
    assert "cannot be told from 20 answers" in risk_interval(errors(0, 20)).labels_needed(0.05).describe()


@pytest.mark.parametrize("wrong, rows", [(7, 100), (5, 100), (22, 300)])
def test_the_labels_needed_hold_the_number_that_tells(wrong, rows):
    """The risk is drawn from what the answers say of it, and they are continued until it can be told."""
    rng, found = np.random.default_rng(wrong), []
    needed = risk_interval(errors(wrong, rows)).labels_needed(0.05)
    sizes = np.ceil(rows * 1.1 ** np.arange(1, 60)).astype(int)
    for _ in range(200):
        risk = rng.beta(wrong + 0.5, rows - wrong + 0.5)
        counts = wrong + np.cumsum(rng.binomial(np.diff(np.append(rows, sizes)), risk))
        low, high = clopper_pearson(counts, sizes, 0.95)
        told = (high <= 0.05) | (low > 0.05)
        found.append(sizes[told.argmax()] if told.any() else np.inf)
    assert np.mean(np.array(found) <= needed.high) > 0.85
    assert np.mean(np.array(found) >= 0.8 * needed.low) > 0.75


def test_what_cannot_be_used_is_refused():
    with pytest.raises(InputError, match="at least one"):
        risk_interval(np.zeros(0, dtype=bool))
    with pytest.raises(InputError, match=r"from 0 to 0\.5"):
        risk_interval(errors(1, 2), [0.0, 0.5])
    with pytest.raises(InputError, match="2 errors came with 3"):
        risk_interval(errors(1, 2), [0.5, 0.5, 0.5])
    with pytest.raises(InputError, match="drawn with 2 different probabilities below 1; give rows of one pick"):
        risk_interval(errors(1, 3), [0.4, 0.5, 1.0])
    with pytest.raises(InputError, match="type int"):
        risk_interval([0, 1])


@pytest.mark.parametrize("together", [0.0, 1.0], ids=["independent", "wrong together"])
def test_of_texts_with_several_answers_the_interval_holds_the_risk_as_often_as_it_says(together):
    """Up to four answers a text, one in eight wrong; 120 samples of 150 texts at the confidence 0.8."""
    missed, widths = 0, []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, 5, 150)
        clumped = counts * (rng.random(150) < 0.125)
        wrong = np.where(rng.random(150) < together, clumped, rng.binomial(counts, 0.125))
        interval = risk_interval(wrong, counts=counts, most=4, confidence=0.8)
        missed += not interval.low <= 0.125 <= interval.high
        widths.append(interval.high - interval.low)
        assert interval.low <= interval.risk <= interval.high
    assert missed <= binom.ppf(0.999, 120, 0.2)
    assert np.mean(widths) < 0.12


def test_texts_that_were_all_labelled_are_certain_also_with_several_answers():
    counts, wrong = np.array([2.0, 0.0, 3.0, 1.0]), np.array([1.0, 0.0, 0.0, 1.0])
    certain = risk_interval(wrong, np.ones(4), counts=counts, most=3)
    assert (certain.rows, certain.errors) == (6, 2)
    assert (certain.low, certain.risk, certain.high) == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_a_few_texts_without_an_error_do_not_keep_a_promise():
    few, many = (risk_interval(np.zeros(n), counts=np.full(n, 2), most=2) for n in (8, 400))
    assert (few.risk, few.low, few.verdict(0.1)) == (0.0, 0.0, "cannot tell yet")
    assert many.verdict(0.1) == "holds"
