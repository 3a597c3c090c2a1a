"""POST /predict: a fault is answered and raised, and a client may leave."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.predictor import Predictor
from uatlite.serve.app import create_app
from uatlite.serve.http import Refusal, until_disconnect
from uatlite.serve.service import Service


def test_a_fault_of_the_service_is_answered_and_raised(
    classifier: UncertaintyClassifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Predictor, texts: list[Any]) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Predictor, "predict", fail)
    with TestClient(create_app(Service(classifier)), raise_server_exceptions=False) as client:
        reply = client.post("/predict", json={"texts": ["a1 a2 a3"]})
    assert reply.status_code == 500
    assert "POST /predict failed" in caplog.text
    assert b"secret" not in reply.content
    with TestClient(create_app(Service(classifier))) as client, pytest.raises(ZeroDivisionError):
        client.post("/predict", json={"texts": ["a1 a2 a3"]})


def leaving(*after: Callable[[], Any]) -> Receive:
    """A client that leaves after these; with none it stays."""

    async def receive() -> Message:
        for one in after:
            await one()
            return {"type": "http.disconnect"}
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    return receive


def test_the_work_for_a_client_that_leaves_is_cancelled() -> None:
    async def check() -> None:
        begun, ended = asyncio.Event(), []

        async def work() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        with pytest.raises(Refusal) as refusal:
            await until_disconnect(leaving(begun.wait), work())
        assert refusal.value.status_code == 499
        assert ended == [True]
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0  # the task itself goes on
        await asyncio.sleep(0)

    asyncio.run(check())


def test_a_client_that_stays_gets_its_answer_and_nothing_listens_any_longer() -> None:
    async def check() -> None:
        async def work() -> int:
            await asyncio.sleep(0)
            return 7

        before = asyncio.all_tasks()
        assert await until_disconnect(leaving(), work()) == 7
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    asyncio.run(check())


def test_a_request_that_is_cancelled_from_outside_stays_cancelled() -> None:
    """As uvicorn does when its patience at a stop ends."""

    async def check() -> None:
        async def work() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(until_disconnect(leaving(), work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(check())
