"""Joining calibrators, rules, label sets, the shift summary and a second look: which rows decide what."""

from dataclasses import replace

import numpy as np
import pytest

from uatlite.classifier.calibrate import FEWEST_DOUBTED
from uatlite.classifier.one_class import OneClass
from uatlite.classifier.record import CalibrationOptions
from uatlite.classifier.runtime import tokenizer_fingerprint
from uatlite.errors import CalibrationError, ConfigurationError
from uatlite.metrics.intervals import Interval
from uatlite.model.load import model_hash
from uatlite.predictive import PassLogits, predict
from uatlite.text.examples import text_fault
from uatlite.trust.calibrators import Temperature, stratified_folds
from uatlite.trust.distribution import predictive
from uatlite.trust.promise import fitting_rows
from uatlite.trust.rule import SCORES

ENTROPY = {"review_share": 0.4, "calibrator": "none", "score": "entropy"}


@pytest.mark.parametrize(
    ("method", "rows", "asked", "deciding", "basis"),
    [
        ("base", 300, {"review_share": 0.6, "score": "confidence", "label_sets": 0.8}, 200, "did not fit the"),
        ("base", 120, {"threshold": 0.6, "calibrator": "none"}, 120, "cross-validated"),  # nothing is fitted
        ("base", 120, {"review_share": 0.4}, 120, "cross-validated"),  # by the raw score
        ("distilled", 300, ENTROPY, 200, "did not fit the"),  # by a score that the read-out fitted
        ("analytic", 300, ENTROPY, 300, "cross-validated"),
    ],
)
def test_rows_that_fit_what_decides_do_not_decide(build, labelled, method, rows, asked, deciding, basis):
    calibration = build(method).calibrate(*labelled(rows), **asked).calibration_
    assert (calibration.rule.texts, calibration.figures.rows) == (deciding, deciding)
    assert basis in calibration.figures.basis
    assert calibration.label_sets is None or calibration.label_sets.rows == deciding
    if "score" not in asked and "threshold" not in asked:
        assert calibration.rule.score == "logit-margin"


def test_bad_options_are_refused_before_anything_runs(build, labelled, monkeypatch):
    def never(*_):
        raise AssertionError("a pass was run")

    rows = labelled(60)
    monkeypatch.setattr(OneClass, "read", never)
    calibrators = ({"calibrator": "temperatur"}, {"calibrator": "platt"}, {"score": "confidnce"})
    together = {"target_risk": 0.1, "threshold": 0.5}
    for given in ({"false_alarm": 0.0}, {"false_alarm": 1.5}, {"per_class": True}, together, *calibrators):
        with pytest.raises(ConfigurationError, match=" and ".join(given)):
            build().calibrate(*rows, **given)
    for given in ({"target_errors": 5}, {"target_recall": 5}, {"target_risk": 0.1, "target_errors": 0.1}):
        with pytest.raises(ConfigurationError, match=" and ".join(given)):
            CalibrationOptions(**given)
    with pytest.raises(TypeError, match=r"UncertaintyClassifier\.calibrate takes no target_recall"):
        build().calibrate(*rows, target_recall=0.5)


def test_nothing_is_done_twice(build, labelled, counted, tmp_path):
    """Weights are hashed once, also for saving; the settings are those of calibrating and of saving."""
    (texts, labels), clf = labelled(300), build("base")
    checks, hashes, splits, folds = map(counted, (text_fault, model_hash, fitting_rows, stratified_folds))
    settings, passes = counted(tokenizer_fingerprint), []
    with clf.model.register_forward_pre_hook(
        lambda model, args, given: passes.append(given["input_ids"]), with_kwargs=True
    ):
        clf.calibrate(texts, labels, review_share=0.6, score="confidence", label_sets=0.8)
    clf.save_pretrained(tmp_path / "saved")
    assert (len(checks), sum(map(len, passes)), len(splits), len(folds)) == (300, 300, 1, 1)
    assert (len(hashes), len(settings)) == (1, 2)


def test_figures_are_not_of_the_rows_that_fitted(build, labelled):
    texts, labels = labelled(120)
    clf = build("base").calibrate(texts, labels)
    figures = clf.calibration_.figures
    assert figures.basis == "calibration data: 120 rows, cross-validated"
    # A temperature flatters itself on the rows that it was fitted on; the figures must not.
    assert figures.calibrated["nll"].point > clf.evaluate(texts, labels).calibrated["nll"].point


@pytest.mark.parametrize("score", SCORES)
def test_every_score_can_decide(build, labelled, score):
    clf = build().calibrate(*labelled(200), review_share=0.3, score=score)
    pred = clf.predict(labelled(200, seed=1)[0])
    assert 0.15 < pred.abstain.mean() < 0.45
    values = getattr(pred, score.replace("-", "_"))
    assert pred.out_of_scope is not None
    trusted, doubted = values[~pred.abstain], values[pred.abstain & ~pred.out_of_scope]
    higher = score in ("confidence", "margin", "logit-margin")
    assert trusted.min() > doubted.max() if higher else trusted.max() < doubted.min()


def test_the_promised_risk_holds_on_new_rows(build, labelled):
    clf = build("base").calibrate(*labelled(600), target_risk=0.4, confidence=0.99)  # one draw: little left to chance
    texts, labels = labelled(1500, seed=5)
    pred = clf.predict(texts, check_shift=False)
    wrong = pred.labels != np.array(labels)
    assert (~pred.abstain).sum() > 0
    assert wrong[~pred.abstain].mean() < 0.4 < wrong.mean()


def test_too_few_rows_say_how_they_were_shared_out(build, labelled):
    with pytest.raises(CalibrationError, match=r"of 27 rows one in 3 fits the calibrator.*9 labelled rows are too few"):
        build("base").calibrate(*labelled(27), target_risk=0.4, score="confidence")


def test_few_rows_keep_no_summary_and_say_so(build, labelled):
    clf = build("base").calibrate(*labelled(40))
    assert clf.calibration_.shift is None
    assert "A shift will not be noticed: that takes 50 calibration rows, there were 40." in clf.calibration_.describe()
    assert clf.predict(labelled(30)[0]).shift is None


def test_a_method_that_knows_its_variance_gives_it():
    logits = np.array([[[2.0, 0.0], [0.5, 0.0]]])
    outputs = PassLogits(logits, np.array([[0.3], [0.7]]))
    drawn = predict(outputs.logits + np.random.default_rng(0).normal(size=(20_000, 1, 1)) * [[[0.3**0.5, 0]]])
    assert predictive(outputs, None).variance[0] == pytest.approx(drawn.variance[0], rel=0.05)
    assert outputs.margin_variance is not None


def test_the_default_is_compared_with_temperature_scaling(build, labelled):
    calibration = build().calibrate(*labelled(240)).calibration_
    assert calibration.settings.method.name == "distilled"
    assert calibration.calibrator.name == "input-temperature"
    found = calibration.comparison
    assert found.rows == 240
    assert found.difference.point == pytest.approx(found.nll - found.plain_nll)
    assert found.verdict in ("better", "level", "worse")
    assert found.describe() in calibration.describe()
    alone = build("base").calibrate(*labelled(240)).calibration_
    assert alone.comparison is None  # it is temperature scaling, as the sentence about a worse default says of it
    assert alone.calibrator.name == "temperature"
    worse = replace(found, difference=Interval(0.2, 0.1, 0.3))
    assert "take the method base, whose calibrator it is" in worse.describe()


def test_what_is_worse_beyond_chance_is_said(build, labelled):
    texts, labels = labelled(240)
    others = dict(zip(sorted(set(labels)), sorted(set(labels), reverse=True), strict=True))
    with pytest.warns(UserWarning, match="Temperature scaling is better here"):
        build("base").calibrate(texts, [others[label] for label in labels], calibrator="none")


def test_out_of_scope_texts_are_abstained_on(build, labelled):
    texts, labels = labelled(300)
    clf = build().calibrate(texts, labels, review_share=0.1, reference=labelled(400, seed=3)[0], false_alarm=0.05)
    assert clf.calibration_.scope.reference_rows == 400
    pred = clf.predict(labelled(200, seed=1)[0])
    assert pred.scope is not None
    assert (pred.out_of_scope == (pred.scope <= 0.05)).all()
    assert pred.out_of_scope.mean() < 0.15
    strange = clf.predict(["a1 " * 19, *labelled(20, seed=1)[0]], check_shift=False)
    for prediction in (*pred, *strange):
        if prediction.out_of_scope:
            assert prediction.abstain
            assert prediction.reason == "out of scope"
        else:
            below = prediction.reason in ("below the threshold", "unstable under dropout")
            assert below == prediction.abstain
    assert (pred.out_of_scope_among(0.3) >= pred.out_of_scope_among(0.01)).all()


def test_reference_texts_that_are_calibration_rows_are_left_out(build, labelled):
    texts, labels = labelled(300)
    others = labelled(400, seed=3)[0]
    scopes = [
        build("base").calibrate(texts, labels, reference=reference).calibration_.scope
        for reference in (others, [*texts, *others])
    ]
    assert [scope.reference_rows for scope in scopes if scope] == [len([one for one in others if one not in texts])] * 2


def test_the_methods_of_one_pass_give_every_measure(build, labelled):
    texts, labels = labelled(240)
    for name in ("distilled", "analytic"):
        pred = build(name).calibrate(texts, labels).predict(labelled(10, seed=4)[0])
        for measure in ("expected_entropy", "mutual_information", "variance"):
            assert (getattr(pred, measure) > 0).all(), (name, measure)
        assert pred.passes.tolist() == [1] * 10
    row = build("base").predict(["a1 a2"])[0].as_row()
    assert [row[name] for name in ("expected_entropy", "mutual_information", "variance")] == [None] * 3


SECOND = "uat:samples=4"


def test_it_says_more_about_what_is_abstained_on_and_nothing_else_changes(build, labelled):
    texts, labels = labelled(300)
    new = labelled(60, seed=2)[0]
    once = build("base").calibrate(texts, labels, threshold=0.6).predict(new)
    clf = build("base").calibrate(texts, labels, threshold=0.6, second_look=SECOND)
    twice = clf.predict(new)
    assert 0 < twice.abstain.sum() < len(new)
    for name in ("abstain", "labels", "probabilities", "logit_margin", "above_threshold"):
        np.testing.assert_array_equal(getattr(twice, name), getattr(once, name))
    assert once.second_probabilities is None
    assert np.isnan(twice.second_probabilities[~twice.abstain]).all()
    assert twice.second_probabilities[twice.abstain].sum(axis=1) == pytest.approx(1)
    assert (twice.second_mutual_information[twice.abstain] >= 0).all()
    assert [label is not None for label in twice.second_labels] == twice.abstain.tolist()


def test_its_probabilities_are_calibrated_on_the_rows_that_were_abstained_on(build, labelled):
    texts, labels = labelled(300)
    clf = build("base").calibrate(texts, labels, threshold=0.6, second_look=SECOND, calibrator="temperature")
    look, pred = clf.calibration_.second_look, clf.predict(texts, check_shift=False)
    assert FEWEST_DOUBTED <= look.rows <= pred.abstain.sum() + 6  # the scope of calibration rows is cross-fitted
    passes = build(SECOND).predict(texts)
    columns = np.array([clf.class_names.index(label) for label in labels])
    assert clf.calibration_.scope.inside is not None
    doubted = (pred.confidence <= 0.6) | ~clf.calibration_.scope.inside
    logits = np.log(passes.probabilities)  # up to a constant a text
    expected = Temperature.fit(logits[doubted], columns[doubted])
    assert look.rows == doubted.sum()
    where = pred.abstain & doubted
    np.testing.assert_allclose(pred.second_probabilities[where], expected.probabilities(logits[where]), atol=1e-4)


def test_without_a_rule_it_is_for_texts_out_of_scope(build, labelled):
    texts, labels = labelled(300)
    given = {"reference": labelled(400, seed=3)[0], "false_alarm": 0.2, "second_look": "analytic"}
    pred = build().calibrate(texts, labels, **given).predict(labelled(60, seed=2)[0])
    assert 0 < pred.out_of_scope.sum() < 60
    assert pred.passes.tolist() == (1 + pred.out_of_scope).tolist()


def test_a_second_look_needs_something_to_look_at(build, labelled):
    texts, labels = labelled(300)
    with pytest.raises(ConfigurationError, match=r"no rule to abstain by; ask for one: .*target_risk=0\.05"):
        build("base").calibrate(texts[:40], labels[:40], second_look=SECOND)
    with pytest.raises(ConfigurationError, match="learns from calibration rows"):
        build("base").calibrate(texts, labels, threshold=0.6, second_look="distilled")


TABLE = {
    "bad": {"bad": 0, "fair": 4, "good": 12, "review": 1},
    "fair": {"bad": 2, "fair": 0, "good": 4, "review": 1},
    "good": {"bad": 3, "fair": 1, "good": 0, "review": 2},
}


@pytest.mark.parametrize("asked", [{"cost_wrong": 3.0}, {"costs": TABLE}], ids=["even", "table"])
def test_by_costs_each_text_gets_what_is_expected_to_cost_least(build, labelled, made_texts, tmp_path, asked):
    classifier = build("base").calibrate(*labelled(300), **asked)
    low, high = classifier.calibration_.rule.cost.review_all[1:]
    assert (low < high) == ("costs" in asked)  # of one price a review costs what it costs
    texts = made_texts(80, 7)
    plain, pred = build("base"), classifier.predict(texts)
    names = classifier.class_names
    prices = {a: {b: TABLE[b][a] if "costs" in asked else 3.0 * (a != b) for b in names} for a in (*names, "review")
              if "costs" in asked or a != "review"}  # fmt: skip
    prices.setdefault("review", dict.fromkeys(names, 1.0))
    for row in pred:
        expected = {a: sum(row.probabilities[b] * prices[a][b] for b in names) for a in prices}
        best = min(names, key=expected.get)
        assert row.label == best
        assert row.confidence == pytest.approx(row.probabilities[best])
        assert row.abstain == (bool(row.out_of_scope) or expected["review"] <= expected[best])
        assert row.above_threshold == pytest.approx(expected["review"] - expected[best])
    assert (pred.predicted != plain.predict(texts).predicted).any() == ("costs" in asked)
    classifier.save_pretrained(tmp_path / "clf")
    again = type(classifier).from_pretrained(tmp_path / "clf")
    assert again.calibration_.rule == classifier.calibration_.rule
    assert again.predict(texts).columns == pred.columns
    assert again.calibration_.shift.score == "logit-margin"


def test_what_a_rule_costs_is_estimated_by_calibrators_that_the_rows_did_not_fit(build, labelled):
    texts, labels = labelled(60)
    classifier = build("base").calibrate(texts, labels, cost_wrong=3.0, seed=4)
    gold = np.array([classifier.class_names.index(label) for label in labels])
    logits = np.log(build("base").predict(texts).probabilities)
    folds, spent = np.random.default_rng(4).permutation(60) % 5, []
    for row in range(60):
        fit = Temperature.fit(logits[folds != folds[row]], gold[folds != folds[row]], None)
        probs = fit.probabilities(logits[[row]])[0]
        wrong = 3.0 * (probs.argmax() != gold[row])
        spent.append(wrong if probs.max() > 1 - 1 / 3 and not classifier.predict(texts).out_of_scope[row] else 1.0)
    assert classifier.calibration_.rule.cost.rule[0] == pytest.approx(np.mean(spent))


def test_costs_are_asked_for_alone_and_of_one_class_a_text(build, labelled):
    rows = labelled(60)
    for given in ({"cost_wrong": -1.0}, {"cost_wrong": float("nan")}, {"costs": {"bad": TABLE["bad"]}}):
        with pytest.raises(ConfigurationError, match="a number, 0 or more"):
            build("base").calibrate(*rows, **given)
    with pytest.raises(ConfigurationError, match="target_risk and cost_wrong were given together"):
        build("base").calibrate(*rows, cost_wrong=3.0, target_risk=0.1)
    with pytest.raises(ConfigurationError, match="cost_wrong and costs were given together"):
        build("base").calibrate(*rows, cost_wrong=3.0, costs=TABLE)
