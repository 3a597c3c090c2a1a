"""The addresses: what they answer is what the product says offline, for each kind of model."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from serve.clients import same
from uatlite.classifier.classifiers import UncertaintyClassifier, UncertaintyTagger

PRODUCTS = ("classifier", "labeler", "tagger")
TEXT = "a1 a2 a3"


def of(*products):
    """Run a test, which takes `product`, for each of these."""
    return pytest.mark.parametrize("product", products or PRODUCTS, indirect=True)


def predicted(client, texts):
    return client.post("/predict", json={"texts": texts}).json()["predictions"]


def explained(client, text=TEXT, **asked):
    return client.post("/explain", json={"text": text, **asked}).json()


FURTHER = {
    "classifier": [("a1 a2", "a3")],
    "labeler": [("a1 a2", "a3"), "a1 " * 60],
    "tagger": [["a1", "a2 a3", "a4"]],
}
"""Product -> texts of other forms than a short string."""


@pytest.mark.parametrize(("product", "name"), [(name, name) for name in PRODUCTS], indirect=["product"])
def test_an_answer_is_what_the_product_says(api, product, name, made_texts):
    texts = [*made_texts(20, seed=5), *FURTHER[name], " ".join(made_texts(8, seed=8))]
    reply = api.post("/predict", json={"texts": texts}).json()
    assert (reply["calibrated"], reply["method"]) == (True, product.method.name)
    for answer, expected in zip(reply["predictions"], product.predict(texts, check_shift=False), strict=True):
        same(answer, expected)
    decisions = {entity["decision"] for answer in reply["predictions"] for entity in answer.get("entities", ())}
    assert decisions == ({"reported", "withheld"} if name == "tagger" else set())
    assert api.post("/predict", json={"texts": TEXT}).json()["predictions"] == predicted(api, [TEXT])  # a list of one


EMPTY = {"classifier": ["", ("a1", " "), "x" * 20_001], "labeler": ["  "], "tagger": ["", [], ["a1", ""]]}


@pytest.mark.parametrize(("product", "name"), [(name, name) for name in PRODUCTS], indirect=["product"])
def test_a_faulty_text_gets_an_error_of_its_own_beside_the_answers_of_the_others(api, product, name, made_texts):
    good = made_texts(25, seed=5)
    faulty = api.post("/predict", json={"texts": [good[0], *EMPTY[name], *good[1:]]})
    alone = api.post("/predict", json={"texts": good}).json()
    errors = faulty.json()["predictions"][1 : len(EMPTY[name]) + 1]
    assert faulty.status_code == 200
    assert {error["error"]["code"] for error in errors} == {"invalid"}
    assert all(error["error"]["message"] for error in errors)
    answers = [answer for answer in faulty.json()["predictions"] if "error" not in answer]
    assert [answer["reason"] for answer in answers] == [answer["reason"] for answer in alone["predictions"]]
    assert faulty.json()["shift"]["shifted"] == alone["shift"]["shifted"]  # by the texts that were read


def test_a_text_alone_is_answered_to_the_bit(client, classifier):
    assert predicted(client, [TEXT])[0]["probabilities"] == classifier.predict([TEXT])[0].probabilities


@of("labeler")
def test_the_threshold_of_a_label_is_the_probability_that_it_is_reported_above(api, product, made_texts):
    texts, calibration = made_texts(40, seed=6), product.calibration_
    offline = product.predict(texts, check_shift=False).answers
    at_threshold = replace(offline, log_odds=np.full(len(offline), calibration.rule.threshold))
    thresholds = calibration.calibrator.confidence(at_threshold).reshape(len(texts), -1)
    for answer, expected in zip(predicted(api, texts), thresholds, strict=True):
        assert [label["threshold"] for label in answer["decisions"]] == pytest.approx(expected.tolist(), abs=1e-6)
        above = [label for label in answer["decisions"] if label["probability"] > label["threshold"]]
        surest = sorted(above, key=lambda label: -label["log_odds"])[: calibration.rule.most]
        reported = [] if answer["out_of_scope"] else [label["label"] for label in surest]
        assert sorted(answer["labels"]) == sorted(reported)


@of()
def test_the_texts_of_a_request_are_compared_with_the_calibration_rows(api, made_texts):
    requests = (made_texts(100, seed=9), ["a3 a3 a3"] * 100, ["a3"])
    usual, odd, few = (api.post("/predict", json={"texts": texts}).json()["shift"] for texts in requests)
    assert (usual["shifted"], odd["shifted"], few["shifted"]) == (False, True, None)
    assert (usual["level"], few["level"]) == ("green", None)
    assert odd["level"] in ("amber", "red")
    assert "The data have shifted, and " in odd["verdict"]
    assert "Over this request of 100 texts: p = " in odd["verdict"]
    assert odd["expected"]["rows"] <= 100 * 4
    watched = api.get("/model").json()["watch"]
    assert watched["texts"] == 201
    assert "Over the whole life, 201 rows" in watched["verdict"]
    assert watched["level"] in ("green", "amber", "red")


@of("classifier", "labeler")
def test_an_uncalibrated_model_says_nothing_that_it_does_not_know(product, client_of):
    client = client_of(type(product)(product.model, product.tokenizer, "base"))
    reply, told = client.post("/predict", json={"texts": ["a1 a2"]}).json(), client.get("/model").json()
    (answer,) = reply["predictions"]
    unknown = ("abstain", "above_threshold", "label_set", "scope", "out_of_scope")
    uncertainty = answer.get("uncertainty", {})
    assert {answer.get(name) for name in unknown} == {None}
    assert {uncertainty.get(name) for name in ("mutual_information", "variance")} == {None}
    assert {told[name] for name in ("calibration", "rule", "menu", "comparison", "watch")} == {None}
    assert (reply["shift"], answer["reason"], answer["passes"]) == (None, "no rule", 1)
    decisions = {(label["threshold"], label["decision"] == "withheld") for label in answer.get("decisions", ())}
    assert decisions <= {(0.5, False)}  # without a rule labels above one half are reported


def test_multiple_choice_questions_of_unlike_sizes_share_a_request(tiny, classifier, client_of):
    client = client_of(UncertaintyClassifier(tiny("bert", choices=True), classifier.tokenizer, "fast:samples=2"))
    two = {"question": "a1 a2", "options": ["a3", "a4"]}
    three = {"question": "a5", "options": ["a6", "a7", "a8"]}
    answers = predicted(client, [two, three, two])
    assert [list(answer["probabilities"]) for answer in answers] == [["A", "B"], ["A", "B", "C"], ["A", "B"]]
    assert answers[0] == answers[2]
    assert client.post("/predict", json={"texts": ["a1"]}).status_code == 422
    attention, told = explained(client, three)["attention"], client.get("/model").json()
    assert len(attention["plain"][0]) == len(attention["tokens"])
    assert (told["kind"], told["multiple_choice"], told["classes"]) == ("choice", True, [])


def test_an_explanation_shows_all_sides(client, classifier):
    reply, expected = explained(client, masking=True), classifier.explain(TEXT)
    assert reply["promised"] is True
    assert reply["answer"]["probabilities"] == expected.prediction.probabilities
    assert reply["answer"]["probabilities"] != reply["before"]  # a temperature was fitted
    assert [len(reply["passes"]), len(reply["passes"][0])] == [4, 3]
    (words,) = reply["segments"]
    assert [word["text"] for word in words] == ["a1", "a2", "a3"]
    assert [word["masked_confidence"] for word in words] == [word.masked_confidence for word in expected.words]
    assert reply["summary"] == asdict(expected.summary)
    assert sum(layer["share"] for layer in reply["layers"]) == pytest.approx(1)
    attention = reply["attention"]
    assert attention["tokens"] == ["[CLS]", "a1", "a2", "a3", "[SEP]"]
    assert [len(attention["plain"]), len(attention["plain"][0])] == [2, 5]
    assert sum(attention["modulated"][1][2]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("settings", [{}, {"samples": 9}], ids=["served", "other"])
def test_an_explanation_runs_the_passes_once(client, classifier, monkeypatch, settings):
    passes = []
    method = type(classifier.method)
    run = method.run

    def counting(self, *args, **options):
        passes.append(self.passes)
        return run(self, *args, **options)

    monkeypatch.setattr(method, "run", counting)
    reply = explained(client, settings=settings)
    assert passes == [len(reply["passes"])]


def test_other_settings_change_what_is_shown_and_are_not_promised(client):
    tried = ({}, {"samples": 4, "gate": "q"}, {"samples": 9, "penalty": 3, "gate": "k"}, {"gate": "none"})
    served, equal, other, plain = (explained(client, settings=settings) for settings in tried)
    assert equal == served
    assert other["promised"] is False
    assert len(other["passes"]) == other["answer"]["passes"] == 9
    assert other["answer"]["probabilities"] != served["answer"]["probabilities"]
    assert plain["attention"] is None
    assert client.post("/predict", json={"texts": [TEXT]}).json()["method"] == "fast:samples=4"


def check_origins(origins, expected):
    assert origins["variance"] == pytest.approx(expected.variance)
    assert [word["text"] for word in origins["words"]] == [word.word.text for word in expected.words]
    assert [word["share"] for word in origins["words"]] == pytest.approx([word.share for word in expected.words])
    assert {layer["name"]: layer["share"] for layer in origins["layers"]} == pytest.approx(
        {layer.name: layer.share for layer in expected.layers}
    )


@of("labeler")
@pytest.mark.parametrize("label", [None, "fear"])
def test_one_label_is_explained(api, product, label):
    reply, expected = explained(api, label=label), product.explain(TEXT, label)
    assert reply["label"] == expected.label
    same(reply["answer"], expected.prediction)
    check_origins(reply["origins"], expected)
    assert expected.label in reply["origins"]["summary"]


@of("tagger")
def test_one_entity_is_explained(api, product, made_texts):
    predictions = product.predict(made_texts(30, seed=7), check_shift=False)
    text = next(prediction.text for prediction in predictions if len(prediction.entities) > 1)
    for entity in (None, 1):
        reply, expected = explained(api, text, entity=entity), product.explain(text, entity)
        assert reply["entity"] == expected.number
        same(reply["answer"], expected.prediction)
        check_origins(reply["origins"], expected)
        assert expected.weakest in reply["origins"]["summary"]
    assert "not one of the" in explained(api, text, entity=99)["error"]["fields"][0]["message"]
    reply = explained(api, next(prediction.text for prediction in predictions if not prediction.entities))
    assert (reply["entity"], reply["origins"], reply["answer"]["entities"]) == (None, None, [])


@of("classifier", "labeler")
def test_a_method_without_dropout_is_explained_by_the_standard_one(product, client_of):
    plain, standard = (type(product)(product.model, product.tokenizer, method) for method in ("base", "analytic"))
    reply, expected = explained(client_of(plain)), standard.explain(TEXT)
    variance = getattr(expected, "variance", None) or float(expected.attribution.total[0])
    assert reply.get("origins", reply)["variance"] == pytest.approx(variance)
    if "promised" in reply:
        assert (reply["promised"], reply["settings"]["method"]) == (False, "analytic")
    else:  # the labels themselves are those of the method that is served
        same(reply["answer"], plain.predict([TEXT])[0])


@pytest.mark.parametrize(
    ("product", "kind", "classes"),
    [
        ("classifier", "one", ["bad", "fair", "good"]),
        ("labeler", "labels", ["anger", "joy", "fear", "relief"]),
        ("tagger", "entities", ["person", "place"]),
    ],
    indirect=["product"],
)
def test_the_model_is_described_without_its_place(api, product, saved, kind, classes):
    reply = api.get("/model")
    assert str(saved) not in reply.text
    told, (rule,) = reply.json(), product.calibration_.rules
    assert (told["kind"], told["classes"], told["multiple_choice"]) == (kind, classes, False)
    assert told["rule"] | {"score": rule.score, "promise": rule.describe(), "most": rule.most} == told["rule"]
    assert told["limits"]["texts"] == 128


@of("one_pass", "labeler", "tagger")
def test_the_menu_is_that_of_the_calibration(api, product):
    told, menu = api.get("/model").json(), product.calibration_.menu
    comparison, curve = product.calibration_.comparison, menu.curve
    assert told["comparison"] == (None if comparison is None else comparison.describe())
    sent = told["menu"]
    assert (sent["score"], sent["rows"], sent["counted"]) == (menu.score, menu.texts, menu.counted)
    for name, points in (("coverage", "coverages"), ("risk", "risks"), ("low", "low"), ("high", "high")):
        assert sent[name] == list(getattr(curve, points))
    reviews = [(line["target"], line["risk_bound"]) for line in sent["reviews"]]
    assert reviews == [(line.target, line.rule.risk_bound) for line in menu.reviews]
    every = zip([*sent["lines"], *sent["errors"]], [*menu.lines, *menu.errors], strict=True)
    for line, expected in every:
        needed = expected.needed and expected.needed.describe()
        assert (line["target"], line["needed"]) == (expected.target, needed)
        assert line["coverage"] == (None if expected.rule is None else expected.rule.coverage)


def test_a_rule_for_recall_alone_is_told(tagger, made_texts, client_of):
    texts = made_texts(300, seed=6)
    predictions = tagger.predict(texts, check_shift=False)
    gold = [[(entity.start, entity.end, entity.label) for entity in entities] for entities in predictions.entities]
    recall = UncertaintyTagger(tagger.model, tagger.tokenizer, "analytic").calibrate(texts, gold, target_recall=0.5)
    client, (rule,) = client_of(recall), recall.calibration_.rules
    told = client.get("/model").json()["rule"]
    assert (told["score"], told["promise"], rule.kind) == (rule.score, rule.describe(), "recall")
    assert None not in [answer["abstain"] for answer in predicted(client, texts[:9])]


def test_probes_and_counters(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    client.post("/predict", json={"texts": ["a1", "a2"]})
    client.post("/predict", json={})
    client.get("/no/such/place")
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    assert {
        'uatlite_requests_total{path="/predict",status="200"} 1.0',
        'uatlite_requests_total{path="/predict",status="422"} 1.0',
        'uatlite_requests_total{path="other",status="404"} 1.0',
        "uatlite_passes_total 8.0",
        "uatlite_batch_texts_sum 2.0",
        "uatlite_waiting_texts 0.0",
    } <= set(reply.text.splitlines())
