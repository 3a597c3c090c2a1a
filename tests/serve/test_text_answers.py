"""Models with several answers a text: what the addresses answer is what the product says, alone and in batches."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from uatlite.classifier.labeler import UncertaintyLabeler
from uatlite.classifier.tagger import UncertaintyTagger
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.scoring.watch import Watch
from uatlite.serve.app import create_app
from uatlite.serve.schema import Rule, TextAnswer
from uatlite.serve.service import Service

PLACE = ("place", "reported")
ROUNDING = 1e-5
"""A batch of one to three texts rounds otherwise than a larger one, in PyTorch; so says docs/guides/serve.md."""
Ask = Callable[..., httpx.Response]


def same_labels(answer: dict[str, Any], expected: Any) -> None:
    """An answer is what the labeler says offline."""
    row = expected.as_row()
    assert answer["labels"] == row["labels"]
    for name in TextAnswer.model_fields:
        if name in row:
            assert answer[name] == (pytest.approx(row[name], abs=ROUNDING) if name == "confidence" else row[name]), name
    assert answer["why"] == expected.why
    withheld = () if expected.among.rule is None else expected.withheld
    for place, one in enumerate(answer["decisions"]):
        name = expected.among.classes[place]
        assert one["label"] == name
        assert one["probability"] == pytest.approx(expected.probabilities[name], abs=ROUNDING)
        assert one["variance"] == pytest.approx(expected.variances[name], rel=1e-4)
        wanted = "reported" if name in expected.labels else "withheld" if name in withheld else "no"
        assert one["decision"] == wanted


@pytest.fixture
def labels(labeler: UncertaintyLabeler) -> Any:
    with TestClient(create_app(Service(labeler)), raise_server_exceptions=False) as made:
        yield made


def test_labels_are_what_the_labeler_says(
    labels: TestClient, labeler: UncertaintyLabeler, made_texts: Callable[..., list[str]]
) -> None:
    texts = [*made_texts(12, seed=5), ("a1 a2", "a3"), "a1 " * 60]
    reply = labels.post("/predict", json={"texts": texts}).json()
    assert reply["calibrated"] is True
    assert reply["method"] == "analytic"
    for answer, expected in zip(reply["predictions"], labeler.predict(texts, check_shift=False), strict=True):
        same_labels(answer, expected)
    assert reply["predictions"][-1]["cut_tokens"] > 0


def test_the_threshold_of_a_label_is_the_probability_that_it_is_reported_above(
    labels: TestClient, labeler: UncertaintyLabeler, made_texts: Callable[..., list[str]]
) -> None:
    texts = made_texts(40, seed=6)
    found = labels.post("/predict", json={"texts": texts}).json()["predictions"]
    rule, calibration = labeler.calibration_.rule, labeler.calibration_
    answers = labeler.predict(texts, check_shift=False).answers
    at_the_threshold = replace(answers, log_odds=np.full(len(answers), rule.threshold))
    limits = calibration.calibrator.confidence(at_the_threshold).reshape(len(texts), -1)
    for answer, own in zip(found, limits, strict=True):
        assert [one["threshold"] for one in answer["decisions"]] == pytest.approx(own.tolist(), abs=1e-6)
        above = [one for one in answer["decisions"] if one["probability"] > one["threshold"]]
        surest = sorted(above, key=lambda one: -one["log_odds"])[: rule.most]
        reported = [] if answer["out_of_scope"] else [one["label"] for one in surest]
        assert sorted(answer["labels"]) == sorted(reported)


def test_without_a_rule_labels_above_one_half_are_reported(labeler: UncertaintyLabeler) -> None:
    plain = UncertaintyLabeler(labeler.model, labeler.tokenizer, "base")
    with TestClient(create_app(Service(plain))) as client:
        answer = client.post("/predict", json={"texts": "a1 a2"}).json()["predictions"][0]
        told = client.get("/model").json()
    assert {one["threshold"] for one in answer["decisions"]} == {0.5}
    assert {one["decision"] for one in answer["decisions"]} <= {"reported", "no"}
    assert answer["abstain"] is None
    assert (told["rule"], told["calibration"]) == (None, None)


def test_concurrent_clients_get_the_offline_labels(
    running: Any, ask: Ask, labeler: UncertaintyLabeler, made_texts: Callable[..., list[str]]
) -> None:
    texts = made_texts(48, seed=3)
    with running(labeler) as address, ThreadPoolExecutor(12) as clients:
        replies = list(clients.map(lambda text: ask(address, [text]).json()["predictions"][0], texts))
        metrics = httpx.get(f"{address}/metrics", trust_env=False).text
    for answer, expected in zip(replies, labeler.predict(texts, check_shift=False), strict=True):
        same_labels(answer, expected)
    counted = Counter(ScoredRow(row).counted_label for row in labeler.predict(texts, check_shift=False).rows())
    assert len(counted) > 2
    for label, rows in counted.items():  # as `uatlite watch` counts them
        assert f'uatlite_texts_total{{label="{label}"}} {rows:.1f}' in metrics
    reported = sum("anger" in answer["labels"] for answer in replies)
    assert f'uatlite_reported_total{{label="anger"}} {reported:.1f}' in metrics


def test_one_label_is_explained(labels: TestClient, labeler: UncertaintyLabeler) -> None:
    for asked in (None, "fear"):
        reply = labels.post("/explain", json={"text": "a1 a2 a3", "label": asked}).json()
        expected = labeler.explain("a1 a2 a3", asked)
        assert reply["label"] == expected.label
        same_labels(reply["answer"], expected.prediction)
        origins = reply["origins"]
        assert origins["variance"] == pytest.approx(expected.variance)
        assert [word["text"] for word in origins["words"]] == ["a1", "a2", "a3"]
        assert [word["share"] for word in origins["words"]] == pytest.approx([word.share for word in expected.words])
        assert {one["name"]: one["share"] for one in origins["layers"]} == pytest.approx(dict(expected.layers))
        assert expected.label in origins["summary"]


def test_a_method_without_dropout_is_explained_by_the_standard_one(labeler: UncertaintyLabeler) -> None:
    plain = UncertaintyLabeler(labeler.model, labeler.tokenizer, "base")
    with TestClient(create_app(Service(plain))) as client:
        reply = client.post("/explain", json={"text": "a1 a2 a3", "label": "joy"}).json()
    own = plain.predict(["a1 a2 a3"])[0]
    assert [one["probability"] for one in reply["answer"]["decisions"]] == pytest.approx(
        list(own.probabilities.values())
    )
    standard = UncertaintyLabeler(labeler.model, labeler.tokenizer, "analytic").explain("a1 a2 a3", "joy")
    assert reply["origins"]["variance"] == pytest.approx(standard.variance)


def test_what_is_asked_wrongly_is_refused(labels: TestClient) -> None:
    unknown = labels.post("/explain", json={"text": "a1", "label": "hope"})
    assert unknown.status_code == 422
    assert "anger, joy, fear, relief" in unknown.json()["error"]["fields"][0]["message"]
    question = labels.post("/predict", json={"texts": [{"question": "a1", "options": ["a2", "a3"]}]})
    assert "not for multiple choice" in question.json()["error"]["fields"][0]["message"]


def test_the_kind_and_the_schemas_are_told(labels: TestClient, client: TestClient, labeler: UncertaintyLabeler) -> None:
    told = labels.get("/model").json()
    assert (told["kind"], told["classes"]) == ("labels", list(labeler.class_names))
    assert told["rule"] == Rule.of(labeler.calibration_.rule).model_dump()
    assert told["rule"]["most"] == labeler.calibration_.rule.most
    assert client.get("/model").json()["kind"] == "one"
    paths = labels.get("/openapi.json").json()["paths"]
    replies = {path: paths[path]["post"]["responses"]["200"]["content"] for path in ("/predict", "/explain")}
    names = {path: reply["application/json"]["schema"]["$ref"].split("/")[-1] for path, reply in replies.items()}
    assert names == {"/predict": "PredictResponse", "/explain": "ExplainedLabel"}


def test_the_traffic_is_compared_with_the_calibration_rows(
    labels: TestClient, made_texts: Callable[..., list[str]]
) -> None:
    same = labels.post("/predict", json={"texts": made_texts(100, seed=9)}).json()["shift"]
    odd = labels.post("/predict", json={"texts": ["a3 a3 a3"] * 100}).json()["shift"]
    assert (same["shifted"], odd["shifted"]) == (False, True)
    assert labels.get("/model").json()["watch"]["texts"] == 200


def same_entities(answer: dict[str, Any], expected: Any) -> None:
    """An answer is what the tagger says offline."""
    row = expected.as_row()
    for name in TextAnswer.model_fields:
        if name in row:
            assert answer[name] == (pytest.approx(row[name], abs=ROUNDING) if name == "confidence" else row[name]), name
    assert answer["missed"] == pytest.approx(expected.missed, abs=ROUNDING)
    assert answer["missed_at"] == row["missed_at"]
    assert len(answer["entities"]) == len(expected.entities)
    for one, entity in zip(answer["entities"], expected.entities, strict=True):
        for name in ("start", "end", "text", "label"):
            assert one[name] == getattr(entity, name)
        for name in ("confidence", "boundaries", "variance"):
            assert one[name] == pytest.approx(getattr(entity, name), rel=1e-4, abs=ROUNDING), name
        assert one["decision"] == ("reported" if entity.reported else "withheld")


@pytest.fixture
def entities(tagger: UncertaintyTagger) -> Any:
    with TestClient(create_app(Service(tagger)), raise_server_exceptions=False) as made:
        yield made


def test_entities_are_what_the_tagger_says(
    entities: TestClient, tagger: UncertaintyTagger, made_texts: Callable[..., list[str]]
) -> None:
    texts = [*made_texts(20, seed=5), ["a1", "a2 a3", "a4"], " ".join(made_texts(8, seed=8))]  # the last in windows
    reply = entities.post("/predict", json={"texts": texts}).json()
    offline = tagger.predict(texts, check_shift=False)
    for answer, expected in zip(reply["predictions"], offline, strict=True):
        same_entities(answer, expected)
    decisions = {one["decision"] for answer in reply["predictions"] for one in answer["entities"]}
    assert decisions == {"reported", "withheld"}
    assert entities.post("/predict", json={"texts": texts[0]}).status_code == 200


def test_concurrent_clients_get_the_offline_entities(
    running: Any, ask: Ask, tagger: UncertaintyTagger, made_texts: Callable[..., list[str]]
) -> None:
    texts = made_texts(48, seed=3)
    with running(tagger) as address, ThreadPoolExecutor(12) as clients:
        replies = list(clients.map(lambda text: ask(address, [text]).json()["predictions"][0], texts))
        metrics = httpx.get(f"{address}/metrics", trust_env=False).text
        told = httpx.get(f"{address}/model", trust_env=False).json()
    for answer, expected in zip(replies, tagger.predict(texts, check_shift=False), strict=True):
        same_entities(answer, expected)
    places = [one for answer in replies for one in answer["entities"] if (one["label"], one["decision"]) == PLACE]
    assert f'uatlite_reported_total{{label="place"}} {len(places):.1f}' in metrics
    assert (told["kind"], told["classes"], told["watch"]["texts"]) == ("entities", ["person", "place"], 48)


def test_one_entity_is_explained(
    entities: TestClient, tagger: UncertaintyTagger, made_texts: Callable[..., list[str]]
) -> None:
    found = tagger.predict(made_texts(30, seed=7), check_shift=False)
    one = next(one for one in found if len(one.entities) > 1)
    for asked in (None, 1):
        reply = entities.post("/explain", json={"text": one.text, "entity": asked}).json()
        expected = tagger.explain(one.text, asked)
        assert reply["entity"] == expected.number
        same_entities(reply["answer"], expected.prediction)
        assert reply["origins"]["variance"] == pytest.approx(expected.variance)
        assert [word["text"] for word in reply["origins"]["words"]] == [word.word.text for word in expected.words]
        assert {x["name"]: x["share"] for x in reply["origins"]["layers"]} == pytest.approx(dict(expected.layers))
        assert expected.weakest in reply["origins"]["summary"]
    refused = entities.post("/explain", json={"text": one.text, "entity": 99}).json()
    assert "not one of the" in refused["error"]["fields"][0]["message"]
    none = next(one for one in found if not one.entities)
    reply = entities.post("/explain", json={"text": none.text}).json()
    assert (reply["entity"], reply["origins"], reply["answer"]["entities"]) == (None, None, [])


def test_texts_that_a_tagger_does_not_take_are_refused(entities: TestClient) -> None:
    for bad in ({"question": "a1", "options": ["a2", "a3"]}, "  ", ["a1", ""], [], ["a1", 3]):
        reply = entities.post("/predict", json={"texts": [bad]})
        assert reply.status_code == 422, bad
        assert reply.json()["error"]["fields"][0]["field"].startswith("texts[0]")


def test_the_schemas_of_entities_are_told(entities: TestClient) -> None:
    specification = entities.get("/openapi.json").json()
    asked = specification["paths"]["/predict"]["post"]
    names = (asked["requestBody"], asked["responses"]["200"])
    references = [one["content"]["application/json"]["schema"]["$ref"].split("/")[-1] for one in names]
    assert references == ["TagRequest", "PredictResponse"]
    texts = specification["components"]["schemas"]["TagRequest"]["properties"]["texts"]
    assert texts["maxItems"] == 128
    assert {"type": "string", "minLength": 1, "maxLength": 20_000} in texts["items"]["oneOf"]


@pytest.mark.parametrize("product", ["labeler", "tagger"])
def test_a_watch_file_keeps_the_traffic(
    product: str, request: pytest.FixtureRequest, made_texts: Callable[..., list[str]], tmp_path: Path
) -> None:
    served, path = request.getfixturevalue(product), tmp_path / "watch.json"
    with TestClient(create_app(Service(served, watch=path))) as client:
        client.post("/predict", json={"texts": made_texts(30, seed=5)})
    state = Watch(served.calibration_, path).read()
    rows = served.predict(made_texts(30, seed=5), check_shift=False).rows()
    assert state.timeline.total().labels == Counter(ScoredRow(row).counted_label for row in rows)


def test_a_rule_for_recall_alone_is_told(tagger: UncertaintyTagger, made_texts: Callable[..., list[str]]) -> None:
    texts = made_texts(300, seed=6)
    found = tagger.predict(texts, check_shift=False)
    gold = [[(one.start, one.end, one.label) for one in entities] for entities in found.entities]
    recall = UncertaintyTagger(tagger.model, tagger.tokenizer, "analytic").calibrate(texts, gold, target_recall=0.5)
    with TestClient(create_app(Service(recall))) as client:
        told = client.get("/model").json()["rule"]
        answers = client.post("/predict", json={"texts": texts[:9]}).json()["predictions"]
    (rule,) = recall.calibration_.rules
    assert (told["score"], told["promise"], rule.kind) == (rule.score, rule.describe(), "recall")
    assert None not in [answer["abstain"] for answer in answers]


@pytest.mark.parametrize("product", ["labeler", "tagger"])
def test_the_menu_is_told(product: str, request: pytest.FixtureRequest) -> None:
    served = request.getfixturevalue(product)
    with TestClient(create_app(Service(served))) as client:
        told = client.get("/model").json()["menu"]
    menu = served.calibration_.menu
    assert (told["rows"], told["score"]) == (menu.rows, menu.score)
    for line, expected in zip(told["lines"], menu.lines, strict=True):
        coverage = None if expected.rule is None else expected.rule.coverage
        assert (line["target"], line["coverage"], line["rows_needed"]) == (
            expected.target, coverage, expected.rows_needed
        )  # fmt: skip
    assert told["coverage"] == []
