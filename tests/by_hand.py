"""Slow and obvious references of shares, bins and risks, rows whose true risk is known, and values that come back."""

import json
import math

import numpy as np

from uatlite.codec import dump, load


def draw_scores(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores (rows,) uniform on [0, 1] and errors (rows,) with P(error | score s) = (1 - s) / 2."""
    scores = rng.random(rows)
    return scores, rng.random(rows) < (1 - scores) / 2


def binomial_tail(errors: int, answered: int, risk: float) -> float:
    """P(Binomial(answered, risk) ≤ errors), term by term."""
    return sum(math.comb(answered, k) * risk**k * (1 - risk) ** (answered - k) for k in range(errors + 1))


def bins_of(values, gaps, bins=15):
    """The gaps of each bin that has any, row by row: bin b takes values in (b/bins, (b+1)/bins], the first also 0."""
    found = [[] for _ in range(bins)]
    for value, gap in zip(values, gaps, strict=True):
        found[next(b for b in range(bins) if value <= (b + 1) / bins)].append(gap)
    return [np.array(gaps) for gaps in found if gaps]


def slow_ece(confidence, right):
    """15 bins, one after the other."""
    return sum(abs(gaps.sum()) for gaps in bins_of(confidence, confidence - right)) / len(confidence)


def slow_aurc(confidence, wrong):
    """The mean risk at each rank, with the errors of a tie spread evenly over its ranks."""
    ranked = ranked_errors(confidence, wrong)
    return float(np.mean(np.cumsum(ranked) / np.arange(1, len(ranked) + 1)))


def ranked_errors(confidence, wrong):
    """Errors from the most confident row down, where tied rows each carry their tie's error rate."""
    shared = np.array([np.mean(wrong[confidence == value]) for value in confidence], dtype=float)
    return shared[np.argsort(-confidence, kind="stable")]


def again(value):
    """The value that comes back from its JSON and its arrays."""
    arrays = {}
    state = json.loads(json.dumps(dump(value, arrays), allow_nan=False))
    return load(type(value), state, arrays, advice="calibrate again.")


def calibration_of(shift, scope=None, rules=()):
    """A calibration of two classes that was learned from no rows, with what new rows are compared with."""
    from uatlite.classifier.record import Calibration
    from uatlite.trust.calibrators import Temperature

    learned = {"model_hash": "", "classes": ("a", "b"), "rows": 200, "calibrator": Temperature(2, 1.0)}
    return Calibration(**learned, shift=shift, scope=scope, rules=rules)
