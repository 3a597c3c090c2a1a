"""Many clients on a real port: each answer the offline one, overload refused and survived, deadlines kept."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import torch

from serve.clients import ask, running, same
from uatlite.classifier.product import Predictor
from uatlite.serve.limits import Limits
from uatlite.serve.service import Service

pytestmark = pytest.mark.anyio


@pytest.fixture
def held(monkeypatch):
    """`held(meanwhile)`: each batch waits for `meanwhile` to return; a list of their sizes."""
    read, predict = [], Predictor.predict

    def hold(meanwhile):
        def waiting(self, texts):
            read.append(len(texts))
            meanwhile()
            return predict(self, texts)

        monkeypatch.setattr(Predictor, "predict", waiting)
        return read

    return hold


@pytest.mark.parametrize("product", ["classifier", "labeler", "tagger"], indirect=True)
def test_concurrent_clients_share_batches_and_get_the_offline_answers(product, held, made_texts):
    texts, read = made_texts(96, seed=3), held(lambda: time.sleep(0.02))
    with running(product) as address, ThreadPoolExecutor(16) as clients:
        replies = list(clients.map(lambda text: ask(address, [text]).json()["predictions"][0], texts))
    assert max(read) > 1
    assert sum(read) == len(texts)
    for reply, expected in zip(replies, product.predict(texts, check_shift=False), strict=True):
        same(reply, expected)


async def test_several_workers_run_side_by_side_and_each_answer_is_the_offline_one(classifier, held, made_texts):
    """With texts that are cut: a tokenizer is set to cut and then asked to, which two threads must not do at once."""
    together = threading.Barrier(2, timeout=20)
    read = held(lambda: together.wait() if len(read) <= 2 else None)  # two batches go on when both are under way
    texts = [f"{text} " * (1 + 40 * (i % 3)) for i, text in enumerate(made_texts(48, seed=5))]
    torch.set_num_threads(2)
    try:
        service = Service(classifier, Limits(batch=4))
        async with service.running():
            assert torch.get_num_threads() == 1
            answers = await asyncio.gather(*(service.predict([text]) for text in texts))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    for (answer,), offline in zip(answers, classifier.predict(texts), strict=True):
        assert answer["label"] == offline.label
        assert answer["probabilities"] == pytest.approx(offline.probabilities, abs=1e-6)


def test_overload_is_refused_at_once_with_a_time_to_come_again(classifier, held):
    held(lambda: time.sleep(0.15))
    with running(classifier, Limits(texts=2, waiting=4, batch=2, gather=0.0)) as address:
        with ThreadPoolExecutor(24) as clients:
            replies = list(clients.map(lambda _: ask(address, ["a1", "a2"]), range(24)))
        refused = [reply for reply in replies if reply.status_code != 200]
        assert {reply.status_code for reply in replies} == {200, 503}
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        assert all(reply.elapsed.total_seconds() < 5 for reply in refused)
        assert ask(address, ["a1"]).status_code == 200  # it has recovered by itself
        assert httpx.get(f"{address}/ready", trust_env=False).status_code == 200


def test_requests_at_the_same_time_are_bounded(classifier, held):
    held(lambda: time.sleep(0.3))
    with running(classifier, Limits(requests=2)) as address, ThreadPoolExecutor(6) as clients:
        statuses = [reply.status_code for reply in clients.map(lambda _: ask(address, ["a1"]), range(6))]
    assert 503 in statuses
    assert set(statuses) == {200, 503}


def test_a_deadline_is_kept_and_the_work_dropped(classifier, held):
    read = held(lambda: time.sleep(1.2))
    with running(classifier, Limits(deadline=1.0, batch=1, gather=0.0)) as address, ThreadPoolExecutor(4) as clients:
        replies = list(clients.map(lambda _: ask(address, ["a1"]), range(4)))
    assert {reply.status_code for reply in replies} == {504}
    assert replies[0].json()["error"]["code"] == "deadline"
    assert len(read) <= 2  # those that waited when time was up were never read


def test_the_work_of_a_client_that_left_is_dropped(classifier, held):
    read = held(lambda: time.sleep(0.4))
    with running(classifier, Limits(batch=1, gather=0.0)) as address, ThreadPoolExecutor(1) as clients:
        first = clients.submit(ask, address, ["a1"])
        while not read:
            time.sleep(0.01)
        with pytest.raises(httpx.ReadTimeout):
            ask(address, ["a2"] * 5, timeout=0.1)
        assert first.result().status_code == 200
        assert ask(address, ["a3"]).status_code == 200
    assert len(read) == 2


def test_a_slow_body_is_given_up(classifier):
    with running(classifier, Limits(deadline=1.0)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as line:
            line.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            assert line.recv(4096).startswith(b"HTTP/1.1 408 ")


async def test_a_stop_answers_what_was_accepted(classifier, held):
    held(lambda: time.sleep(0.05))
    service = Service(classifier, Limits(batch=1, gather=0.0))
    async with service.running():
        asked = [asyncio.create_task(service.predict(["a1"])) for _ in range(5)]
        await asyncio.sleep(0.02)
        assert service.ready
    assert not service.ready
    assert all(task.result()[0]["label"] in ("bad", "fair", "good") for task in asked)
