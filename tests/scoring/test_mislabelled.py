"""Rows that are probably mislabelled: what a loop over rows finds, and most labels that were flipped."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from uatlite.errors import DataError, InputError
from uatlite.scoring.mislabelled import class_thresholds, probably_mislabelled, suspects


def test_rows_that_are_probably_mislabelled(tmp_path: Path) -> None:
    path = tmp_path / "scored.jsonl"
    rows = [{"id": str(i), "input_label": "good" if i % 2 else "bad", "label": "good"} for i in range(40)]
    for row in rows:
        right = 0.9 if row["id"] != "7" else 0.02
        good = right if row["input_label"] == "good" else 1 - right
        row |= {"p_bad": 1 - good, "p_good": good}  # type: ignore[dict-item]
    path.write_text("\n".join(map(json.dumps, rows)))
    (found,) = suspects(str(path), "input_label")
    assert (found["id"], found["input_label"], found["suggested"]) == ("7", "good", "bad")
    assert found["p_given"] == pytest.approx(0.02)
    with pytest.raises(DataError, match=r"no row with a column 'stars'.*--keep label"):
        suspects(str(path), "stars")
    path.write_text(json.dumps({"id": "1", "input_labels": ["a"], "labels": ["a"], "p_a": 0.9, "p_b": 0.1}))
    with pytest.raises(DataError, match="holds labels, and rows are compared with one label each"):
        suspects(str(path), "input_labels")


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
    given_p = probabilities[order, given[order]]
    assert (np.diff(given_p) >= 0).all()
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
