"""The addresses: what they answer, that it is what the classifier says, and what they refuse."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from starlette.testclient import TestClient
from transformers import BertTokenizer, PreTrainedModel

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.predictions import MEASURES
from uatlite.classifier.predictor import Predictor
from uatlite.serve.app import create_app
from uatlite.serve.limits import Limits
from uatlite.serve.service import Service

JSON = {"content-type": "application/json"}


def test_an_answer_is_what_the_classifier_says(
    client: TestClient, classifier: UncertaintyClassifier, made_texts: Callable[..., list[str]]
) -> None:
    texts = [*made_texts(3, seed=5), ("a1 a2", "a3")]
    reply = client.post("/predict", json={"texts": texts}).json()
    assert reply["calibrated"] is True
    assert reply["method"] == "fast:samples=4"
    for answer, expected in zip(reply["predictions"], classifier.predict(texts), strict=True):
        row = expected.as_row()
        assert answer["label"] == expected.label
        assert answer["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)
        assert answer["confidence"] == pytest.approx(expected.confidence, abs=1e-6)
        assert answer["score"] == pytest.approx(expected.logit_margin, abs=1e-5)  # the score of the rule
        for name in MEASURES[1:]:
            assert answer["uncertainty"][name] == pytest.approx(row[name], abs=1e-6), name
        same = ("abstain", "reason", "label_set", "out_of_scope", "passes", "cut_tokens")
        assert {name: answer[name] for name in same} == {name: row[name] for name in same}
        assert answer["above_threshold"] == pytest.approx(row["above_threshold"], abs=1e-5)
        assert answer["why"] == expected.why


def test_a_text_alone_is_answered_to_the_bit(client: TestClient, classifier: UncertaintyClassifier) -> None:
    reply = client.post("/predict", json={"texts": ["a1 a2 a3"]}).json()
    assert reply["predictions"][0]["probabilities"] == classifier.predict(["a1 a2 a3"])[0].probabilities


def test_the_texts_of_a_request_are_compared_with_the_calibration_rows(
    client: TestClient, made_texts: Callable[..., list[str]]
) -> None:
    same = client.post("/predict", json={"texts": made_texts(60, seed=9)}).json()["shift"]
    odd = client.post("/predict", json={"texts": ["a3 a3 a3"] * 60}).json()["shift"]
    few = client.post("/predict", json={"texts": ["a3"]}).json()["shift"]
    assert (same["shifted"], odd["shifted"], few["shifted"]) == (False, True, None)
    assert "the promises are off" in odd["verdict"]


def test_an_uncalibrated_model_says_nothing_that_it_does_not_know(classifier: UncertaintyClassifier) -> None:
    plain = UncertaintyClassifier(classifier.model, classifier.tokenizer, "base")
    with TestClient(create_app(Service(plain))) as client:
        reply = client.post("/predict", json={"texts": ["a1"]}).json()
        explained = client.post("/explain", json={"text": "a1 a2"}).json()
        about = client.get("/model").json()
    answer = reply["predictions"][0]
    assert reply["shift"] is None
    unknown = ("abstain", "above_threshold", "label_set", "scope", "out_of_scope")
    assert [answer[name] for name in unknown] == [None] * 5
    assert answer["reason"] == "no rule"
    assert [answer["uncertainty"][name] for name in ("mutual_information", "variance")] == [None] * 2
    assert answer["passes"] == 1
    assert about["calibration"] is None
    assert explained["promised"] is False
    assert explained["settings"]["method"] == "analytic"  # a model without dropout in use is explained by what has it


def test_multiple_choice_questions_of_unlike_sizes_share_a_request(
    tiny: Callable[..., object], classifier: UncertaintyClassifier
) -> None:
    chooser = UncertaintyClassifier(tiny("bert", choices=True), classifier.tokenizer, "fast:samples=2")  # type: ignore[arg-type]
    two = {"question": "a1 a2", "options": ["a3", "a4"]}
    three = {"question": "a5", "options": ["a6", "a7", "a8"]}
    with TestClient(create_app(Service(chooser))) as client:
        answers = client.post("/predict", json={"texts": [two, three, two]}).json()["predictions"]
        refused = client.post("/predict", json={"texts": ["a1"]})
        explained = client.post("/explain", json={"text": three}).json()
    assert [list(answer["probabilities"]) for answer in answers] == [["A", "B"], ["A", "B", "C"], ["A", "B"]]
    assert answers[0] == answers[2]
    assert refused.status_code == 422
    assert len(explained["attention"]["plain"][0]) == len(explained["attention"]["tokens"])


def test_an_explanation_shows_all_sides(client: TestClient, classifier: UncertaintyClassifier) -> None:
    reply = client.post("/explain", json={"text": "a1 a2 a3", "masking": True}).json()
    expected = classifier.explain("a1 a2 a3")
    assert reply["promised"] is True
    assert reply["answer"]["probabilities"] == expected.prediction.probabilities
    assert reply["answer"]["probabilities"] != reply["before"]  # a temperature was fitted
    assert [len(reply["passes"]), len(reply["passes"][0])] == [4, 3]
    words = reply["segments"][0]
    assert [word["text"] for word in words] == ["a1", "a2", "a3"]
    assert [word["masked_confidence"] for word in words] == [word.masked_confidence for word in expected.words]
    assert reply["summary"] == asdict(expected.summary)
    assert sum(layer["share"] for layer in reply["layers"]) == pytest.approx(1)
    attention = reply["attention"]
    assert attention["tokens"] == ["[CLS]", "a1", "a2", "a3", "[SEP]"]
    assert [len(attention["plain"]), len(attention["plain"][0])] == [2, 5]
    assert sum(attention["modulated"][1][2]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("settings", [{}, {"samples": 9}], ids=["served", "other"])
def test_an_explanation_runs_the_passes_once(
    client: TestClient, classifier: UncertaintyClassifier, monkeypatch: pytest.MonkeyPatch, settings: dict[str, int]
) -> None:
    method = type(classifier.method)
    passes: list[int] = []
    run = method.run

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        passes.append(self.passes)
        return run(self, *args, **options)

    monkeypatch.setattr(method, "run", counting)
    reply = client.post("/explain", json={"text": "a1 a2 a3", "settings": settings}).json()
    assert passes == [len(reply["passes"])]


def test_other_settings_change_what_is_shown_and_are_not_promised(client: TestClient) -> None:
    served = client.post("/explain", json={"text": "a1 a2 a3"}).json()
    same = client.post("/explain", json={"text": "a1 a2 a3", "settings": {"samples": 4, "gate": "q"}}).json()
    other = client.post(
        "/explain", json={"text": "a1 a2 a3", "settings": {"samples": 9, "penalty": 3, "gate": "k"}}
    ).json()
    plain = client.post("/explain", json={"text": "a1 a2 a3", "settings": {"gate": "none"}}).json()
    assert same == served
    assert other["promised"] is False
    assert len(other["passes"]) == other["answer"]["passes"] == 9
    assert other["answer"]["probabilities"] != served["answer"]["probabilities"]
    assert plain["attention"] is None
    assert client.post("/predict", json={"texts": ["a1 a2 a3"]}).json()["method"] == "fast:samples=4"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/predict", {}, "texts"),
        ("/predict", {"texts": []}, "texts"),
        ("/predict", {"texts": 5}, "texts"),
        ("/predict", {"texts": "  "}, "texts[0]"),
        ("/predict", {"texts": ["a1"] * 129}, "texts"),
        ("/predict", {"texts": ["a1", 5]}, "texts[1]"),
        ("/predict", {"texts": ["a1", "  "]}, "texts[1]"),
        ("/predict", {"texts": ["a1", ["a", 7]]}, "texts[1][1]"),
        ("/predict", {"texts": [["a", "b", "c"]]}, "texts[0]"),
        ("/predict", {"texts": ["x" * 20_001]}, "texts[0]"),
        ("/predict", {"texts": ["\ud800"]}, "texts[0]"),
        ("/predict", {"texts": [{"question": "a1", "options": ["a", "b"]}]}, "texts[0]"),
        ("/predict", {"texts": [{"question": "a1"}]}, "texts[0].options"),
        ("/predict", {"texts": ["a1"], "tetxs": 1}, "tetxs"),
        ("/explain", {"text": ["a"]}, "text[1]"),
        ("/explain", {"text": "x" * 2_001}, "text"),
        ("/explain", {"text": "a1", "settings": {"penalty": -1}}, "settings.penalty"),
        ("/explain", {"text": "a1", "settings": {"samples": 65}}, "settings.samples"),
        ("/explain", {"text": "a1", "settings": {"gate": "x"}}, "settings.gate"),
    ],
)
def test_a_refusal_names_the_field(client: TestClient, path: str, body: object, field: str) -> None:
    reply = client.post(path, content=json.dumps(body), headers=JSON)
    assert reply.status_code == 422
    assert reply.json()["error"]["fields"][0]["field"] == field


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'"texts"',
        b"\x00\xff\xfe\x80",
        b'{"texts": ["\xff"]}',
        b"[" * 100_000,
        b'{"texts":' * 20_000,
        b'{"texts": ' + b"9" * 10_000 + b"}",
        b'{"texts": [NaN]}',
    ],
    ids=["empty", "cut", "null", "string", "binary", "latin", "nested", "nested-objects", "digits", "nan"],
)
@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_bodies_that_are_no_requests(client: TestClient, path: str, body: bytes) -> None:
    reply = client.post(path, content=body, headers=JSON)
    assert reply.status_code == 422
    assert reply.json()["error"]["code"] == "invalid"


def test_a_body_has_a_limit_also_when_it_does_not_say_how_long_it_is(classifier: UncertaintyClassifier) -> None:
    limits = Limits(body=1000)
    with TestClient(create_app(Service(classifier, limits))) as client:
        whole = client.post("/predict", content=b"x" * 1001, headers=JSON)
        pieces = client.post("/predict", content=(b"x" * 100 for _ in range(20)), headers=JSON)
        lying = client.post("/predict", content=b"{}", headers={**JSON, "content-length": "ten"})
        good = client.post("/predict", content=iter([b'{"texts": ', b'["a1"]}']), headers=JSON)
    assert "content-length" not in pieces.request.headers
    assert [whole.status_code, pieces.status_code, lying.status_code, good.status_code] == [413, 413, 413, 200]
    assert "1,000 bytes" in pieces.json()["error"]["message"]


def test_nothing_leaks_when_the_service_fails(
    classifier: UncertaintyClassifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("/secret/path/model.safetensors")

    service = Service(classifier)
    monkeypatch.setattr(Predictor, "predict", broken)
    with TestClient(create_app(service), raise_server_exceptions=False) as client:
        reply = client.post("/predict", json={"texts": ["a1"]})
        assert client.get("/health").status_code == 200
    assert reply.status_code == 500
    assert reply.json() == {
        "error": {"code": "internal", "message": "The service failed on this request; its log says why."}
    }
    assert reply.headers["content-security-policy"]  # also what fails is sent with the headers


def test_the_model_is_described_without_its_place(client: TestClient, saved: object) -> None:
    reply = client.get("/model")
    assert str(saved) not in reply.text
    about = reply.json()
    assert about["classes"] == ["bad", "fair", "good"]
    assert about["rule"]["score"] == "logit-margin"
    assert about["limits"]["texts"] == 128


def test_the_menu_is_that_of_the_calibration(one_pass: UncertaintyClassifier) -> None:
    assert one_pass.calibration_ is not None
    menu, comparison = one_pass.calibration_.menu, one_pass.calibration_.comparison
    assert menu is not None
    assert comparison is not None
    with TestClient(create_app(Service(one_pass))) as client:
        about = client.get("/model").json()
    assert about["comparison"] == comparison.describe()
    sent = about["menu"]
    assert (sent["score"], sent["rows"]) == (menu.score, menu.rows)
    for name, values in (("coverage", menu.curve.coverages), ("risk", menu.curve.risks), ("low", menu.curve.low)):
        assert sent[name] == list(values)
    for line, one in zip(menu.lines, sent["lines"], strict=True):
        assert (one["target"], one["rows_needed"]) == (line.target, line.rows_needed)
        assert one["coverage"] == (None if line.rule is None else line.rule.coverage)


def test_without_calibration_nothing_is_on_the_menu(
    tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer
) -> None:
    with TestClient(create_app(Service(UncertaintyClassifier(tiny("bert"), tokenizer, "base")))) as client:
        about = client.get("/model").json()
    assert (about["menu"], about["comparison"]) == (None, None)


def test_probes_and_counters(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    client.post("/predict", json={"texts": ["a1", "a2"]})
    client.post("/predict", json={})
    client.get("/no/such/place")
    reply = client.get("/metrics")
    lines = reply.text.splitlines()
    assert reply.headers["content-type"].startswith("text/plain")
    assert 'uatlite_requests_total{path="/predict",status="200"} 1.0' in lines
    assert 'uatlite_requests_total{path="/predict",status="422"} 1.0' in lines
    assert 'uatlite_requests_total{path="other",status="404"} 1.0' in lines
    assert "uatlite_passes_total 8.0" in lines
    assert "uatlite_batch_texts_sum 2.0" in lines
    assert "uatlite_waiting_texts 0.0" in lines


def test_the_specification_states_the_limits_and_the_token(classifier: UncertaintyClassifier) -> None:
    app = create_app(Service(classifier, Limits(texts=7)), token="0123456789abcdef")
    with TestClient(app) as client:
        specification = client.get("/openapi.json").json()
    assert specification["components"]["schemas"]["PredictRequest"]["properties"]["texts"]["maxItems"] == 7
    assert specification["paths"]["/predict"]["post"]["security"] == [{"token": []}]
    assert "security" not in specification["paths"]["/health"]["get"]
