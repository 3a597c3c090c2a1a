"""The window over the served traffic: the verdict on texts that come one by one, in /metrics and /model."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fastapi.testclient import TestClient

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.serve.app import create_app
from uatlite.serve.service import Service
from uatlite.serve.window import TrafficWindow, shift_values


@pytest.fixture
def client(classifier: UncertaintyClassifier) -> Iterator[TestClient]:
    with TestClient(create_app(Service(classifier))) as made:
        yield made


def gauges(client: TestClient) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    found = [line.split() for line in lines if line.startswith(("uatlite_shift", "uatlite_window"))]
    return {name: float(value) for name, value in found}


def test_texts_that_come_one_by_one_are_compared_together(client: TestClient) -> None:
    assert client.get("/model").json()["traffic"]["shifted"] is None
    assert np.isnan(gauges(client)["uatlite_shift"])
    for _ in range(24):
        one = client.post("/predict", json={"texts": ["a3 a3 a3"]}).json()
        assert one["shift"]["shifted"] is None  # one text alone is too few
    traffic = client.get("/model").json()["traffic"]
    assert (traffic["texts"], traffic["shifted"]) == (24, True)
    assert "the promises are off" in traffic["verdict"]
    found = gauges(client)
    assert (found["uatlite_window_texts"], found["uatlite_shift"]) == (24, 1)
    assert found["uatlite_shift_p_value"] == pytest.approx(traffic["p_value"])
    assert found["uatlite_window_out_of_scope"] == pytest.approx(traffic["out_of_scope"])


def test_an_uncalibrated_service_has_nothing_to_compare_with(classifier: UncertaintyClassifier) -> None:
    plain = UncertaintyClassifier(classifier.model, classifier.tokenizer, "base")
    with TestClient(create_app(Service(plain))) as client:
        client.post("/predict", json={"texts": ["a1"]})
        assert client.get("/model").json()["traffic"] is None
        assert gauges(client)["uatlite_window_texts"] == 0


def test_the_window_is_the_check_of_the_latest_texts(
    classifier: UncertaintyClassifier, made_texts: Callable[..., list[str]]
) -> None:
    assert classifier.calibration_ is not None
    reference = classifier.calibration_.shift
    assert reference is not None
    predictions = list(classifier.predict([*["a3 a3"] * 30, *made_texts(40, seed=9)], check_shift=False))
    window = TrafficWindow(reference, size=40)
    window.add(predictions[:7])
    assert window.report() == reference.check(*shift_values(reference, predictions[:7]))
    window.add(predictions[7:30])
    before = window.report()
    assert before is not None
    assert before.shifted is True
    window.add([])
    assert window.report() is before  # nothing new, nothing computed
    window.add(predictions[30:])
    assert window.report() == reference.check(*shift_values(reference, predictions[30:]))
    assert TrafficWindow(None).report() is None


def test_a_body_without_its_content_type_is_told_about_it(client: TestClient) -> None:
    for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "text/plain"}):
        reply = client.post("/predict", content=b'{"texts": ["a1"]}', headers=headers)
        assert reply.status_code == 415
        assert "Content-Type: application/json" in reply.json()["error"]["message"]
    broken = client.post("/predict", content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 422


def test_one_string_is_a_list_of_one(client: TestClient) -> None:
    alone = client.post("/predict", json={"texts": "a1 a2"}).json()["predictions"]
    assert alone == client.post("/predict", json={"texts": ["a1 a2"]}).json()["predictions"]
    assert client.post("/predict", json={"texts": ""}).status_code == 422
    assert client.post("/predict", json={"texts": 7}).status_code == 422
