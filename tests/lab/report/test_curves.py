"""The numbers behind the figures, against counts that a reader can check, and against the metrics."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from uatlite.lab.evaluate.outcomes import Outcome
from uatlite.lab.report.abstention import abstain
from uatlite.lab.report.curves import Intervals, Reliability, RiskBand, RiskCoverage, Thresholds
from uatlite.lab.report.evaluation import Evaluation
from uatlite.metrics.accuracy import accuracy
from uatlite.metrics.calibration import ece
from uatlite.metrics.intervals import METRICS
from uatlite.metrics.selective import aurc


def outcome(confidence: list[float], right: list[int]) -> Outcome:
    """Two classes: class 1 is always predicted, and it is right where `right` says so."""
    p = np.array(confidence)
    return Outcome(np.column_stack([1 - p, p]), np.array(right), None, None)


@pytest.fixture(scope="module")
def many() -> Outcome:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1.0, size=500)
    return outcome(confidence.tolist(), (generator.uniform(size=500) < confidence**2).astype(int).tolist())


def test_reliability_counts_rows_in_the_bins_of_the_ece() -> None:
    found = Reliability.of(outcome([0.55, 0.58, 0.95, 0.96, 0.97], [1, 0, 1, 1, 0]), bins=10)
    assert found.correct.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    assert found.wrong.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert found.confidence[5] == pytest.approx(0.565)
    assert found.accuracy[9] == pytest.approx(2 / 3)
    assert np.isnan(found.accuracy[0])
    exact = binomtest(2, 3).proportion_ci(0.95, method="exact")
    assert (found.low[9], found.high[9]) == pytest.approx((exact.low, exact.high))
    assert [record["correct"] for record in found.records()] == found.correct.tolist()


def test_the_gaps_that_are_drawn_sum_to_the_ece(many: Outcome) -> None:
    found = Reliability.of(many)
    count = found.correct + found.wrong
    gaps = np.nansum(count * np.abs(found.confidence - found.accuracy)) / count.sum()
    assert gaps == pytest.approx(ece(many.probabilities, many.labels))


def test_the_risk_curve_ends_at_the_error_rate_and_its_mean_is_the_aurc(many: Outcome) -> None:
    few = Outcome(many.probabilities[:150], many.labels[:150], None, None)  # no more points than a curve keeps
    coverage, risk = RiskCoverage.of({"a": few}, {}).curves["a"]
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(1 - accuracy(few.probabilities, few.labels))
    assert risk.mean() == pytest.approx(aurc(few.probabilities, few.labels))
    assert len(RiskCoverage.of({"a": many}, {}).curves["a"][0]) <= 200


def test_a_risk_is_drawn_where_it_is_promised(opened: Evaluation) -> None:
    abstention = abstain(opened)
    assert abstention is not None
    display = RiskBand(abstention.menu)
    lines = [line for line in abstention.menu.lines if line.rule is not None]
    assert display.promised == [(line.rule.coverage, line.target) for line in lines][: len(display.promised)]
    assert sum(coverage == 1 for coverage, _ in display.promised) <= 1
    records = list(display.records())
    assert all(record["low"] <= record["risk"] <= record["high"] for record in records)
    assert records[-1]["coverage"] == 1
    figure = display.draw()
    (axes,) = figure.axes
    dots = [tuple(map(float, line.get_xydata()[0])) for line in axes.lines if line.get_marker() == "o"]
    assert dots == display.promised


def test_thresholds_are_the_metrics_at_each_tau(many: Outcome) -> None:
    found = Thresholds.of({"a": many}, {})
    place = int(np.argmin(np.abs(found.taus - 0.9)))
    tau = float(found.taus[place])
    admitted = many.probabilities.max(axis=1) > tau
    assert found.coverage["a"][place] == pytest.approx(admitted.mean())
    assert found.accuracy["a"][place] == pytest.approx((many.labels == 1)[admitted].mean())
    assert found.taus[0] == 0.5
    assert "coverage@0.9" in METRICS


def test_a_threshold_that_admits_nothing_has_no_accuracy() -> None:
    found = Thresholds.of({"a": outcome([0.6, 0.7], [1, 0])}, {})
    assert found.coverage["a"][-1] == 0
    assert math.isnan(found.accuracy["a"][-1])


def test_intervals_are_those_of_the_results(opened: Evaluation) -> None:
    one = opened.results.sets[0]
    found = Intervals.of(one, "nll", {})
    score = one.scores["base+ts"]["nll"]
    records = {record["method"]: record for record in found.records()}
    assert set(records) == set(one.scores)
    assert [records["base+ts"][name] for name in ("mean", "low", "high")] == [score.mean, score.low, score.high]


def test_the_rows_that_are_drawn_are_the_rows_that_were_scored(opened: Evaluation) -> None:
    for one in opened.results.sets:
        for name, own in opened.outcomes(one.name).items():
            assert METRICS["nll"](own.probabilities, own.labels) == pytest.approx(one.scores[name]["nll"].mean)
