"""POST /predict: the short path answers as FastAPI's general one does, byte for byte, and a client may leave."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.classifier.predictor import Predictor
from uatlite.serve.app import create_app
from uatlite.serve.http import Refusal
from uatlite.serve.predict import ShortPath, until_disconnect
from uatlite.serve.service import Limits, Service

SHORT = {"content-type": "application/json"}
GENERAL = {"content-type": "application/json; charset=utf-8"}
"""Another spelling of the same type, which the short path leaves to FastAPI."""
VALID = b'{"texts": ["a1 a2 a3"]}'


async def refuse_all(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("handed on")


async def ask(app: ASGIApp, body: bytes, **changes: Any) -> list[Message]:
    """The messages that an application sends to a client that waits."""
    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": [(b"content-type", b"application/json")]}
    sent: list[Message] = []
    bodies = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return bodies.pop() if bodies else await asyncio.get_running_loop().create_future()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope | changes, receive, send)
    return sent


@pytest.mark.parametrize("product", ["classifier", "one_pass", "labeler", "tagger"])
def test_both_paths_answer_the_same_bytes(product: str, request: pytest.FixtureRequest) -> None:
    service = Service(request.getfixturevalue(product), Limits(texts=3, characters=40))
    bodies = [
        VALID,
        b'{"texts": "a1"}',
        b'{"texts": ["a1", "a2 a3", "a4"]}',
        b'{"texts": [["a1", "a2"]]}',
        b'{"texts": ["a1", "a2", "a3", "a4"]}',
        b'{"texts": ["' + b"a1 " * 40 + b'", ""]}',
        b'{"texts": []}',
        b'{"texts": [7]}',
        b'{"texts": ["\\ud800"]}',
        b'{"texts": ["a1"], "more": 1}',
        b'{"texts": ["a1"], "texts": ["a2"]}',
        b'{"texts": [NaN]}',
        b'["a1"]',
        b"{",
        b"",
        b"\xff",
        b"[" * 100_000,
    ]
    statuses = set()
    with TestClient(create_app(service), raise_server_exceptions=False) as client:
        for body in bodies:
            short, general = (client.post("/predict", content=body, headers=one) for one in (SHORT, GENERAL))
            assert (short.status_code, short.content) == (general.status_code, general.content), body
            assert sorted(short.headers.raw) == sorted(general.headers.raw), body
            statuses.add(short.status_code)
    assert statuses == {200, 422}


def test_a_valid_request_takes_the_short_path(classifier: UncertaintyClassifier) -> None:
    async def check() -> list[Message]:
        service = Service(classifier)
        async with service.running():
            return await ask(ShortPath(refuse_all, service), VALID)

    begun, body = asyncio.run(check())
    assert begun["status"] == 200
    assert json.loads(body["body"])["predictions"][0]["label"] == classifier.predict(["a1 a2 a3"])[0].label


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        (b'{"texts": []}', {}),
        (b"{", {}),
        (VALID, {"method": "GET"}),
        (VALID, {"path": "/explain"}),
        (VALID, {"headers": []}),
        (VALID, {"headers": [(b"content-type", b"text/plain")]}),
        (VALID, {"headers": [(b"content-type", b"application/json"), (b"content-type", b"text/plain")]}),
        (VALID, {"type": "websocket"}),
    ],
)
def test_all_else_is_handed_on_whole(classifier: UncertaintyClassifier, body: bytes, changes: dict[str, Any]) -> None:
    read: list[Message] = []

    async def general(scope: Scope, receive: Receive, send: Send) -> None:
        read.append(await receive())

    assert asyncio.run(ask(ShortPath(general, Service(classifier)), body, **changes)) == []
    assert read == [{"type": "http.request", "body": body, "more_body": False}]


def test_a_fault_of_the_service_is_answered_and_raised(
    classifier: UncertaintyClassifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Predictor, texts: list[Any]) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Predictor, "predict", fail)
    replies = []
    for headers in (SHORT, GENERAL):
        caplog.clear()
        with TestClient(create_app(Service(classifier)), raise_server_exceptions=False) as client:
            replies.append(client.post("/predict", content=VALID, headers=headers))
        assert "POST /predict failed" in caplog.text
        with TestClient(create_app(Service(classifier))) as client, pytest.raises(ZeroDivisionError):
            client.post("/predict", content=VALID, headers=headers)
    assert [reply.status_code for reply in replies] == [500, 500]
    assert replies[0].content == replies[1].content
    assert b"secret" not in replies[0].content


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
