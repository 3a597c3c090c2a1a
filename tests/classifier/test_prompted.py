"""A language model by its label words is a classifier like others: calibrated, saved, explained, served, exported."""

import json

import numpy as np
import pytest
from starlette.testclient import TestClient

import uatlite
from decoders import language_model, tokenizer_of
from uatlite import LabelPrompt, UncertaintyClassifier
from uatlite.classifier.export import export
from uatlite.cli import main
from uatlite.errors import CalibrationError, ConfigurationError, InputError, ModelError, NotAClassifier
from uatlite.serve.app import create_app
from uatlite.serve.service import Service

PROMPT = LabelPrompt("Review: {text}\nSentiment:", ["negative", "positive"])
WORDS = "the film is good bad great one a review".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def rows():
    """90 texts, and labels of which a quarter differs from what the model says."""
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS, size=size)) for size in generator.integers(3, 12, size=90)]


@pytest.fixture(scope="module", params=["gpt2", "llama", "qwen2"])
def home(request, tmp_path_factory):
    """The directory of a language model."""
    directory = tmp_path_factory.mktemp("lm") / request.param
    tokenizer = tokenizer_of("qwen" if request.param == "qwen2" else "gpt2", model_max_length=64)
    language_model(request.param, tokenizer).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def labels_of(clf, texts):
    predicted = clf.predict(texts, check_shift=False).predicted
    predicted[::4] = 1 - predicted[::4]
    return [clf.class_names[column] for column in predicted]


@pytest.fixture(scope="module")
def calibrated(home, rows):
    clf = uatlite.load(home, prompt=PROMPT)
    assert isinstance(clf, UncertaintyClassifier)
    assert clf.class_names == ("negative", "positive")
    return clf.calibrate(rows, labels_of(clf, rows), target_risk=0.4)


@pytest.fixture(scope="module")
def saved(calibrated, tmp_path_factory):
    directory = tmp_path_factory.mktemp("prompted") / "saved"
    calibrated.save_pretrained(directory)
    return directory


def test_it_comes_back_and_says_the_same(calibrated, saved, rows):
    loaded = uatlite.load(saved)
    for texts in (rows[:20], [" ".join(rows[:40])]):
        expected, said = calibrated.predict(texts, check_shift=False), loaded.predict(texts, check_shift=False)
        np.testing.assert_array_equal(said.probabilities, expected.probabilities)
        assert list(said.abstain) == list(expected.abstain)
    assert (said.cut_tokens > 0).tolist() == [True]
    card = (saved / "README.md").read_text()
    assert "Review: {text}⏎Sentiment:" in card
    assert "negative by “ negative”, positive by “ positive”" in card


def test_another_template_is_another_classifier(home, saved, calibrated):
    other = uatlite.load(home, prompt=LabelPrompt("Film: {text}\nSentiment:", PROMPT.labels))
    assert other.settings.tokenizer != calibrated.settings.tokenizer
    other.calibration_ = calibrated.calibration_
    with pytest.raises(uatlite.UATLiteError, match="calibrated with tokenizer"):
        other.predict(["good"])


@pytest.mark.parametrize("method", ["base", "uat:samples=2", "fast:samples=2", "analytic", "mc-uniform:samples=2"])
def test_every_method_runs(home, method, rows):
    said = uatlite.load(home, prompt=PROMPT, method=method).predict(rows[:5])
    assert said.probabilities.shape == (5, 2)
    assert np.isfinite(said.probabilities).all()


def test_the_words_that_are_explained_are_those_of_the_text(home):
    clf = uatlite.load(home, prompt=PROMPT, method="analytic")
    explained = clf.explain("the film is good")
    assert [word.word.text for word in explained.words] == ["the", "film", "is", "good"]
    around = [word.word.text for word in explained.special_tokens]
    assert (around[0], "".join(around[1:])) == ("<s>", "Review:ĊSentiment:")
    assert sum(word.share for word in (*explained.words, *explained.special_tokens)) == pytest.approx(1.0, abs=1e-6)
    assert all(0 < word.masked_confidence < 1 for word in explained.words)


def test_it_is_served(saved, calibrated):
    with TestClient(create_app(Service(uatlite.load(saved)))) as client:
        answer = client.post("/predict", json={"texts": ["the film is good"]}).json()
    row = answer["predictions"][0]
    assert row["label"] == calibrated.predict(["the film is good"]).labels[0]


@pytest.mark.parametrize("int8", [False, True])
def test_it_is_exported(home, tmp_path, rows, int8):
    clf = UncertaintyClassifier.from_pretrained(home, prompt=PROMPT, method="base")
    export(clf, tmp_path / "onnx", int8=int8)
    ours, theirs = uatlite.load(tmp_path / "onnx"), clf
    texts = [*rows[:20], " ".join(rows[:40])]
    tolerance = 0.1 if int8 else 1e-4
    np.testing.assert_allclose(
        ours.predict(texts).probabilities, theirs.predict(texts).probabilities, atol=tolerance, rtol=0
    )
    assert (ours.predict(texts).cut_tokens > 0).tolist() == [False] * 20 + [True]
    with pytest.raises(InputError, match="takes single texts, and these are pairs"):
        ours.predict([("good", "bad")])
    again = tmp_path / "again"
    ours.save_pretrained(again)
    np.testing.assert_array_equal(uatlite.load(again).predict(texts).probabilities, ours.predict(texts).probabilities)


def test_pairs_are_exported(home, tmp_path):
    prompt = LabelPrompt("{text}\nfilm: {text_pair}\nSentiment:", ["negative", "positive"])
    clf = uatlite.load(home, prompt=prompt, method="base")
    export(clf, tmp_path / "onnx")
    texts = [("the film", "is good"), ("bad", "one")]
    np.testing.assert_allclose(
        uatlite.load(tmp_path / "onnx").predict(texts).probabilities, clf.predict(texts).probabilities, atol=1e-4
    )


def test_the_command_line(home, tmp_path, rows, capsys):
    path = tmp_path / "rows.jsonl"
    labels = labels_of(uatlite.load(home, prompt=PROMPT, method="base"), rows)
    named = {"negative": "0", "positive": "1"}
    path.write_text(
        "".join(json.dumps({"text": t, "label": named[y]}) + "\n" for t, y in zip(rows, labels, strict=True))
    )

    def run(*given):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in given])
        return int(ended.value.code or 0), capsys.readouterr().err

    asked = ("--prompt", r"Review: {text}\nSentiment:", "--labels", "0=negative|bad,1=positive|good")
    code, said = run("calibrate", home, path, "-o", tmp_path / "out", "--method", "base", *asked)
    assert code == 0, said
    assert uatlite.load(tmp_path / "out").class_names == ("0", "1")
    assert run("predict", tmp_path / "out", path, "-o", tmp_path / "scored.jsonl")[0] == 0
    assert len((tmp_path / "scored.jsonl").read_text().splitlines()) == len(rows)
    code, said = run("calibrate", home, path, "-o", tmp_path / "no", *asked[:2])
    assert code == 2
    assert "--prompt and --labels are given together" in said
    code, said = run("calibrate", home, path, "-o", tmp_path / "no")
    assert code == 2
    assert "A causal language model can be asked" in said
    code, said = run("calibrate", home, path, "-o", tmp_path / "no", "--prompt", "Review:", *asked[2:])
    assert "must hold {text} once" in said


def test_a_template_longer_than_the_limit_is_said(home):
    with pytest.raises(ConfigurationError, match=r"max_length=5 leaves no room .* beside the \d+ of the template"):
        uatlite.load(home, prompt=PROMPT, max_length=5).predict(["good"])
    with pytest.raises(NotAClassifier, match="A causal language model can be asked"):
        uatlite.load(home)
    with pytest.raises(ModelError, match=r"so it is no adapter; .* or leave the base away"):
        uatlite.load(home, base=home)


@pytest.fixture
def dropless(home):
    """`dropless(method)`: a classifier whose language model has no dropout of its own."""
    if "gpt2" in str(home):
        pytest.skip("GPT-2 was trained with dropout")
    return lambda method: uatlite.load(home, prompt=PROMPT, method=method)


def test_rates_that_the_model_stands_are_chosen_without_labels(dropless, home, rows, tmp_path):
    gold = labels_of(dropless("base"), rows)
    clf = dropless("uat:samples=3")
    some = [rows[row] for row in sorted(np.random.default_rng(0).permutation(90)[:50])]
    plain = dropless("base").predict(some, check_shift=False).predicted

    def kept(factor):
        """The slow, obvious way."""
        at = {name: rate * factor for name, rate in (("embedding", 0.1), ("attention", 0.2), ("feed_forward", 0.3))}
        spelt = ",".join(f"{name}={rate:.4g}" for name, rate in at.items())
        said = dropless(f"uat:samples=3,{spelt}").predict(some, check_shift=False).predicted
        return np.mean(said == plain), f"uat:samples=3,{spelt}"

    tried = [(factor, *kept(factor)) for factor in (1, 0.3, 0.1, 0.03, 0.01)]
    factor, share, name = next((row for row in tried if row[1] >= 0.95), tried[-1])
    clf.calibrate(rows, gold, calibrator="temperature")
    assert factor < 1 or "llama" not in str(home)
    assert clf.method.name == ("uat:samples=3" if factor == 1 else name)
    sentence = f"under the method's rates {tried[0][1]:.0%} of 50 texts keep their plain answer"
    chosen = "" if factor == 1 else f"; all rates are multiplied by {factor:g}, under which {share:.0%} do"
    assert f"{sentence}{chosen}." in clf.calibration_.spending[0]
    others = dropless("uat:samples=3").calibrate(rows, gold[::-1], calibrator="temperature")
    assert others.method.name == clf.method.name
    clf.save_pretrained(tmp_path / "saved")
    assert "Rates: the model has no dropout of its own" in (tmp_path / "saved" / "README.md").read_text()
    again = uatlite.load(tmp_path / "saved").predict(rows[:5], check_shift=False)
    np.testing.assert_array_equal(again.confidence, clf.predict(rows[:5], check_shift=False).confidence)


def test_rates_that_destroy_the_answers_are_refused(dropless, rows):
    gold = labels_of(dropless("base"), rows)
    with pytest.raises(
        CalibrationError, match=r"changes \d+% of the plain answers to 50 texts: the model has no dropout"
    ):
        dropless("uat:samples=2,feed_forward=0.9,attention=0.9,embedding=0.9").calibrate(rows, gold)


def test_rates_of_a_model_with_dropout_are_kept(product_of, made_texts):
    texts = made_texts(60)
    clf = product_of("one", "uat:samples=2")
    clf.calibrate(texts, clf.predict(texts).labels, calibrator="temperature")
    assert clf.method.name == "uat:samples=2"
    assert not any("Rates" in line for line in clf.calibration_.spending)
