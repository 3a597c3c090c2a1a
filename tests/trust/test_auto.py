"""The choice of a calibrator, and its reasons."""

import numpy as np
import pytest
from scipy.special import softmax

from uatlite.errors import ConfigurationError
from uatlite.trust.auto import SIMPLEST_FIRST, Auto, Candidate, simplest_within_one_error, stratified_folds


def test_folds_are_even_and_stratified():
    labels = np.repeat([0, 1, 2], [100, 50, 25])
    folds = stratified_folds(labels, 5, seed=3)
    for label, rows in ((0, 100), (1, 50), (2, 25)):
        np.testing.assert_array_equal(np.bincount(folds[labels == label]), rows // 5)
    np.testing.assert_array_equal(folds, stratified_folds(labels, 5, seed=3))
    assert (folds != stratified_folds(labels, 5, seed=4)).any()


def test_calibrated_logits_are_left_alone(rows):
    logits, labels, variance = rows(3000, 3, overconfidence=1.0)
    assert Auto().fit(logits, labels, variance).chosen_.name == "none"


def test_overconfident_logits_get_a_temperature(rows):
    logits, labels, variance = rows(500, 3, overconfidence=3.0)
    assert Auto().fit(logits, labels).chosen_.name == "temperature"
    fitted = Auto().fit(logits, labels, variance)
    assert fitted.chosen_.name == "input-temperature"  # which a prior holds near temperature scaling
    assert [line.name for line in fitted.table_] == list(SIMPLEST_FIRST)
    assert all(line.nll is not None for line in fitted.table_)
    assert "temperature" in fitted.reason_
    assert f"{next(line.nll for line in fitted.table_ if line.name == 'input-temperature'):.4f}" in fitted.reason_


def test_a_class_bias_gets_class_parameters(rows):
    logits, labels, variance = rows(2000, 3, overconfidence=1.0)
    chosen = Auto().fit(logits + np.array([3.0, 0.0, -2.0]), labels, variance).chosen_.name
    assert chosen in ("vector", "platt")


def test_a_telling_variance_gets_the_input_temperature():
    rng = np.random.default_rng(0)
    margin, variance = rng.normal(0, 5, 3000), rng.choice([0.0, 60.0], 3000)
    chance = 1 / (1 + np.exp(-margin / np.sqrt(1 + np.pi / 8 * variance)))
    labels = (rng.random(3000) < chance).astype(int)
    logits = np.stack([0 * margin, margin], axis=1)
    assert Auto().fit(logits, labels, variance).chosen_.name == "input-temperature"
    without = Auto().fit(logits, labels)
    line = next(line for line in without.table_ if line.name == "input-temperature")
    assert line.nll is None
    assert "no variance" in line.note


def test_the_table_is_held_out_nll(rows):
    """The line of 'none' needs no fit, so its NLL is that of the plain softmax on all rows."""
    logits, labels, _ = rows(200, 3)
    line = Auto().fit(logits, labels).table_[0]
    assert line.nll == pytest.approx(-np.log(softmax(logits, axis=1)[np.arange(200), labels]).mean())


def test_a_class_with_no_row_leaves_the_simple_ones(rows):
    logits, labels, _ = rows(200, 3)
    fitted = Auto().fit(logits, np.minimum(labels, 1))
    notes = {line.name: line.note for line in fitted.table_}
    assert "no row has the label [2]" in notes["platt"]
    assert fitted.chosen_.name in ("none", "temperature")


def test_the_simpler_wins_within_one_standard_error():
    table = (
        Candidate("none", 0.7, 0.2, 0.05),
        Candidate("temperature", 0.502, 0.002, 0.02),
        Candidate("vector", 0.5, 0, 0),
    )
    assert simplest_within_one_error(table) == "temperature"
    dear = Candidate("temperature", 0.51, 0.01, 0.02)  # within one error, and more than a simpler one is worth
    assert simplest_within_one_error((table[0], dear, table[2])) == "vector"
    table = (
        Candidate("none", 0.7, 0.2, 0.05),
        Candidate("temperature", 0.53, 0.03, 0.02),
        Candidate("vector", 0.5, 0, 0),
    )
    assert simplest_within_one_error(table) == "vector"


def test_one_fold_is_refused(rows):
    logits, labels, _ = rows(100, 2)
    with pytest.raises(ConfigurationError, match="folds=1"):
        Auto(folds=1).fit(logits, labels)
