"""The classifier: what it says, to whom, and what it refuses."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from uatlite.codec import dump
from uatlite.errors import CalibrationError, InputError
from uatlite.model.tokens import longest, tokenize
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample
from uatlite.predictive import predict
from uatlite.values import Choices


def test_the_default_is_one_pass_once_it_is_calibrated(build, labelled):
    clf = build()
    assert clf.method == build("distilled").method
    texts = labelled(5, seed=9)[0]
    assert clf.predict_proba(texts) == pytest.approx(build("analytic").predict_proba(texts), abs=1e-12)
    clf.calibrate(*labelled(240))
    assert clf.method.passes == 1
    plain = build("base").predict(texts).logit_margin
    assert clf.predict(texts, check_shift=False).logit_margin == pytest.approx(plain, abs=1e-6)


def test_a_configuration_is_a_method(build):
    assert build(UATConfig.fast()).method == build("fast").method
    assert build(UATConfig()).method.name == "uat"
    assert build(UATConfig(gate="k")).method.name == "uat:gate=k"


@pytest.mark.parametrize("calibrator", ["none", "temperature"])
def test_it_is_the_engine_and_the_predictive_distribution(build, labelled, calibrator):
    """A temperature divides the logits of every pass."""
    texts, labels = labelled(60)
    clf = build(UATConfig(samples=4)).calibrate(texts, labels, calibrator=calibrator)
    temperature = getattr(clf.calibration_.calibrator, "temperature", 1.0)
    encoded = clf.tokenizer(texts[:9], padding=True, return_tensors="pt")
    expected = predict(sample(clf.model, encoded, UATConfig(samples=4)).logits.numpy() / temperature)
    uncalibrated = [build(UATConfig(samples=4))] if calibrator == "none" else []
    for pred in (product.predict(texts[:9]) for product in (clf, *uncalibrated)):
        for name in ("probabilities", "confidence", "entropy", "mutual_information", "margin", "variance"):
            np.testing.assert_allclose(getattr(pred, name), getattr(expected, name), atol=1e-5)
        assert pred.labels.tolist() == [clf.class_names[column] for column in expected.predicted]


def test_threads_do_not_disturb_each_other(calibrated, made_texts):
    parts = [made_texts(12, seed=seed, longest=60) for seed in range(8)]  # some are cut: that sets the tokenizer
    alone = [calibrated.predict(part).probabilities for part in parts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda part: calibrated.predict(part).probabilities, parts * 3))
    for expected, got in zip(alone * 3, together, strict=True):
        assert np.array_equal(expected, got)


def test_the_model_is_left_as_it_was(build, labelled):
    clf = build()
    before = {name: value.clone() for name, value in clf.model.state_dict().items()}
    clf.model.train()
    clf.calibrate(*labelled(120), target_risk=0.4).as_model()
    assert all(module.training for module in clf.model.modules())
    assert all(torch.equal(before[name], value) for name, value in clf.model.state_dict().items())
    assert clf.model.config._attn_implementation == build().model.config._attn_implementation


def test_pairs_and_single_texts_may_be_mixed(build):
    clf = build()
    mixed = clf.predict(["a1 a2", ("a3", "a4 a5"), ["a3", "a4 a5"]])
    np.testing.assert_allclose(mixed.probabilities[1], mixed.probabilities[2], atol=1e-6)
    np.testing.assert_allclose(mixed.probabilities[1:2], clf.predict_proba([("a3", "a4 a5")]), atol=1e-5)


def test_questions_have_as_many_options_as_those_of_calibration(build):
    clf = build(choices=True)
    questions = [Choices(f"a{n % 56} a{n % 9}", (f"a{n % 7}", f"a{n % 11} a1", f"a{n % 5}")) for n in range(70)]
    before = clf.predict(questions)
    clf.calibrate(questions, (before.predicted + (np.arange(70) % 3 == 0)) % 3, calibrator="temperature")
    assert clf.score(questions, before.labels) == 1.0
    with pytest.raises(InputError, match="2 options, where the other questions have 3"):
        clf.predict([Choices("a1", ("a2", "a3"))])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a1", "a2"), "a tuple"),
        (7, "is a int"),
        (["a1", None], r"texts\[1\]: None is not a text"),
        (["a1", 3.5], r"texts\[1\]: 3.5 is not a text"),
        (["a1", ""], r"texts\[1\]: an empty text"),
        ([("a1", "  ")], r"texts\[0\]: an empty text"),
        ([("a1", "a2", "a3")], "is not a text"),
        ([Choices("a1", ("a2", "a3"))], "the model is not for multiple choice"),
    ],
)
def test_what_is_no_text_is_refused(build, texts, message):
    with pytest.raises(InputError, match=message):
        build().predict(texts)


def test_one_text_is_a_list_of_one(build):
    pred = build().predict("a1 a2")
    assert pred.texts == ("a1 a2",)
    assert np.array_equal(pred.probabilities, build().predict_proba(["a1 a2"]))
    asked = Choices("a1", ("a2", "a3"))
    assert build(choices=True).predict(asked).texts == (asked,)
    with pytest.raises(InputError, match="an empty text"):
        build().predict("")
    with pytest.raises(InputError, match="one string"):  # rows of calibration always are many
        build().calibrate("a1", ["good"])


def test_arrays_and_columns_are_lists_of_texts(build):
    pandas = pytest.importorskip("pandas")
    texts = ["a1 a2", "a3"]
    expected = build().predict_proba(texts)
    for form in (np.array(texts), pandas.Series(texts), iter(texts)):
        assert np.array_equal(build().predict_proba(form), expected)
    pairs = np.array([["a1", "a2"], ["a3", "a4"]])
    assert np.array_equal(build().predict_proba(pairs), build().predict_proba([("a1", "a2"), ("a3", "a4")]))


def test_without_label_sets_it_says_how_to_get_them(build):
    with pytest.raises(CalibrationError, match=r"label_sets=0\.9"):
        _ = build().predict(["a1", "a2"]).label_sets


def test_labels_may_be_names_or_columns(build, labelled):
    texts, labels = labelled(60)
    columns = [("bad", "fair", "good").index(label) for label in labels]
    spelt = [label.upper() for label in labels]
    states = []
    for given in (labels, columns, np.array(columns), spelt):
        clf = build("base").calibrate(texts, given, calibrator="temperature", review_share=0.5)
        states.append(dump(clf.calibration_))
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            ["good"] * 59 + ["excellent"],
            r"labels\[59\] is 'excellent'; allowed are the model's classes \(bad, fair, good",
        ),
        (
            [0] * 59 + [3],
            r"labels\[59\] is 3; allowed are .* or their columns, 0 to 2",
        ),
        ([0.5] * 60, r"labels\[0\] is"),
        ([None] * 60, r"labels\[0\] is None"),
    ],
)
def test_labels_that_are_none_of_the_model_are_refused(build, labelled, labels, message):
    with pytest.raises(InputError, match=message):
        build("base").calibrate(labelled(60)[0], labels)


def test_settings_that_changed_since_calibration_are_an_error(calibrated):
    calibrated.set_params(max_length=12)
    with pytest.raises(CalibrationError, match="max_length 40, now 12"):
        calibrated.predict(["a1"])
    calibrated.set_params(max_length=None, config="base")
    with pytest.raises(CalibrationError, match="method distilled, now base"):
        calibrated.predict(["a1"])
    calibrated.set_params(config=None, seed=3)
    with pytest.raises(CalibrationError, match="seed 0, now 3"):
        calibrated.as_model()
    calibrated.set_params(seed=None)
    assert len(calibrated.predict(["a1"])) == 1


def test_a_shift_is_warned_of_and_likeness_is_not(calibrated, made_texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = calibrated.predict(made_texts(150, seed=9))
    assert same.shift.shifted is False
    with pytest.warns(UserWarning, match="The data have shifted"):
        other = calibrated.predict(["a7 a7 a7 a7"] * 40)
    assert other.shift.shifted is True
    assert "The data have shifted" in repr(other)
    assert "The data have shifted" in other._repr_html_()
    assert calibrated.predict(made_texts(5)).shift.shifted is None
    assert calibrated.predict(made_texts(30), check_shift=False).shift is None


def test_what_is_cut_is_counted(build, made_texts):
    clf = build(max_length=10)
    texts = [*made_texts(3, longest=5), " ".join(["a1"] * 30), " ".join(["a2"] * 20)]
    pred = clf.predict(texts)
    tokens = tokenize(clf.tokenizer, texts, longest(clf.model, clf.tokenizer, 10))
    assert (pred.truncated_texts, pred.truncated_tokens) == (tokens.truncated_texts, tokens.truncated_tokens) == (2, 34)
    assert "2 texts were cut, 34 tokens in all" in repr(pred)
    assert pred.cut_tokens.tolist() == [0, 0, 0, 22, 12]
    assert pred.reasons == ["no rule", "no rule", "no rule", "cut", "cut"]
    assert pred[3].why == "22 tokens were cut off"
    assert pred[:4].truncated_tokens == 22
