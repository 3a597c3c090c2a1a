"""A second look runs where the first one abstains, stands beside it, and decides nothing."""

import numpy as np
import pytest

from reference import Build, Sample
from uatlite.classifier.calibrate import FEWEST_TEXTS
from uatlite.errors import ConfigurationError
from uatlite.trust.calibrators import Temperature

SECOND = "uat:samples=4"


def test_it_says_more_about_what_is_abstained_on_and_nothing_else_changes(build: Build, labelled: Sample) -> None:
    texts, labels = labelled(300)
    new = labelled(60, seed=2)[0]
    once = build("base").calibrate(texts, labels, threshold=0.6).predict(new)
    clf = build("base").calibrate(texts, labels, threshold=0.6, second_look=SECOND)
    twice = clf.predict(new)
    assert 0 < twice.abstain.sum() < len(new)
    for name in ("abstain", "labels", "probabilities", "logit_margin", "above_threshold"):
        np.testing.assert_array_equal(getattr(twice, name), getattr(once, name))
    assert twice.reasons == once.reasons
    assert twice.passes.tolist() == [5 if abstains else 1 for abstains in twice.abstain]
    assert once.second_probabilities is None
    assert np.isnan(twice.second_probabilities[~twice.abstain]).all()
    assert twice.second_probabilities[twice.abstain].sum(axis=1) == pytest.approx(1)
    assert (twice.second_mutual_information[twice.abstain] >= 0).all()
    assert [label is not None for label in twice.second_labels] == twice.abstain.tolist()


def test_its_probabilities_are_calibrated_on_the_rows_that_were_abstained_on(build: Build, labelled: Sample) -> None:
    texts, labels = labelled(300)
    clf = build("base").calibrate(texts, labels, threshold=0.6, second_look=SECOND, calibrator="temperature")
    look, pred = clf.calibration_.second_look, clf.predict(texts, check_shift=False)
    assert FEWEST_TEXTS <= look.rows <= pred.abstain.sum() + 6  # the scope of calibration rows is cross-fitted
    passes = build(SECOND).predict(texts)
    columns = np.array([clf.class_names.index(label) for label in labels])
    assert clf.calibration_.scope.inside is not None
    doubted = (pred.confidence <= 0.6) | ~clf.calibration_.scope.inside
    logits = np.log(passes.probabilities)  # up to a constant a text
    expected = Temperature.fit(logits[doubted], columns[doubted])
    assert look.rows == doubted.sum()
    where = pred.abstain & doubted
    np.testing.assert_allclose(pred.second_probabilities[where], expected.probabilities(logits[where]), atol=1e-4)


def test_without_a_rule_it_is_for_texts_out_of_scope(build: Build, labelled: Sample) -> None:
    texts, labels = labelled(300)
    given = {"reference": labelled(400, seed=3)[0], "false_alarm": 0.2, "second_look": "analytic"}
    pred = build().calibrate(texts, labels, **given).predict(labelled(60, seed=2)[0])
    assert 0 < pred.out_of_scope.sum() < 60
    assert pred.passes.tolist() == (1 + pred.out_of_scope).tolist()


def test_a_second_look_needs_something_to_look_at(build: Build, labelled: Sample) -> None:
    texts, labels = labelled(300)
    with pytest.raises(ConfigurationError, match=r"no rule to abstain by; ask for one: .*target_risk=0\.05"):
        build("base").calibrate(texts[:40], labels[:40], second_look=SECOND)
    with pytest.raises(ConfigurationError, match="learns from calibration rows"):
        build("base").calibrate(texts, labels, threshold=0.6, second_look="distilled")
