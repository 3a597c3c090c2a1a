"""Resampling: counts mean repeated rows, draws are fixed by the seed, intervals are what they say."""

import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError
from uatlite.metrics import METRICS, Interval, Resampling, Rows, accuracy, debiased_ece, ece, fpr95, intervals, nll
from uatlite.metrics.accuracy import DETECTION, check_detection
from uatlite.metrics.intervals import detection_estimates, draw_counts, metric_estimates, shift_estimates


def bootstrap(probabilities, labels, *, metrics=METRICS, **how):
    return intervals(metric_estimates(Rows.of(probabilities, labels), metrics), Resampling(**how))


def paired_bootstrap(a, b, labels, *, metrics=METRICS, **how):
    first, second = (metric_estimates(Rows.of(probabilities, labels), metrics) for probabilities in (a, b))
    return intervals(first - second, Resampling(**how))


def redrawn(value, *cases, times, seed):
    """The 2.5 % and 97.5 % quantiles of a value over resamples that are drawn row by row, each case by itself."""
    generator, values = np.random.default_rng(seed), []
    for _ in range(times):
        drawn = [generator.integers(len(case[-1]), size=len(case[-1])) for case in cases]
        values.append(value(*([part[i] for part in case] for case, i in zip(cases, drawn, strict=True))))
    return np.quantile(values, [0.025, 0.975])


CONFIDENCES = [0.4, 0.5, 0.6, 2 / 3, 0.8, 1.0]


@st.composite
def rows_and_counts(draw):
    """A few rows with many ties, and two vectors of counts that repeat or drop them."""
    size = draw(st.integers(1, 12))
    confidence = np.array(draw(st.lists(st.sampled_from(CONFIDENCES), min_size=size, max_size=size)))
    classes = np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    labels = np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    probabilities = np.repeat((1 - confidence)[:, None] / 2, 3, axis=1)
    probabilities[np.arange(size), classes] = confidence
    one = st.lists(st.integers(0, 4), min_size=size, max_size=size).filter(any)
    return probabilities, labels, np.array([draw(one), draw(one)])


@pytest.mark.parametrize("name", METRICS)
@settings(max_examples=40, deadline=None)
@given(drawn=rows_and_counts())
def test_counting_a_row_is_repeating_it(name, drawn):
    probabilities, labels, counts = drawn
    values = METRICS[name].values(Rows.of(probabilities, labels), counts.astype(float))
    for count, value in zip(counts, values, strict=True):
        repeated = METRICS[name](np.repeat(probabilities, count, axis=0), np.repeat(labels, count))
        # The standard errors inside debiased_ece are roots of differences that rounding leaves at 1e-17.
        assert value == pytest.approx(repeated, abs=1e-7 if name == "debiased_ece" else 1e-11, nan_ok=True)


@pytest.mark.parametrize("name", DETECTION)
@given(drawn=rows_and_counts())
def test_counting_a_row_is_repeating_it_in_detection(name, drawn):
    probabilities, labels, counts = drawn
    scores, positives = probabilities[:, 0], labels > 0
    values = DETECTION[name](*check_detection(scores, positives), counts.astype(float))
    for count, value in zip(counts, values, strict=True):
        ranking, found = check_detection(np.repeat(scores, count), np.repeat(positives, count))
        repeated = DETECTION[name](ranking, found, np.ones((1, len(found))))[0]
        assert value == pytest.approx(repeated, abs=1e-12, nan_ok=True)


def test_the_interval_is_that_of_resampled_rows(smooth_case):
    names = ["accuracy", "nll", "aurc", "macro_f1", "ece", "debiased_ece"]
    for name, interval in bootstrap(*smooth_case, metrics=names, resamples=200, seed=5).items():
        metric = METRICS[name]
        low, high = redrawn(lambda rows, metric=metric: metric(*rows), smooth_case, times=200, seed=5)
        if name in ("ece", "debiased_ece"):
            centre = metric(*smooth_case) + ece(*smooth_case)
            low, high = max(0, centre - high), centre - low
        assert interval.point == metric(*smooth_case)
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-9)


def test_every_metric_has_an_interval_on_every_case(case):
    found = bootstrap(*case, resamples=20)
    assert list(found) == list(METRICS)
    for name, interval in found.items():
        assert interval.point == pytest.approx(METRICS[name](*case), nan_ok=True)
        assert np.isnan(interval.low) or 0 <= interval.low <= interval.high


def test_undefined_resamples_are_counted():
    # One row of ten is confident: about (9/10)^10 = 35 % of the resamples do not draw it.
    confidence = np.append(np.full(9, 0.6), 0.95)
    probabilities, labels = np.column_stack([confidence, 1 - confidence]), np.zeros(10, dtype=int)
    interval = bootstrap(probabilities, labels, metrics=["accuracy@0.9"], resamples=1000)["accuracy@0.9"]
    assert (interval.point, interval.low, interval.high) == (1, 1, 1)
    assert interval.undefined == pytest.approx(0.9**10, abs=0.05)
    nowhere = bootstrap(probabilities[:9], labels[:9], metrics=["accuracy@0.9"], resamples=50)["accuracy@0.9"]
    assert np.isnan([nowhere.point, nowhere.low, nowhere.high]).all()
    assert nowhere.undefined == 1
    assert not nowhere.excludes(0)


def test_the_paired_difference_sees_the_same_resamples(smooth_case):
    probabilities, labels = smooth_case
    same = paired_bootstrap(probabilities, probabilities, labels, resamples=50)
    assert all(interval.low == interval.high == 0 for name, interval in same.items() if interval.undefined == 0)

    softened = probabilities**0.5 / (probabilities**0.5).sum(axis=1, keepdims=True)
    found = paired_bootstrap(softened, probabilities, labels, metrics=["nll", "accuracy"], resamples=300)
    assert found["nll"].point == pytest.approx(nll(softened, labels) - nll(probabilities, labels))
    assert found["nll"].high < 0
    assert found["nll"].excludes(0)
    assert found["accuracy"] == Interval(0, 0, 0)
    assert not found["accuracy"].excludes(0)
    apart = [bootstrap(p, labels, metrics=["nll"], resamples=300)["nll"] for p in (softened, probabilities)]
    assert found["nll"].high - found["nll"].low < sum(i.high - i.low for i in apart) / 2


def test_a_paired_difference_is_that_of_resampled_rows(smooth_case):
    a, labels = smooth_case
    b = a[:, [1, 0, 2, 3]]
    limits = redrawn(lambda r: accuracy(r[0], r[2]) - accuracy(r[1], r[2]), (a, b, labels), times=100, seed=2)
    found = paired_bootstrap(a, b, labels, metrics=["accuracy"], resamples=100, seed=2)["accuracy"]
    assert (found.low, found.high) == pytest.approx(tuple(limits), abs=1e-12)


def test_shifted_sets_are_resampled_by_themselves(smooth_case, tied_case):
    found = intervals(shift_estimates(Rows.of(*smooth_case), Rows.of(*tied_case)), Resampling(100, seed=3))
    assert set(found) == {"delta_ece", "robustness_score"}
    point = ece(*tied_case) - ece(*smooth_case)
    assert found["delta_ece"].point == pytest.approx(point)
    assert found["robustness_score"].point == pytest.approx((ece(*tied_case) + ece(*smooth_case)) / 2)
    low, high = redrawn(lambda home, away: ece(*away) - ece(*home), smooth_case, tied_case, times=100, seed=3)
    expected = (2 * point - high, 2 * point - low)
    assert (found["delta_ece"].low, found["delta_ece"].high) == pytest.approx(expected, abs=1e-9)


def test_detection_has_intervals():
    generator = np.random.default_rng(0)
    positives = generator.random(200) < 0.3
    scores = generator.normal(size=200) + 2 * positives
    found = intervals(detection_estimates(scores, positives), Resampling(200))
    assert set(found) == set(DETECTION)
    assert found["fpr95"].point == fpr95(scores, positives)
    assert all(0 <= i.low <= i.point <= i.high <= 1 for i in found.values())


def test_the_seed_decides_and_the_chunk_does_not(smooth_case, monkeypatch):
    def found(seed):
        return bootstrap(*smooth_case, metrics=["nll", "aurc"], resamples=40, seed=seed)

    whole = found(0)
    assert found(0) == whole
    assert found(1) != whole
    monkeypatch.setattr(sys.modules[draw_counts.__module__], "CHUNK", 7 * len(smooth_case[1]))
    for name, interval in found(0).items():
        assert (interval.low, interval.high) == pytest.approx((whole[name].low, whole[name].high), abs=1e-12)


def test_draws_are_as_many_as_rows_in_each_stratum():
    counts = np.concatenate(list(draw_counts((30, 50), 200, seed=0)))
    assert counts.shape == (200, 80)
    assert (counts[:, :30].sum(axis=1) == 30).all()
    assert (counts[:, 30:].sum(axis=1) == 50).all()
    # Poisson-like with mean 1: the share of rows not drawn is near 1/e.
    assert (counts == 0).mean() == pytest.approx(np.exp(-1), abs=0.02)


def test_memory_stays_in_bounds_for_many_resamples():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(2), size=20_000)
    labels = generator.integers(2, size=20_000)
    tracemalloc.start()
    bootstrap(probabilities, labels, metrics=["accuracy", "aurc"], resamples=300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 * 20_000 * 8 * 4  # one array of all counts is 48 MB; a chunk needs about ten of 16 MB


def test_a_pivotal_interval_may_lie_below_a_biased_point():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(3), size=500)
    labels = (probabilities.cumsum(axis=1) < generator.random((500, 1))).sum(axis=1)
    found = bootstrap(probabilities, labels, metrics=["ece", "debiased_ece"])
    assert found["ece"].high < 2 * found["ece"].point
    assert found["debiased_ece"].point == debiased_ece(probabilities, labels) < found["ece"].point
    assert found["debiased_ece"].low == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"resamples": 0}, "resamples=0 is not allowed"),
        ({"confidence": 95}, "confidence=95 is not between 0 and 1"),
        ({"metrics": ["eec"]}, "metric='eec' is not one of.*Did you mean 'ece'"),
        ({"metrics": "ece"}, r"metrics='ece' is one string; allowed is a list of names, \['ece'\]"),
    ],
)
def test_bad_settings_are_refused(setting, message):
    with pytest.raises(ConfigurationError, match=message):
        bootstrap([[0.5, 0.5]], [0], **setting)


def test_metrics_of_ones_own_can_be_given(smooth_case):
    found = bootstrap(*smooth_case, metrics={"ece of 10 bins": ece.bind(bins=10)}, resamples=10)
    assert found["ece of 10 bins"].point == ece(*smooth_case, bins=10)
