"""Explanations: the values of direct calls, the prediction of `predict`, no pass that is run twice, and sentences."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from uatlite.attribution.attention import attention_shift
from uatlite.attribution.layers import attribute
from uatlite.attribution.words import attribute_words
from uatlite.classifier.display import listed
from uatlite.classifier.explainer import replacement_id
from uatlite.classifier.explanation import Comparison, Sentences
from uatlite.classifier.one_class import ClassPredictions, class_answers
from uatlite.errors import ConfigurationError, InputError
from uatlite.passes.config import DropoutRates, UATConfig
from uatlite.passes.engine import sample
from uatlite.predictive import predict
from uatlite.trust.rule import Rule
from uatlite.values import Choices, Word, WordAttribution

TEXT = "a1 a2 a30 a4 a5"
RATES = DropoutRates(classifier=0.1)


def contrast(found):
    """The columns of the predicted class and of the next likely one."""
    first, second = np.argsort(-np.array(list(found.prediction.probabilities.values())))[:2].tolist()
    return first, second


@pytest.mark.parametrize("config", ["analytic", UATConfig(rates=RATES, samples=3)])
@pytest.mark.parametrize("text", [TEXT, ("a1 a2", "a30 a4 a5")])
def test_values_are_those_of_direct_calls(build, config, text):
    clf = build(config)
    found = clf.explain(text)
    parts = [text] if isinstance(text, str) else list(text)
    encoded = clf.tokenizer(*([part] for part in parts), return_tensors="pt")
    settings = clf.method.config
    layers = attribute(clf.model, encoded, settings, output=contrast(found))
    expected = [word for word in attribute_words(layers, clf.tokenizer, encoded)[0] if not word.word.special]
    assert [word.share for word in found.words] == pytest.approx([word.share for word in expected])
    sampled = config != "analytic"
    uncertainty = sample(clf.model, encoded, settings).token_uncertainty[0] if sampled else layers.token_uncertainty[0]
    assert [word.uncertainty for word in found.words] == pytest.approx(
        [float(uncertainty[list(word.word.tokens)].mean()) for word in expected]
    )
    assert [word.word.text for word in found.special_tokens] == ["[CLS]", *["[SEP]"] * len(parts)]
    assert [[word.word.text for word in run] for run in found.segments] == [part.split() for part in parts]
    assert [token.uncertainty for token in found.tokens] == pytest.approx(uncertainty.tolist())
    assert found.uncertainty_estimate == ("lagged, 3 passes" if sampled else "closed-form")
    assert [layer.contribution for layer in found.layers] == pytest.approx(layers.contributions[0].tolist())
    assert sum(layer.share for layer in found.layers) == pytest.approx(1)
    shift = attention_shift(clf.model, encoded, settings, sampled=clf.method.stochastic)
    torch.testing.assert_close(found.attention.modulated, shift.modulated)


@pytest.mark.parametrize("estimator", ["total-variance", "isolated"])
def test_sampled_estimators_carry_their_errors(build, estimator):
    clf = build(UATConfig(rates=RATES))
    found = clf.explain(TEXT, estimator=estimator, samples=20, occlusion=False, attention=False)
    encoded, how = clf.tokenizer([TEXT], return_tensors="pt"), {"estimator": estimator, "samples": 20}
    direct = attribute(clf.model, encoded, UATConfig(rates=RATES), output=contrast(found), **how)
    assert [layer.contribution for layer in found.layers] == pytest.approx(direct.contributions[0].tolist())
    assert [layer.error for layer in found.layers] == pytest.approx(direct.contribution_errors[0].tolist())
    assert list(found.layers[1].components.values()) == pytest.approx(direct.components[0, 0].tolist())
    assert found.layers[0].components == {"embedding": found.layers[0].contribution}
    assert found.attention is None
    assert all(word.masked_confidence is None for word in found.words)


def test_analytic_predicts_and_explains_in_one_pass(build):
    clf, calls = build("analytic"), []
    with clf.model.register_forward_pre_hook(lambda *_: calls.append(1)):
        clf.explain(TEXT, occlusion=False, attention=False)
    assert len(calls) == 1


def test_questions_are_explained_option_by_option(build):
    found = build("analytic", choices=True).explain(Choices("a1 a2", ("a3", "a4 a5 a6")))
    texts = [[word.word.text for word in run] for run in found.segments]
    assert texts == [["a1", "a2"], ["a3"], ["a1", "a2"], ["a4", "a5", "a6"]]
    assert found.prediction.label in ("A", "B")
    assert found.sequence == (range(8), range(8, 16))["AB".index(found.label)]
    assert [token.place for token in found.tokens] == [*range(6), *range(8, 16)]
    assert found.attention.plain.shape[2] == 2


METHODS = [
    "analytic",
    "distilled",
    "uat:samples=3",
    "mc-component:uncertainty=cv+ln",
    "fast",
    "mc-component:samples=4",
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["one", "choice", "labels", "entities"])
def test_u_is_that_of_the_method_in_explanations_and_of_every_token(product_of, made_texts, kind, method):
    """One value for a word, by whatever way it is asked for."""
    product = product_of(kind, method)
    texts = [Choices(text, ("a1", "a2 a3")) for text in made_texts(6)] if kind == "choice" else made_texts(6)
    text = next(text for text in texts if len(product.predict([text]).answers))
    found, config = product.explain(text), product.method.config
    flat = [(text.question, option) for option in text.options] if kind == "choice" else [text]
    encoded = product.tokenizer(flat, return_tensors="pt", padding=True)
    if kind == "choice":
        encoded = {name: values[None] for name, values in encoded.items()}
    expected = None
    if product.method.stochastic:
        expected = sample(product.model, encoded, config).token_uncertainty[0].flatten()
    elif kind in ("one", "choice"):
        expected = attribute(product.model, encoded, config).token_uncertainty[0].flatten()
    tokens = product.predictor().tokens(texts)
    assert [len(of) for of in tokens] == [len(product.predictor().tokens([text])[0]) for text in texts]
    of_text = [token["uncertainty"] for token in tokens[texts.index(text)]]
    words = [*found.words, *found.special_tokens]
    places = [token for word in sorted(words, key=lambda word: word.word.tokens) for token in word.word.tokens]
    assert [token["token"] for token in tokens[texts.index(text)]].count("[CLS]") == len(flat)
    for word in words:
        values = [of_text[places.index(token)] for token in word.word.tokens]
        assert word.uncertainty == pytest.approx(np.mean(values), abs=1e-5)
    if expected is not None:
        assert of_text == pytest.approx(expected[places].tolist(), abs=1e-5)
    assert found.uncertainty_estimate.startswith(
        "lagged" if product.method.stochastic and method != "fast" else "closed"
    )


@pytest.mark.parametrize("kind", ["one", "choice", "labels", "entities"])
def test_words_are_spelt_as_the_user_spelt_them(product_of, made_texts, kind):
    """The tokenizer has small letters only, and does not know Ünknown words."""
    product = product_of(kind, "analytic")
    texts = [f"Ünknown {text.upper()}" for text in made_texts(20)]
    text = next(text for text in texts if len(product.predict([text]).answers)) if kind != "choice" else texts[0]
    words = text.split()
    if kind == "choice":
        text, words = Choices(text, ("A1", "a2 A3")), [*words, "A1", *words, "a2", "A3"]
    found = product.explain(text)
    assert [word.word.text for word in found.words] == words
    assert {word.word.text for word in found.special_tokens} == {"[CLS]", "[SEP]"}


@pytest.mark.parametrize("kind", ["one", "labels"])
def test_it_is_saved_by_the_extension(product_of, kind, tmp_path):
    found = product_of(kind, "analytic").explain(TEXT)
    for name in ("why.json", "why.html", "why.png", "why.svg") if kind == "one" else ("why.json",):
        for path in (tmp_path / name, str(tmp_path / f"again-{name}")):
            found.save(path)
        assert len((tmp_path / name).read_bytes()) == len((tmp_path / f"again-{name}").read_bytes())
    assert json.loads((tmp_path / "why.json").read_text()) == json.loads(json.dumps(found.to_dict()))
    with pytest.raises(ConfigurationError, match=r"why\.pdf has the extension"):
        found.save("why.pdf")
    if kind == "one":
        found.save(tmp_path / "masking.html", shading="masking", layer=1)
        assert "layer 1" in (tmp_path / "masking.html").read_text()


def test_it_is_plain_json(build):
    found = build("analytic").explain(TEXT)
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["text"] == [TEXT]
    assert plain["prediction"]["label"] == found.prediction.label
    assert plain["layers"][1]["components"]["attention"] == found.layers[1].components["attention"]
    difference = torch.tensor(plain["attention"]["difference"])  # (layers, heads, tokens, tokens)
    torch.testing.assert_close(difference, found.attention.difference[:, 0])
    assert plain["summary"]["says"] == found.summary.says
    assert plain["threshold"] is None  # no rule
    assert repr(found).splitlines()[1] == str(found.summary)


def test_what_cannot_be_explained(build):
    """Other faults are those of the command, which says the same."""
    with pytest.raises(InputError, match=r"\['a', 'b', 'c'\].*is not a text|is not a text"):
        build("analytic").explain(["a", "b", "c"])
    with pytest.raises(InputError, match="read in 3 windows of 40 tokens"):
        build("analytic", windows=True).explain("a1 " * 90)


def test_a_long_text_is_cut_and_the_cut_is_counted(build):
    found = build("analytic", max_length=10).explain("a1 " * 20, occlusion=False)
    assert (len(found.words), found.prediction.cut_tokens) == (8, 12)


def test_the_band_is_that_of_drawn_margins(build):
    found = build("analytic").explain(TEXT, occlusion=False, attention=False)
    logits, variance = found.reading.mean_logits[0], float(found.reading.given_variance[0, 0])
    top, second = np.argsort(-logits)[:2]
    moved = np.tile(logits, (100_000, 1))
    drawn = np.random.default_rng(0).normal(0.0, variance**0.5, size=len(moved))
    moved[:, top] += drawn / 2
    moved[:, second] -= drawn / 2
    likely = np.exp(moved[:, top]) / np.exp(moved).sum(axis=1)
    assert found.band.margin == pytest.approx(found.prediction.logit_margin)
    assert found.band.spread == pytest.approx(variance**0.5)
    width = found.band.probabilities[-1] - found.band.probabilities[0]
    assert found.band.probabilities == pytest.approx(np.quantile(likely, found.band.shares), abs=0.02 * width)
    assert found.to_dict()["band"]["margin"] == found.band.margin


@pytest.mark.parametrize("method", ["analytic", "distilled", UATConfig(rates=RATES, samples=3)])
def test_a_masked_word_has_the_confidence_of_predicting_without_it(build, labelled, method):
    clf = build(method).calibrate(*labelled(150))
    found = clf.explain(TEXT, attention=False)
    assert found.calibrated
    words, embeddings = TEXT.split(), clf.model.get_input_embeddings().num_embeddings
    mask = clf.tokenizer.convert_ids_to_tokens(replacement_id(clf.tokenizer, embeddings))
    for place, word in enumerate(found.words):
        masked = " ".join([*words[:place], mask, *words[place + 1 :]])
        said = clf.predict([masked], check_shift=False)[0].probabilities[found.label]
        assert word.masked_confidence == pytest.approx(said, abs=1e-5)


def test_what_a_masked_word_is_replaced_by():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "[MASK]": 2})))
    with pytest.raises(InputError, match=r"no mask, unknown or padding token.*occlusion=False"):
        replacement_id(tokenizer)
    tokenizer.add_special_tokens({"mask_token": "[MASK]", "unk_token": "[UNK]"})
    assert replacement_id(tokenizer) == 2
    assert replacement_id(tokenizer, embeddings=2) == 0  # the model has no mask token: the unknown one


def test_it_is_about_the_predicted_class_also_where_the_pass_without_dropout_says_another(build):
    """Few sampled passes at high rates, so that some texts get another class."""
    rates = DropoutRates(embedding=0.5, attention=0.5, feed_forward=0.5, classifier=0.5)
    clf = build(UATConfig(rates=rates, samples=2))
    texts = [f"a{i} a{i + 1} a{2 * i}" for i in range(1, 40)]
    explained = [clf.explain(text, occlusion=False, attention=False) for text in texts]
    others = [found for found in explained if found.quiet_label != found.label]
    assert others
    for found in others:
        assert found.label == found.prediction.label == clf.class_names[contrast(found)[0]]
        encoded = clf.tokenizer([found.text], return_tensors="pt")
        direct = attribute(clf.model, encoded, clf.method.config, output=contrast(found))
        assert [layer.contribution for layer in found.layers] == pytest.approx(direct.contributions[0].tolist())


RULE = Rule(
    kind="risk", score="logit-margin", threshold=1.5, target=0.1, confidence=0.95, texts=100,
    answers=100, reported=80, errors=3,
    risk_bound=None, coverage=0.8, coverage_interval=(0.7, 0.9), promised=True,
)  # fmt: skip


def predicted(margin, rule=RULE, p_value=None, spread=0.0):
    """The second of two classes by a logit margin, from two passes this far from it."""
    return ClassPredictions(
        texts=("a text",),
        classes=("bad", "good"),
        **class_answers(predict(np.array([[[0.0, margin - spread]], [[0.0, margin + spread]]]))),
        passes=np.array([4]),
        rules=() if rule is None else (rule,),
        scope=None if p_value is None else np.array([p_value]),
        out_of_scope=None if p_value is None else np.array([p_value <= 0.01]),
    )[0]


def words(**shares):
    return tuple(WordAttribution(Word(text, (1,), False), 0.1, share, share, None) for text, share in shares.items())


def summarised(prediction, **changed):
    given = {"words": words(not_=0.3, bad=0.4, all=0.05), "special_tokens": words(cls=0.09, sep=0.01)}
    given |= {"interval": (0.4, 0.9), "band": None, "calibrated": True}
    return Sentences.of(SimpleNamespace(prediction=prediction, label="good", **{**given, **changed}))


def test_what_it_says_and_how_sure():
    assert summarised(predicted(1.0)).says == "The model says good and is 73.1% sure (calibrated)."
    says = summarised(predicted(1.0), calibrated=False).says
    assert says == "The model says good and is 73.1% sure, by probabilities that were not calibrated."


@pytest.mark.parametrize(
    ("prediction", "decision"),
    [
        (predicted(2.25), "It answers: its logit margin of 2.25 is 0.75 above the threshold of 1.50."),
        (predicted(1.0), "It abstains: its logit margin of 1.00 is 0.50 below the threshold of 1.50."),
        (predicted(1.5), "It abstains: its logit margin of 1.50 is not above the threshold, which is the same."),
        (
            predicted(1.0, replace(RULE, score="confidence", threshold=0.9)),
            "It abstains: its confidence of 73.1% is 16.9 points below the threshold of 90.0%.",
        ),
        (
            predicted(1.0, replace(RULE, threshold=math.inf)),
            "It abstains, as on every text: the calibration rows can promise nothing.",
        ),
        (predicted(1.0, replace(RULE, threshold=-math.inf)), "It answers, as every text."),
        (
            predicted(0.1, spread=2.0),
            "It abstains: its logit margin of 0.10 is 1.40 below the threshold of 1.50; dropout is enough to change "
            "its label.",
        ),
        (predicted(1.0, None), "It has no rule to abstain by."),
        (
            predicted(9.0, RULE, 0.002),
            "It abstains: the text is out of scope (p-value 0.002), unlike the calibration texts, so both label and "
            "confidence mean little.",
        ),
    ],
)
def test_the_decision_has_its_reason(prediction, decision):
    assert summarised(prediction).decision == decision
    if prediction.among.rule is not None:
        assert decision.startswith("It abstains" if prediction.abstain else "It answers")


@pytest.mark.parametrize(
    ("margin", "changed", "doubt"),
    [
        (
            1.0,
            {},
            "Most of the doubt comes from “bad” and “not_” (70% of the variance); the 4 passes say between 40.0% and "
            "90.0%.",
        ),
        (
            1.0,
            {"words": words(a=0.2, b=0.12, c=0.11, d=0.1), "band": "a band"},
            "43% of the doubt comes from “a”, “b” and “c”, the rest is spread over many tokens and the head; under "
            "dropout the probability would be between 40.0% and 90.0%.",
        ),
        (
            1.0,
            {"words": words(a=0.2), "special_tokens": words(sep=0.02, cls=0.71), "interval": None},
            "20% of the doubt comes from “a”, 71% comes from cls, which every text has.",
        ),
        (
            1.0,
            {"words": words(a=0.08), "special_tokens": words(cls=0.71), "interval": None},
            "No word carries a tenth of the doubt: 71% comes from cls, which every text has.",
        ),
        (
            1.0,
            {"words": words(a=0.09), "interval": None},
            "No word carries a tenth of the doubt: it is spread over many tokens and the head.",
        ),
        (4.0, {"interval": (0.96, 0.99)}, "There is hardly any uncertainty: the 4 passes say between 96.0% and 99.0%."),
        (
            0.4,
            {"interval": (0.58, 0.61)},
            "Dropout hardly moves it (the 4 passes say between 58.0% and 61.0%): the doubt lies in the text as a "
            "whole, not in single words.",
        ),
    ],
)
def test_whose_doubt_it_is(margin, changed, doubt):
    assert summarised(predicted(margin), **changed).doubt == doubt


def test_many_classes_are_listed_in_short():
    probabilities = {str(i): i / 45 for i in range(10)}
    found = listed(probabilities)
    assert [name for name, _ in found] == ["9", "8", "7", "6", "5", "5 others"]
    assert sum(value for _, value in found) == pytest.approx(1)
    assert listed({"b": 0.4, "a": 0.6}) == [("a", 0.6), ("b", 0.4)]


def test_the_threshold_of_the_predicted_class_is_compared(build, labelled):
    clf = build("analytic").calibrate(*labelled(300), target_risk=0.6, per_class=True)
    found = clf.explain("a1 a2 a3", occlusion=False, attention=False)
    compared = Comparison.of(found.prediction)
    rule, column = clf.calibration_.rule, clf.class_names.index(found.label)
    assert compared.threshold == rule.per_kind[column].threshold
    assert (compared.value > compared.threshold) is (not found.prediction.abstain) or found.prediction.out_of_scope
    assert found.summary.says.startswith(f"The model says {found.label} and is {found.prediction.confidence:.1%} sure")
