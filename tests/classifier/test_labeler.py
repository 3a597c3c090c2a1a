"""Many labels a text: answers, calibration, the rule, predictions, saving and explanation, on a tiny model."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

from uatlite import UncertaintyLabeler
from uatlite.attribution.first_order import Case, first_orders
from uatlite.classifier.display import NO_RULE, REASONS
from uatlite.classifier.many_labels import label_answers
from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.predictive import PassLogits, sigmoid
from uatlite.text.labels import label_matrix

LABELS = ("anger", "joy", "fear", "relief")
Make = Callable[..., UncertaintyLabeler]


@pytest.fixture(scope="module")
def make(product_of):
    """`make(config=None, **options)`: a new labeler of a tiny model."""
    return partial(product_of, "labels")


@pytest.fixture(scope="module")
def rows(make, made_texts):
    """Texts, and labels drawn from a sharper version of what the model says, each text's with one uniform number."""
    texts = made_texts(400)
    chances = sigmoid(1.5 * make("analytic").predict(texts).logits - 0.3)
    return texts, np.random.default_rng(0).random((400, 1)) < chances


@pytest.fixture(scope="module")
def labeler(make, rows):
    texts, gold = rows
    return make("analytic").calibrate(texts[:300], gold[:300], target_risk=0.4)


def test_an_answer_is_a_text_and_a_label():
    logits = np.random.default_rng(0).normal(size=(5, 3, 2))
    passes = PassLogits(logits)
    answers = label_answers(passes.mean_logits, passes.label_variance)
    places = [(text, label) for text in range(3) for label in range(2)]
    assert (answers.texts, list(zip(answers.text, answers.kind, strict=True))) == (3, places)
    assert answers.log_odds[3] == pytest.approx(logits[:, 1, 1].mean())
    assert answers.variance[3] == pytest.approx(logits[:, 1, 1].var(ddof=1))


def test_without_calibration_probabilities_are_the_model_s_own(make, made_texts):
    plain, texts = make("base"), made_texts(5)
    pred = plain.predict(texts)
    encoded = plain.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        expected = plain.model(**encoded).logits.sigmoid().numpy()
    assert pred.probabilities == pytest.approx(expected, abs=1e-5)
    assert pred.labels == [tuple(np.array(LABELS)[row > 0.5]) for row in expected]
    assert set(pred.reasons) == {NO_RULE}
    assert pred.logit_variance is None


def loss(chances, gold):
    return float(-np.log(np.where(gold, chances, 1 - chances)).mean())


def test_reported_labels_and_doubt(labeler, rows):
    pred = labeler.predict(rows[0], check_shift=False)
    rule = pred.rule
    assert rule.promised
    inside = ~pred.out_of_scope
    for at in np.flatnonzero(inside)[:50].tolist():
        surest = np.argsort(-pred.logits[at], kind="stable")[: rule.most]
        expected = [place in surest and pred.logits[at, place] > rule.threshold for place in range(4)]
        assert pred.reported[at].tolist() == expected
        doubt = [not said and p > 0.4 for said, p in zip(expected, pred.probabilities[at], strict=True)]
        assert pred.withheld[at].tolist() == doubt
        assert bool(pred.abstain[at]) == (not any(expected) and any(doubt))
    assert not pred.reported[~inside].any()
    assert pred.abstain[~inside].all()
    assert set(pred.reasons) <= set(REASONS)
    assert rows[1][pred.reported].mean() > 0.6


def test_a_model_of_one_class_is_refused(tiny, tokenizer):
    with pytest.raises(ModelError, match="UncertaintyClassifier"):
        UncertaintyLabeler(tiny("bert"), tokenizer)


def test_labels_are_names_columns_or_a_matrix():
    expected = [[False, True, False, True], [False] * 4, [True, False, False, False]]
    for given in (
        [["joy", "RELIEF"], [], ["anger"]],
        [(1, 3), (), (0,)],
        np.array(expected),
        np.array(expected, dtype=int),
        [[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]],
    ):
        assert label_matrix(given, LABELS).tolist() == expected
    with pytest.raises(InputError, match=r"labels\[0\] is 'joy'"):
        label_matrix(["joy"], LABELS)
    with pytest.raises(InputError, match="hope"):
        label_matrix([["hope"]], LABELS)


@pytest.mark.parametrize("method", [None, "fast", "analytic"])
def test_an_explanation_is_the_first_order_variance_of_the_label_s_logit(method, make):
    labeler, text = make(method), "a1 a2 a3 a4"
    found = labeler.explain(text, "fear")
    encoded = labeler.tokenizer([text], return_tensors="pt")
    config = labeler.method.config
    third = torch.tensor([[[0.0, 0.0, 1.0, 0.0]]])
    expected = first_orders(Case.of(labeler.model, encoded, config), lambda rows, logits: third)
    assert found.variance == pytest.approx(float(expected.parts.sum()), rel=1e-5)
    assert [word.word.text for word in found.words] == ["a1", "a2", "a3", "a4"]
    chances = found.prediction.among.probabilities[0]
    assert labeler.explain(text).label == LABELS[int(np.abs(chances - 0.5).argmin())]
    with pytest.raises(ConfigurationError, match="hope"):
        labeler.explain(text, "hope")


@pytest.mark.parametrize("floor", [-9.0, 9.0])
def test_the_default_costs_one_pass(floor, make, rows, monkeypatch):
    """Where the read-out serves it gives variances; where it does not, there are none."""
    monkeypatch.setattr("uatlite.methods.distilled.FLOOR", floor)
    labeler = make().calibrate(rows[0][:200], rows[1][:200])
    pred = labeler.predict(rows[0][:5], check_shift=False)
    assert set(pred.passes.tolist()) == {1}
    said = labeler.calibration_.describe()[0]
    if floor > 1:
        assert pred.logit_variance is None
        assert "so the plain pass runs, without variances" in said
    else:
        assert pred.logit_variance.shape == (5, 4)
        assert "read off one plain pass" in said


@pytest.mark.parametrize("options", [{"target_errors": 0.4}, {"target_risk": 0.4, "score": "confidence"}])
def test_other_promises(options, make, rows):
    labeler = make("analytic").calibrate(rows[0][:300], rows[1][:300], **options)
    calibration = labeler.calibration_
    rule = calibration.rule
    assert rule.promised
    pred = labeler.predict(rows[0][300:], check_shift=False)
    wrong = pred.reported & ~rows[1][300:]
    if "target_errors" in options:
        assert wrong.sum(axis=1).mean() < 0.5
        assert "wrong answers a text" in rule.describe()
    else:
        assert wrong.sum() / pred.reported.sum() < 0.5
        above = pred.probabilities[pred.reported]
        assert above.min() > rule.threshold  # the score is the probability that is shown


def test_a_line_of_the_menu_is_the_rule_of_its_risk(make, made_texts):
    texts = made_texts(300)
    logits = make("base").predict(texts).logits
    gold = (logits > 0) ^ (np.random.default_rng(0).random(logits.shape) < 0.02)
    calibration = make("base").calibrate(texts, gold, menu=True).calibration_
    assert calibration.rule is None
    promised = calibration.menu.rule(0.2)
    rule = make("base").calibrate(texts, gold, target_risk=0.2).calibration_.rule
    assert rule.promised
    assert (promised.threshold, promised.most) == (rule.threshold, rule.most)
    assert (promised.coverage, promised.covered) == (rule.coverage, "gold labels")
    assert promised.threshold >= np.log(0.1 / 0.9)
    assert calibration.menu.rule(0.01) is None  # 2 % of the labels are wrong


def test_unlikely_labels_are_never_reported_and_coverage_is_of_gold(labeler, rows):
    rule = labeler.calibration_.rule
    assert rule.threshold >= np.log(0.1 / 0.9)
    texts, gold = rows[0][:300], rows[1][:300]
    pred = labeler.predict(texts, check_shift=False)
    inside = ~pred.out_of_scope
    assert rule.coverage == pytest.approx((pred.reported & gold)[inside].sum() / gold[inside].sum(), abs=0.02)
    assert "of gold labels" in rule.describe()


def test_figures_are_of_texts_that_did_not_fit_the_calibrator(labeler, rows):
    figures = labeler.calibration_.figures
    assert figures.rows == 300
    assert "cross-validated" in figures.basis
    texts, gold = rows[0][:300], rows[1][:300]
    pred = labeler.predict(texts, check_shift=False)
    expected = loss(sigmoid(pred.logits), gold)
    assert figures.uncalibrated["label_nll"].point == pytest.approx(expected, rel=1e-4)
    assert loss(pred.probabilities, gold) < figures.calibrated["label_nll"].point < expected
    assert "label_ece" in labeler.calibration_.figures.calibrated
