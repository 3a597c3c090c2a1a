"""A file of scores decides as the model that the scores are of: the same thresholds, probabilities and decisions."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from reference import refuses
from uatlite.classifier.classifiers import UncertaintyClassifier, load
from uatlite.classifier.runtime import run
from uatlite.classifier.scores import ScoresRuntime
from uatlite.errors import InputError, ModelError
from uatlite.text.scores import ScoreColumns
from uatlite.values import ScoredText

CLASSES = ("bad", "fair", "good")
ASKED = {"target_risk": 0.5, "label_sets": 0.8, "menu": True}


def runtime_of(form="logit", **fields):
    return ScoresRuntime(
        ScoreColumns(form=form, columns=tuple(f"{form}_{name}" for name in CLASSES), classes=CLASSES, **fields)
    )


@pytest.fixture(scope="module")
def of_model(build, labelled):
    """A calibrated model, what it says about its calibration rows and about new ones, and the gold of the former."""
    texts, labels = labelled(300)
    clf = build("base").calibrate(texts, labels, **ASKED)
    return clf, *(run(clf.runtime, part, clf.settings) for part in (texts, labelled(80, 1)[0])), labels


def rows_of(outputs, vectors=True):
    vectors = outputs.representations.astype(np.float32) if vectors else np.zeros((outputs.logits.shape[1], 0))
    return [
        ScoredText(tuple(row), vector.tobytes())
        for row, vector in zip(outputs.logits[0].tolist(), vectors, strict=True)
    ]


def test_thresholds_probabilities_and_decisions_are_those_of_the_model(of_model, labelled, tmp_path):
    clf, old, new, labels = of_model
    scores = UncertaintyClassifier(runtime_of(width=old.representations.shape[1]))
    scores.calibrate(rows_of(old), labels, **ASKED)
    scores.save_pretrained(tmp_path / "scores")
    again = load(tmp_path / "scores")
    ours, theirs = clf.calibration_, again.calibration_
    assert theirs.rule == ours.rule
    assert theirs.menu.lines == ours.menu.lines
    assert theirs.calibrator == ours.calibrator
    assert theirs.label_sets == ours.label_sets
    assert theirs.figures.describe() == ours.figures.describe()
    expected, pred = clf.predict(labelled(80, 1)[0]), again.predict(rows_of(new))
    assert np.array_equal(pred.probabilities, expected.probabilities)
    assert list(pred.columns) == list(expected.columns)
    for name in ("label", "abstain", "reason", "above_threshold", "confidence", "label_set"):
        assert pred.columns[name] == expected.columns[name]
    assert pred.scope == pytest.approx(expected.scope, abs=2 / 301)  # embeddings are kept in float32
    assert pred.shift.shifted == expected.shift.shifted


def test_probabilities_decide_as_logits_do(of_model, labelled):
    _, old, new, labels = of_model
    plain = UncertaintyClassifier(runtime_of()).calibrate(rows_of(old, vectors=False), labels, **ASKED)
    shares = [np.exp(row) / np.exp(row).sum() for row in old.logits[0]]
    scores = UncertaintyClassifier(runtime_of("p")).calibrate(shares, labels, **ASKED)  # in the order of the columns
    assert scores.calibration_.rule.threshold == pytest.approx(plain.calibration_.rule.threshold, abs=1e-9)
    assert scores.calibration_.rule.coverage == plain.calibration_.rule.coverage
    rows = [
        dict(zip(scores.runtime.columns.columns, np.exp(row) / np.exp(row).sum(), strict=True)) for row in new.logits[0]
    ]
    pred, expected = scores.predict(rows), plain.predict(rows_of(new, vectors=False))
    assert pred.probabilities == pytest.approx(expected.probabilities, abs=1e-6)
    assert pred.abstain.tolist() == expected.abstain.tolist()
    assert pred.scope is None  # nothing tells it without embeddings


def test_few_values_of_a_score_are_warned_of(of_model):
    _, old, _, labels = of_model
    columns = ScoreColumns(form="confidence", columns=("predicted", "confidence"), classes=CLASSES)
    sure = np.round(np.exp(old.logits[0]).max(axis=1) / np.exp(old.logits[0]).sum(axis=1) * 5) / 5 - 0.05
    rows = [
        {"predicted": CLASSES[column], "confidence": value}
        for column, value in zip(old.logits[0].argmax(axis=1), sure, strict=True)
    ]
    clf = UncertaintyClassifier(ScoresRuntime(columns))
    values, counts = np.unique(np.maximum(sure, 1 / 3), return_counts=True)
    with pytest.warns(UserWarning, match=f"The score logit-margin has {len(values)} values only: 100.0% of the rows"):
        clf.calibrate(rows, labels, target_risk=0.7)
    assert f"{counts.max() / 300:.1%} have the commonest" in clf.calibration_.ties
    assert clf.calibration_.ties in clf.calibration_.describe()
    pred = clf.predict(rows, check_shift=False)
    for value in values:  # ties are the unit of the rule
        assert len(set(pred.abstain[np.maximum(sure, 1 / 3) == value].tolist())) == 1
    assert 0 < clf.calibration_.rule.reported <= int((~pred.abstain).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            UncertaintyClassifier(runtime_of()).calibrate(rows_of(old, vectors=False), labels).calibration_.ties == ""
        )


def test_what_does_not_fit_is_refused(of_model, build, tmp_path):
    clf, old, new, labels = of_model
    scores = UncertaintyClassifier(runtime_of()).calibrate(rows_of(old, vectors=False), labels, target_risk=0.5)
    scores.save_pretrained(tmp_path / "scores")
    passes = UncertaintyClassifier(runtime_of(), config="uat")
    assert "decides on rows of scores" in (tmp_path / "scores" / "README.md").read_text()
    refuses(
        (InputError, "reads scores of 3 classes: give a ScoredText", lambda: scores.predict([ScoredText((0.1, 0.2))])),
        (InputError, "reads scores of 3 classes", lambda: scores.predict(rows_of(new))),
        (InputError, r"texts\[1\]: no score of 'good'", lambda: scores.predict([[1, 2, 3], [1, 2]])),
        (InputError, "and this model reads texts", lambda: clf.predict(rows_of(new))),
        (ModelError, "of this classifier only scores are seen", lambda: passes.calibrate(rows_of(old, False), labels)),
        (ModelError, "cannot be explained", lambda: scores.explain([1, 2, 3])),
        (ModelError, "not the one that was calibrated", lambda: load_changed(scores, tmp_path / "other")),
        (ModelError, "is broken", lambda: load_broken(tmp_path / "scores")),
    )


def load_changed(scores, directory):
    """The calibration of some columns, with a manifest of others."""
    scores.save_pretrained(directory)
    runtime = scores.runtime
    ScoresRuntime(replace(runtime.columns, classes=("fair", "bad", "good"))).save(directory)
    load(directory)


def load_broken(directory):
    (directory / "uatlite-scores.json").write_text('{"format": 1, "form": "guess"}')
    load(directory)
