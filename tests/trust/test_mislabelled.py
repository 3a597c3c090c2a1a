"""Confident learning against a loop that a reader can follow, and against labels that were flipped on purpose."""

import numpy as np
import pytest
from scipy.special import softmax

from uatlite.errors import InputError
from uatlite.trust.mislabelled import class_thresholds, probably_mislabelled


def flipped(rows: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, rows)
    logits = rng.normal(0, 1, (rows, 3))
    logits[np.arange(rows), true] += 4
    given, wrong = true.copy(), rng.random(rows) < share
    given[wrong] = (true[wrong] + 1) % 3
    return softmax(logits, axis=1), given, wrong


def test_it_is_what_a_loop_over_rows_finds() -> None:
    probabilities, given, _ = flipped(200, 0.1)
    thresholds = [probabilities[given == c, c].mean() for c in range(3)]
    assert class_thresholds(probabilities, given) == pytest.approx(thresholds)
    expected = []
    for place, row in enumerate(probabilities):
        reached = [c for c in range(3) if row[c] >= thresholds[c]]
        if reached and max(reached, key=lambda c: row[c]) != given[place]:
            expected.append(place)
    order, likely = probably_mislabelled(probabilities, given)
    assert sorted(order.tolist()) == expected
    own = probabilities[order, given[order]]
    assert (np.diff(own) >= 0).all()
    assert (likely[order] != given[order]).all()


def test_most_flipped_labels_are_found_and_few_others() -> None:
    probabilities, given, wrong = flipped(2000, 0.1)
    order, _ = probably_mislabelled(probabilities, given)
    assert wrong[order].mean() > 0.8
    assert wrong[order].sum() > 0.5 * wrong.sum()


def test_a_class_without_rows_is_never_suggested_and_sums_are_checked() -> None:
    _, likely = probably_mislabelled([[0.1, 0.2, 0.7], [0.6, 0.2, 0.2], [0.2, 0.7, 0.1]], [1, 0, 1])
    assert 2 not in likely
    with pytest.raises(InputError, match="do not sum to 1"):
        probably_mislabelled([[0.1, 0.2], [0.5, 0.5]], [0, 1])
