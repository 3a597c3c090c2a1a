"""Stored logits to probabilities, calibrated and in the task's order."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from reference import made_provenance
from uatlite.codec import dump
from uatlite.errors import CalibrationError, DataError
from uatlite.lab.evaluate.outcomes import OUTCOMES, fit_calibrator, outcome_of
from uatlite.lab.evaluate.store import NO_LABEL
from uatlite.lab.evaluate.store import StoredPredictions as Predictions
from uatlite.metrics.accuracy import DETECTION
from uatlite.metrics.calibration import SHIFT
from uatlite.metrics.intervals import SCALES
from uatlite.predictive import PassLogits, margin_variance, softmax
from uatlite.trust.calibrators import Temperature
from uatlite.values import Kind

NLI = ("entailment", "neutral", "contradiction")


def stored(logits, labels, *, columns=((0,), (1,), (2,)), names=NLI, classes=None, out_of_scope=None, variance=None):
    facts = {"model_labels": NLI, "classes": classes or names, "out_of_scope": out_of_scope}
    provenance = made_provenance(len(labels), names, recipe={"columns": columns}, **facts)
    passes = PassLogits(logits.astype(np.float64), None if variance is None else variance.astype(np.float64)[:, None])
    ids = tuple(str(row) for row in range(len(labels)))
    return Predictions(np.arange(len(labels)), ids, labels, passes, 0.0, provenance=provenance)


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(scale=2, size=(4, 60, 3)).astype(np.float32)


@pytest.fixture
def labels(logits):
    """Right for about two rows in three."""
    rng = np.random.default_rng(1)
    return np.where(rng.random(60) < 0.66, logits.mean(axis=0).argmax(axis=1), rng.integers(3, size=60))


def test_without_a_calibrator_it_is_the_softmax_of_the_mean_logits(logits, labels):
    outcome = outcome_of(stored(logits, labels), None)
    np.testing.assert_allclose(outcome.rows.probabilities, softmax(logits.astype(np.float64).mean(axis=0)))
    np.testing.assert_array_equal(outcome.rows.labels, labels)
    assert outcome.doubt is None


def test_columns_are_put_in_the_order_of_the_task(logits, labels):
    moved = outcome_of(stored(logits, labels, columns=((2,), (0,), (1,))), None)
    plain = outcome_of(stored(logits, labels), None)
    np.testing.assert_array_equal(moved.rows.probabilities, plain.rows.probabilities[:, [2, 0, 1]])


def test_a_calibrator_is_fitted_in_the_columns_of_the_model(logits, labels):
    order = np.array([2, 0, 1])  # the task's class i is the model's column order[i]
    task_labels = np.argsort(order)[labels]
    fitted = fit_calibrator("temperature", stored(logits, task_labels, columns=((2,), (0,), (1,))))
    expected = Temperature.fit(logits.astype(np.float64).mean(axis=0), labels)
    assert isinstance(fitted, Temperature)
    assert fitted.temperature == pytest.approx(expected.temperature, rel=1e-9)


def test_classes_are_summed_after_softmax_and_after_calibration(logits, labels):
    fitted = fit_calibrator("temperature", stored(logits, labels))
    hans = stored(logits, labels.clip(0, 1), columns=((0,), (1, 2)), names=("entailment", "non-entailment"))
    three = fitted.probabilities(logits.astype(np.float64).mean(axis=0))
    outcome = outcome_of(hans, fitted)
    np.testing.assert_allclose(outcome.rows.probabilities, np.stack([three[:, 0], three[:, 1] + three[:, 2]], axis=1))
    with pytest.raises(CalibrationError, match=r"sums several classes of the model into one.*--shift"):
        fit_calibrator("temperature", hans)


def test_rows_without_a_label_are_left_out(logits, labels):
    some = np.where(np.arange(60) % 3 == 0, NO_LABEL, labels)
    outcome = outcome_of(stored(logits, some), None)
    np.testing.assert_array_equal(outcome.rows.labels, labels[np.arange(60) % 3 != 0])
    assert len(outcome.rows.probabilities) == 40
    with pytest.raises(DataError, match="nothing to score"):
        outcome_of(stored(logits, np.full(60, NO_LABEL)), None)


def test_out_of_scope_rows_are_told_by_low_confidence_or_by_their_own_class(logits, labels):
    names = ("entailment", "neutral", "contradiction", "oos")
    gold = np.where(np.arange(60) % 4 == 0, 3, labels)
    unknown = outcome_of(stored(logits, gold, names=names, classes=NLI, out_of_scope=3), None)
    everything = softmax(logits.astype(np.float64).mean(axis=0))
    assert len(unknown.rows) == 45
    np.testing.assert_array_equal(unknown.out_of_scope, gold == 3)
    np.testing.assert_allclose(unknown.doubt, 1 - everything.max(axis=1))
    known = outcome_of(stored(logits, labels, names=("entailment", "neutral", "oos"), out_of_scope=2), None)
    assert len(known.rows) == 60
    np.testing.assert_allclose(known.doubt, everything[:, 2])


def test_the_margin_variance_is_the_methods_own_or_that_of_its_passes(logits, labels):
    sampled = dump(fit_calibrator("input-temperature", stored(logits, labels)))
    own = margin_variance(logits).astype(np.float32)
    mean = logits.mean(axis=0, keepdims=True)
    given = dump(fit_calibrator("input-temperature", stored(mean, labels, variance=own)))
    assert given["temperature"] == pytest.approx(sampled["temperature"], rel=1e-3)


def test_too_few_rows_are_named_with_their_set(logits, labels):
    few = stored(logits[:, :5], labels[:5])
    with pytest.raises(CalibrationError, match=r"made/test: 5 labelled rows are too few"):
        fit_calibrator("temperature", replace(few, ids=few.ids[:5]))


def test_every_kind_is_scored_and_every_score_has_a_direction():
    assert set(OUTCOMES) == set(get_args(Kind))
    every = {name for kind in OUTCOMES.values() for name in kind.every}
    assert set(SCALES) == every | {*SHIFT, *DETECTION, "confidence_aurc", "scope_aurc", "scope_change"}
    for kind in OUTCOMES.values():
        assert {kind.ece, *kind.metrics} <= set(kind.every)
    neither = {name for name, scale in SCALES.items() if scale.better is None}
    assert neither == {"delta_ece", "scope_change"} | {
        f"{name}@{tau}" for name in ("coverage", "count", "accuracy") for tau in (0.9, 0.8, 0.7)
    }
