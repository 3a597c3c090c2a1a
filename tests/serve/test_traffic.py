"""The served traffic: the monitor over texts that come one by one, in /metrics and /model."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import CalibrationError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.scoring.timeline import WatchedRow
from uatlite.scoring.watch import Watch
from uatlite.serve.app import create_app
from uatlite.serve.service import Service
from uatlite.serve.traffic import SERVED, TrafficMonitor
from uatlite.trust.monitor import Monitor


@pytest.fixture
def client(classifier: UncertaintyClassifier) -> Iterator[TestClient]:
    with TestClient(create_app(Service(classifier))) as made:
        yield made


def gauges(client: TestClient) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    found = [line.split() for line in lines if line.startswith("uatlite_watch")]
    return {name: float(value) for name, value in found}


def test_an_uncalibrated_service_has_nothing_to_compare_with(classifier: UncertaintyClassifier) -> None:
    plain = UncertaintyClassifier(classifier.model, classifier.tokenizer, "base")
    with TestClient(create_app(Service(plain))) as client:
        client.post("/predict", json={"texts": ["a1"]})
        assert client.get("/model").json()["watch"] is None
        assert gauges(client)["uatlite_watch_texts"] == 0


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


def test_the_monitor_counts_every_text_once_and_raises_an_alarm(client: TestClient) -> None:
    assert client.get("/model").json()["watch"]["verdict"] == "No rows yet."
    for _ in range(60):
        client.post("/predict", json={"texts": ["a3 a3 a3", "a3 a3"]})
    known = client.get("/model").json()["watch"]
    assert (known["texts"], known["limit"]) == (120, 100.0)
    assert known["evidence"] >= known["limit"]
    assert known["verdict"].startswith(f"ALARM: {known['alarm']}, since about row 1 ")
    found = gauges(client)
    assert (found["uatlite_watch_texts"], found["uatlite_watch_alarm"], found["uatlite_watch_limit"]) == (120, 1, 100)
    assert found["uatlite_watch_evidence"] == pytest.approx(known["evidence"])


def test_a_state_file_is_that_of_uatlite_watch_and_outlives_the_service(
    classifier: UncertaintyClassifier, saved: Path, made_texts: Callable[..., list[str]], tmp_path: Path
) -> None:
    path = tmp_path / "traffic.json"
    texts = made_texts(30, seed=5)
    for half in (texts[:12], texts[12:]):  # a restart between them
        with TestClient(create_app(Service(classifier, watch=path))) as client:
            for text in half:
                client.post("/predict", json={"texts": text})
    watch = Watch.of(saved, path)
    state = watch.read()
    predictions = classifier.predict(texts, check_shift=False)
    assert classifier.calibration_ is not None
    assert classifier.calibration_.shift is not None
    scores = predictions.text_scores(classifier.calibration_.shift.score)
    expected, _ = Monitor.begin(watch.reference).after(watch.reference, scores, predictions.scope)
    assert state.rows == 30
    assert state.monitor.log_martingale == pytest.approx(expected.log_martingale, abs=1e-6)
    assert sum(tally.rows for tally in state.timeline.hours.values()) == 30
    assert {one.file for one in state.stretches} == {SERVED}


def test_two_services_share_a_state_and_an_alarm_is_acknowledged_from_outside(
    classifier: UncertaintyClassifier, saved: Path, tmp_path: Path
) -> None:
    path = tmp_path / "traffic.json"
    first, second = (TestClient(create_app(Service(classifier, watch=path))) for _ in range(2))
    with first, second:
        for _ in range(60):
            for one in (first, second):
                one.post("/predict", json={"texts": "a3 a3 a3"})
        first.get("/metrics")
        assert gauges(second)["uatlite_watch_texts"] == 120
        assert gauges(first)["uatlite_watch_alarm"] == 1
        Watch.of(saved, path).acknowledge()
        assert gauges(first)["uatlite_watch_alarm"] == 0
        assert Watch.of(saved, path).read().alarms[0].answer == "over"


def test_texts_wait_while_another_process_holds_the_state(
    classifier: UncertaintyClassifier, saved: Path, tmp_path: Path
) -> None:
    watch = Watch.of(saved, tmp_path / "traffic.json", bound=0.05)
    watch.count([], "nowhere")
    assert classifier.calibration_ is not None
    monitor = TrafficMonitor(watch.reference, replace(watch, patience=0.0))
    rows = classifier.predict(["a1 a2", "a3"], check_shift=False).rows()
    monitor.add([WatchedRow.of(ScoredRow(row), watch.reference.score, "2026-11-18T20") for row in rows])
    with watch.locked():
        assert monitor.count().rows == 0
    assert monitor.count().rows == 2
    assert monitor.count().rows == watch.read().rows == 2


def test_a_state_needs_calibration_rows(classifier: UncertaintyClassifier, tmp_path: Path) -> None:
    plain = UncertaintyClassifier(classifier.model, classifier.tokenizer, "base")
    with pytest.raises(CalibrationError, match="no calibration rows to compare with"):
        Service(plain, watch=tmp_path / "traffic.json")
