"""The served traffic: the monitor over texts that come one by one, in /metrics and /model."""

import asyncio
import sys
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from fastapi.testclient import TestClient

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.errors import CalibrationError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.scoring.watch import Watch, watched_calibration
from uatlite.serve.app import create_app
from uatlite.serve.service import Service
from uatlite.serve.traffic import SERVED, Traffic
from uatlite.trust.monitor import Monitor

EACH = pytest.mark.parametrize("product", ["classifier", "labeler", "tagger"], indirect=True)


def gauges(client):
    lines = client.get("/metrics").text.splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if line.startswith("uatlite_watch"))}


def test_an_uncalibrated_service_has_nothing_to_compare_with(classifier, client_of, tmp_path):
    plain = UncertaintyClassifier(classifier.model, classifier.tokenizer, "base")
    client = client_of(plain)
    client.post("/predict", json={"texts": ["a1"]})
    assert client.get("/model").json()["watch"] is None
    assert gauges(client)["uatlite_watch_texts"] == 0
    with pytest.raises(CalibrationError, match="no calibration rows to compare with"):
        client_of(plain, watch=tmp_path / "traffic.json")


def test_the_monitor_counts_every_text_once_and_raises_an_alarm(client):
    assert client.get("/model").json()["watch"]["verdict"].startswith("No rows yet")
    for _ in range(60):
        client.post("/predict", json={"texts": ["a3 a3 a3", "a3 a3"]})
    told = client.get("/model").json()["watch"]
    assert (told["texts"], told["limit"]) == (120, 100.0)
    assert told["evidence"] >= told["limit"]
    assert told["verdict"].startswith(f"ALARM: {told['alarm']}, since about row 1 ")
    shown = gauges(client)
    assert (shown["uatlite_watch_texts"], shown["uatlite_watch_alarm"], shown["uatlite_watch_limit"]) == (120, 1, 100)
    assert shown["uatlite_watch_evidence"] == pytest.approx(told["evidence"])


@EACH
def test_no_array_is_made_on_the_event_loop(api, made_texts):
    made = []

    def noting(frame, event, called):
        if event == "c_call" and str(called.__module__).startswith("numpy"):
            made.append(called)

    api.portal.call(sys.setprofile, noting)  # in the thread of the loop
    for texts in (["a1"], made_texts(100)):
        assert api.post("/predict", json={"texts": texts}).status_code == 200
    assert [api.get(path).status_code for path in ("/model", "/metrics")] == [200, 200]
    assert made == []
    api.portal.call(np.zeros, 1)
    assert made == [np.zeros]


@EACH
def test_a_state_file_is_that_of_uatlite_watch_and_outlives_the_service(product, made_texts, tmp_path):
    path, texts = tmp_path / "traffic.json", made_texts(30, seed=5)
    for half in (texts[:12], texts[12:]):  # a restart between them
        with TestClient(create_app(Service(product, watch=path))) as client:
            for text in half:
                client.post("/predict", json={"texts": text})
    product.save_pretrained(tmp_path / "saved")
    watch = Watch(watched_calibration(tmp_path / "saved"), path)
    state, predictions = watch.read(), product.predict(texts, check_shift=False)
    scores = predictions.text_scores(product.calibration_.shift.score)
    expected, _ = Monitor.begin(watch.reference).after(watch.reference, scores, predictions.scope)
    assert state.rows == 30
    assert state.monitor.log_martingale == pytest.approx(expected.log_martingale, abs=1e-6)
    assert state.timeline.total().labels == Counter(ScoredRow(row).counted_label for row in predictions.rows())
    assert {stretch.file for stretch in state.stretches} == {SERVED}


@EACH
def test_a_text_counts_under_the_label_that_watch_counts_it_under(product, api, made_texts):
    texts = made_texts(60, seed=3)
    rows = [ScoredRow(row) for row in product.predict(texts, check_shift=False).rows()]
    api.post("/predict", json={"texts": texts})
    lines = api.get("/metrics").text.splitlines()
    texts_by, reported_by = Counter(row.counted_label for row in rows), Counter(chain(*(row.reported for row in rows)))
    assert len(texts_by) > 1
    for name, counted in (("texts", texts_by), ("reported", reported_by)):
        expected = {f'uatlite_{name}_total{{label="{label}"}} {count:.1f}' for label, count in counted.items()}
        assert {line for line in lines if line.startswith(f"uatlite_{name}_total")} == expected


def test_two_services_share_a_state_and_an_alarm_is_acknowledged_from_outside(client_of, saved, tmp_path):
    path = tmp_path / "traffic.json"
    first, second = (client_of("classifier", watch=path) for _ in range(2))
    for client in (first, second) * 60:
        client.post("/predict", json={"texts": "a3 a3 a3"})
    first.get("/metrics")
    assert gauges(second)["uatlite_watch_texts"] == 120
    assert gauges(first)["uatlite_watch_alarm"] == 1
    watch = Watch(watched_calibration(saved), path)
    watch.acknowledge()
    assert gauges(first)["uatlite_watch_alarm"] == 0
    assert watch.read().alarms[0].answer == "over"


def test_texts_wait_while_another_process_holds_the_state(classifier, saved, tmp_path):
    watch = Watch(watched_calibration(saved), tmp_path / "traffic.json")
    traffic = Traffic(classifier.calibration_, watch.path, patience=0.0)
    asyncio.run(traffic.add(list(classifier.predict(["a1 a2", "a3"], check_shift=False).rows())))
    with watch.locked():
        assert traffic.count().rows == 0
    assert traffic.count().rows == 2
    assert traffic.count().rows == watch.read().rows == 2
