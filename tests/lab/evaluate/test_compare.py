"""Comparing contenders: means over seeds, paired intervals, and the mark of the best."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from uatlite.lab.evaluate.compare import Resampling, Score, compare
from uatlite.metrics.bootstrap import METRICS, Estimate, bootstrap, metric_estimates, paired_bootstrap
from uatlite.metrics.ranking import Rows

ROWS = 300
Floats = NDArray[np.float64]


def simulate(skill: float, seed: int, labels: NDArray[np.int64]) -> Floats:
    """Probabilities of three classes that lean to the right one by `skill`."""
    logits = np.random.default_rng(seed).normal(size=(ROWS, 3)) + skill * np.eye(3)[labels]
    return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


@pytest.fixture
def labels() -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(3, size=ROWS)


def estimates(seeds: list[Floats], labels: NDArray[np.int64], metrics: tuple[str, ...]) -> list[dict[str, Estimate]]:
    return [metric_estimates(Rows.of(probabilities, labels), metrics) for probabilities in seeds]


METRIC = ("accuracy", "nll", "ece")
BETTER = {"accuracy": "higher", "nll": "lower", "ece": "lower"}


def test_one_seed_is_the_plain_and_the_paired_bootstrap(labels: NDArray[np.int64]) -> None:
    a, b = simulate(1.0, 1, labels), simulate(2.0, 2, labels)
    runs = {"a": estimates([a], labels, METRIC), "b": estimates([b], labels, METRIC)}
    scores = compare(runs, BETTER, (ROWS,), Resampling(200))  # type: ignore[arg-type]
    for name, probabilities in (("a", a), ("b", b)):
        plain = bootstrap(probabilities, labels, metrics=METRIC, resamples=200)
        for metric in METRIC:
            score = scores[name][metric]
            assert (score.mean, score.low, score.high) == (plain[metric].point, plain[metric].low, plain[metric].high)
            assert score.deviation is None
    paired = paired_bootstrap(b, a, labels, metrics=METRIC, resamples=200)
    assert {metric: scores["b"][metric].differences["a"] for metric in METRIC} == paired
    for metric in METRIC:
        assert list(scores["a"][metric].differences) == ["b"]
        apart, back = scores["a"][metric].differences["b"], paired[metric]
        assert (apart.point, apart.low, apart.high) == (-back.point, -back.high, -back.low)


def test_seeds_are_averaged_on_the_same_resamples(labels: NDArray[np.int64]) -> None:
    seeds = [simulate(1.0, seed, labels) for seed in range(3)]
    score = compare({"a": estimates(seeds, labels, ("nll",))}, {"nll": "lower"}, (ROWS,), Resampling(200))["a"]["nll"]
    each = [METRICS["nll"](one, labels) for one in seeds]
    assert score.values == pytest.approx(each)
    assert score.mean == pytest.approx(np.mean(each))
    assert score.deviation == pytest.approx(np.std(each, ddof=1))
    # The mean NLL over seeds is the NLL of rows whose loss is averaged over seeds: a reference by hand.
    losses = np.mean([-np.log(one[np.arange(ROWS), labels]) for one in seeds], axis=0)
    rng = np.random.default_rng(0)
    means = [losses[rng.integers(ROWS, size=ROWS)].mean() for _ in range(200)]
    assert (score.low, score.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def best(scores: dict[str, dict[str, Score]], metric: str) -> set[str]:
    return {name for name in scores if scores[name][metric].best}


def test_only_one_that_beats_every_other_beyond_chance_is_marked(labels: NDArray[np.int64]) -> None:
    weak, middle, strong = (simulate(skill, seed, labels) for seed, skill in enumerate((0.2, 1.0, 3.0)))
    nudged = strong * 0.999 + 0.001 / 3
    runs = {"weak": [weak], "middle": [middle], "strong": [strong]}
    clear = compare({k: estimates(v, labels, METRIC) for k, v in runs.items()}, BETTER, (ROWS,), Resampling(300))  # type: ignore[arg-type]
    assert best(clear, "nll") == best(clear, "accuracy") == {"strong"}
    # a rival that differs by less than chance: nobody is marked, though one mean is lower
    runs |= {"rival": [simulate(3.0, 9, labels)]}
    close = compare({k: estimates(v, labels, METRIC) for k, v in runs.items()}, BETTER, (ROWS,), Resampling(300))  # type: ignore[arg-type]
    assert best(close, "accuracy") == set()
    # the same predictions under another temperature: equal in accuracy on every resample, so both are marked
    runs = {"weak": [weak], "strong": [strong], "nudged": [nudged]}
    tied = compare({k: estimates(v, labels, METRIC) for k, v in runs.items()}, BETTER, (ROWS,), Resampling(300))  # type: ignore[arg-type]
    assert best(tied, "accuracy") == {"strong", "nudged"}


def test_without_a_direction_or_a_rival_nothing_is_marked(labels: NDArray[np.int64]) -> None:
    runs = {name: estimates([simulate(s, 1, labels)], labels, ("nll",)) for name, s in (("a", 0.1), ("b", 4.0))}
    assert best(compare(runs, {"nll": None}, (ROWS,), Resampling(50)), "nll") == set()
    assert best(compare({"b": runs["b"]}, {"nll": "lower"}, (ROWS,), Resampling(50)), "nll") == set()


def test_an_undefined_metric_is_neither_marked_nor_an_error(labels: NDArray[np.int64]) -> None:
    flat = np.full((ROWS, 3), 1 / 3)
    runs = {"a": estimates([flat], labels, ("accuracy@0.9",)), "b": estimates([flat], labels, ("accuracy@0.9",))}
    scores = compare(runs, {"accuracy@0.9": "higher"}, (ROWS,), Resampling(50))
    assert np.isnan(scores["a"]["accuracy@0.9"].mean)
    assert best(scores, "accuracy@0.9") == set()


def test_progress_adds_up_to_one(labels: NDArray[np.int64], monkeypatch: pytest.MonkeyPatch) -> None:
    # by sys.modules: the package has a function of the same name
    monkeypatch.setattr(sys.modules["uatlite.metrics.bootstrap"], "CHUNK", 7 * ROWS)
    runs = {name: estimates([simulate(1.0, 1, labels)], labels, ("nll",)) for name in "abc"}
    shares: list[float] = []
    compare(runs, {"nll": "lower"}, (ROWS,), Resampling(50), tick=shares.append)
    assert sum(shares) == pytest.approx(1.0)
