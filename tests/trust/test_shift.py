"""The shift check: its two tests, and false alarms at the stated rate."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest, ks_2samp, mannwhitneyu

from by_hand import again
from uatlite.errors import CalibrationError, ConfigurationError, InputError
from uatlite.trust.scope import fit_scope
from uatlite.trust.shift import Share, ShiftReport, mann_whitney, score_test, summarise, these


def draw(rows, units, rng):
    """Correlated vectors (rows, units)."""
    return rng.standard_normal((rows, units)) @ np.diag(1 / np.sqrt(1 + np.arange(units))) + 3.0


@pytest.fixture
def reference():
    return summarise(np.random.default_rng(0).random(400))


def test_like_rows_raise_no_alarm_and_shifted_ones_do(reference):
    rng = np.random.default_rng(5)
    like = reference.check(rng.random(200), rng.random(200))
    assert like.shifted is False
    assert "No shift was found" in like.describe()
    other_scores = reference.check(rng.random(200) ** 2, rng.random(200))
    assert other_scores.shifted
    assert other_scores.score_p_value < 1e-4 < other_scores.scope_p_value
    other_texts = reference.check(rng.random(200), rng.random(200) ** 4)
    assert other_texts.shifted
    assert other_texts.scope_p_value < 1e-4 < other_texts.score_p_value
    assert other_texts.out_of_scope > 0.2
    assert other_texts.median_scope < 0.2
    assert other_texts.describe().startswith("The data have shifted, and with 37% of the rows out of scope nobody can")
    assert (other_texts.level, other_scores.level, like.level) == ("red", "red", "green")
    assert "and nothing tells how right the answers are. Over these rows: p = " in other_scores.describe()


def test_rows_all_the_same_are_a_shift_too(reference):
    assert reference.check(np.random.default_rng(6).random(100), np.ones(100)).shifted


def test_rows_that_are_too_usual_are_named_so(reference):
    report = reference.check(reference.scores, np.linspace(0.6, 1.0, len(reference.scores)))
    assert report.shifted
    assert report.describe().startswith("The rows are too usual, as rows that calibrated the classifier or trained")
    strange = reference.check(reference.scores, np.linspace(0.0, 0.4, len(reference.scores)))
    assert strange.describe().startswith("The data have shifted")


def test_a_few_rows_say_nothing(reference):
    report = reference.check(np.random.default_rng(7).random(19), np.full(19, 1e-3))
    assert report.shifted is None
    judged = replace(report, over=these(19), expected=Share.expected(2.0, 50), promised=0.05)
    assert judged.level is None
    assert judged.describe() == (
        "Too few rows to tell a shift: 4.0% (1.1% to 13.5%) of 50 answers are expected to be wrong, promised at most "
        "5%. Over these 19 rows: it takes 20 rows to tell."
    )


@pytest.mark.parametrize("left_out", [True, False], ids=["as it is", "in-sample reference"])
def test_false_alarms_come_at_the_stated_rate(left_out):
    """200 pairs of like samples, stated rate 0.1; with in-sample distances nearly all would alarm."""
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(200):
        x, logits = draw(120, 60, rng), rng.normal(size=(120, 2))
        scope, reference = fit_scope(None, x, logits), summarise(rng.random(120), false_alarm=0.1)
        new, new_logits = draw(80, 60, rng), rng.normal(size=(80, 2))
        p_values = scope.p_values(new, new_logits)
        if not left_out:
            in_sample, strange = scope.nonconformity(x, logits), scope.nonconformity(new, new_logits)
            p_values = (1 + (in_sample[None] >= strange[:, None]).sum(axis=1)) / 121
        alarms += reference.check(rng.random(80), p_values).shifted
    limit = 0.1 + 3 * math.sqrt(0.1 * 0.9 / 200)
    assert (alarms / 200 <= limit) is left_out
    assert left_out or alarms > 150


def test_scores_alone_can_be_checked(reference):
    rng = np.random.default_rng(10)
    assert reference.check(rng.random(100)).shifted is False
    assert reference.check(rng.random(100) / 3).shifted


def test_a_reference_comes_back_whole(reference):
    rng = np.random.default_rng(11)
    scores, scope = rng.random(50), rng.random(50)
    assert again(reference).check(scores, scope) == reference.check(scores, scope)


def test_what_cannot_be_used_is_refused(reference):
    rng = np.random.default_rng(12)
    with pytest.raises(CalibrationError, match="49 rows are too few"):
        summarise(rng.random(49))
    with pytest.raises(ConfigurationError, match="false_alarm=1"):
        summarise(rng.random(100), false_alarm=1)
    with pytest.raises(InputError, match="for all rows"):
        reference.check(rng.random(50), rng.random(51))
    with pytest.raises(InputError, match="NaN"):
        reference.check(rng.random(50), np.full(50, np.nan))


def test_p_values_are_compared_as_the_nonconformities_would_be():
    """The same test on the nonconformities themselves. Only new rows between the same two calibration rows are tied."""
    rng = np.random.default_rng(13)
    x, new = draw(150, 10, rng), draw(90, 10, rng) + 0.1
    scope = fit_scope(None, x, x[:, :2])
    strange = scope.nonconformity(new, new[:, :2])
    expected = mannwhitneyu(strange, scope.nonconformities, alternative="two-sided", method="asymptotic").pvalue
    report = summarise(np.arange(150.0)).check(np.arange(90.0), scope.p_values(new, new[:, :2]))
    assert report.scope_p_value == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("new", "rows"), [(20, 50), (50, 20), (128, 300)])
@pytest.mark.parametrize("moved", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("digits", [1, 8])
def test_both_tests_are_scipys(new, rows, moved, digits):
    """With ties (one digit) and without, at p-values from near 1 to very small."""
    generator = np.random.default_rng(new)
    a, b = generator.normal(moved, 1, new).round(digits), generator.normal(0, 1, rows).round(digits)
    assert score_test(a, b) == pytest.approx(ks_2samp(a, b, method="exact").pvalue, rel=1e-9)
    assert mann_whitney(a, b) == pytest.approx(mannwhitneyu(a, b, method="asymptotic").pvalue, rel=1e-9)


def test_equal_samples_have_the_p_value_1():
    same = np.full(30, 0.5)
    assert score_test(same, same) == 1.0
    assert mann_whitney(same, same) == 1.0


def test_a_long_run_is_near_the_asymptotic_law():
    generator = np.random.default_rng(1)
    a, b = generator.normal(0.1, 1, 4000), generator.normal(0, 1, 300)
    assert score_test(a, b) == pytest.approx(ks_2samp(a, b, method="asymp").pvalue, rel=0.05)


@pytest.mark.parametrize(("wrong", "answers"), [(0, 40), (3, 40), (29, 1200), (40, 40)])
def test_the_interval_of_expected_errors_is_wilsons(wrong, answers):
    share, expected = Share.expected(wrong, answers), binomtest(wrong, answers).proportion_ci(method="wilson")
    assert (share.low, share.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (share.value, share.rows) == (wrong / answers, answers)


def test_the_interval_of_expected_errors_holds_what_turns_out():
    """Answers are wrong with their probabilities: the interval holds the risk of such answers, and nearly always the
    share of these that turns out wrong."""
    rng = np.random.default_rng(0)
    chances = rng.beta(0.5, 10, size=(2000, 300))
    turned_out = (rng.random(chances.shape) < chances).mean(axis=1)
    shares = [Share.expected(float(row.sum()), 300) for row in chances]
    assert np.mean([share.low <= 0.5 / 10.5 <= share.high for share in shares]) > 0.99
    held = np.mean([share.low <= out <= share.high for share, out in zip(shares, turned_out, strict=True)])
    assert 0.92 <= held <= 0.96


LEVELS = {
    "no change": ({"shifted": False}, "green", "No shift was found: 2.0% (1.3% to 3.1%) of 1,000 answers"),
    "as promised": ({}, "amber", "and the answers look as right as promised: 2.0%"),
    "nothing is promised": ({"promised": None}, "amber", "and nothing is promised about the answers: 2.0%"),
    "a few out of scope": ({"out_of_scope": 0.2}, "amber", "look as right as promised"),
    "too many": ({"out_of_scope": 0.21}, "red", "with 21% of the rows out of scope nobody can tell how right"),
    "above the promise": ({"promised": 0.01}, "red", "and more answers are expected to be wrong than promised: 2.0%"),
    "the upper end is": ({"promised": 0.03}, "red", "and the answers may be wrong more often than promised: 2.0%"),
    "no answer": ({"expected": Share.expected(0.0, 0)}, "red", "nothing tells how right the answers are: none is"),
    "no style": ({"referenced": False}, "amber", "without reference texts, so small differences of style count."),
    "few rows": ({"shifted": None, "found": "Too few rows to tell a shift"}, None, "to tell a shift: 2.0%"),
}


@pytest.mark.parametrize(("changed", "level", "said"), LEVELS.values(), ids=LEVELS)
def test_an_alarm_says_how_bad_it_is(changed, level, said):
    report = ShiftReport(1500, True, 1e-8, 0.01, 1e-8, expected=Share.expected(20.0, 1000), promised=0.05)
    found = {"found": "No shift was found"} if changed.get("shifted") is False else {}
    report = replace(report, **found, **changed, over=these(1500), evidence="p = 1e-08")
    assert report.level == level
    assert said in report.describe()
    assert "Over these 1,500 rows: p = 1e-08." in report.describe()
    assert ("promised at most" in report.describe()) is (report.promised is not None)
    assert report.as_row()["level"] == level
    assert ("style" in report.describe()) is (not report.referenced)
