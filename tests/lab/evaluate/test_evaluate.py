"""Scores from outcomes agree with the bootstrap of one method at a time."""

import numpy as np
import pytest

from uatlite.lab.evaluate.outcomes import (
    DIRECTIONS,
    HEADLINE,
    Outcome,
    Resampling,
    score_detection,
    score_set,
    score_shift,
)
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.bootstrap import METRICS, bootstrap, detection_bootstrap, shift_bootstrap
from uatlite.metrics.calibration import SHIFT

HOW = Resampling(resamples=100, confidence=0.9, seed=3)
OPTIONS = {"resamples": 100, "confidence": 0.9, "seed": 3}


def make_outcome(seed: int, rows: int = 80, *, scope: bool = False) -> Outcome:
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet([1.0, 1.0, 1.0], size=rows)
    labels = np.array([generator.choice(3, p=row) for row in probabilities])
    if not scope:
        return Outcome(probabilities, labels, None, None)
    return Outcome(probabilities, labels, generator.random(rows + 20), np.arange(rows + 20) % 5 == 0)


def test_one_seed_of_one_contender_is_its_bootstrap() -> None:
    outcome = make_outcome(0)
    scores = score_set({"one": [outcome]}, HEADLINE, HOW, lambda share: None)["one"]
    plain = bootstrap(outcome.probabilities, outcome.labels, metrics=HEADLINE, **OPTIONS)  # type: ignore[arg-type]
    for name in HEADLINE:
        assert (scores[name].mean, scores[name].low, scores[name].high) == pytest.approx(
            (plain[name].point, plain[name].low, plain[name].high), nan_ok=True
        )


def test_shift_is_its_bootstrap_over_both_sets() -> None:
    first, second = make_outcome(0), make_outcome(1, rows=50)
    scores = score_shift({"one": [first]}, {"one": [second]}, HOW)["one"]
    plain = shift_bootstrap(
        first.probabilities, first.labels, second.probabilities, second.labels, **OPTIONS  # type: ignore[arg-type]
    )  # fmt: skip
    assert set(scores) == set(SHIFT)
    for name, score in scores.items():
        assert (score.mean, score.low, score.high) == (plain[name].point, plain[name].low, plain[name].high)


def test_detection_is_its_bootstrap_and_needs_both_kinds_of_rows() -> None:
    outcome = make_outcome(0, scope=True)
    scores = score_detection({"one": [outcome]}, HOW)["one"]
    assert outcome.doubt is not None
    assert outcome.out_of_scope is not None
    plain = detection_bootstrap(outcome.doubt, outcome.out_of_scope, **OPTIONS)  # type: ignore[arg-type]
    assert set(scores) == set(DETECTION)
    for name, score in scores.items():
        assert (score.mean, score.low, score.high) == (plain[name].point, plain[name].low, plain[name].high)
    one_kind = Outcome(outcome.probabilities, outcome.labels, outcome.doubt, np.zeros(100, dtype=bool))
    assert score_detection({"one": [one_kind]}, HOW) == {}
    assert score_detection({"one": [make_outcome(0)]}, HOW) == {}


def test_every_score_has_a_direction() -> None:
    assert set(DIRECTIONS) == {*METRICS, *SHIFT, *DETECTION}
    neither = {name for name, better in DIRECTIONS.items() if better is None}
    assert neither == {"delta_ece"} | {
        f"{name}@{tau}" for name in ("coverage", "count", "accuracy") for tau in (0.9, 0.8, 0.7)
    }
