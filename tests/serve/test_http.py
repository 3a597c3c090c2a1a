"""What is refused and how, what of a body is read, what a fault of the service tells, and clients that leave."""

import asyncio
import json

import pytest

from uatlite.classifier.product import Predictor
from uatlite.serve.http import Refusal, until_disconnect
from uatlite.serve.limits import Limits

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}
QUESTION = {"question": "a1", "options": ["a2", "a3"]}


@pytest.mark.parametrize(
    ("product", "path", "body", "said"),
    [
        ("classifier", "/predict", {}, "texts:"),
        ("classifier", "/predict", {"texts": []}, "texts:"),
        ("classifier", "/predict", {"texts": 5}, "texts:"),
        ("classifier", "/predict", {"texts": ""}, "texts[0]:"),
        ("classifier", "/predict", {"texts": "  "}, "texts[0]:"),
        ("classifier", "/predict", {"texts": ["a1"] * 129}, "texts:"),
        ("classifier", "/predict", {"texts": ["a1", 5]}, "texts[1]:"),
        ("classifier", "/predict", {"texts": ["", "  "]}, "texts[0]:"),
        ("classifier", "/predict", {"texts": ["a1", ["a", 7]]}, "texts[1][1]:"),
        ("classifier", "/predict", {"texts": [["a", "b", "c"]]}, "texts[0]:"),
        ("classifier", "/predict", {"texts": ["x" * 20_001]}, "texts[0]:"),
        ("classifier", "/predict", {"texts": ["\ud800"]}, "texts[0]:"),
        ("classifier", "/predict", {"texts": [QUESTION]}, "texts[0]:"),
        ("classifier", "/predict", {"texts": [{"question": "a1"}]}, "texts[0].options:"),
        ("classifier", "/predict", {"texts": ["a1"], "tetxs": 1}, "tetxs:"),
        ("classifier", "/explain", {"text": ["a"]}, "text[1]:"),
        ("classifier", "/explain", {"text": "x" * 2_001}, "text:"),
        ("classifier", "/explain", {"text": "a1", "settings": {"penalty": -1}}, "settings.penalty:"),
        ("classifier", "/explain", {"text": "a1", "settings": {"samples": 65}}, "settings.samples:"),
        ("classifier", "/explain", {"text": "a1", "settings": {"gate": "x"}}, "settings.gate:"),
        (
            "labeler",
            "/predict",
            {"texts": [QUESTION]},
            "texts[0]: a question with options, and the model is not for multiple choice",
        ),
        ("labeler", "/explain", {"text": "a1", "label": "hope"}, "label: is not one of: anger, joy, fear, relief"),
        ("tagger", "/predict", {"texts": [QUESTION]}, "texts[0]:"),
        ("tagger", "/predict", {"texts": ["  "]}, "texts[0]:"),
        ("tagger", "/predict", {"texts": [["a1", ""]]}, "texts[0]:"),
        ("tagger", "/predict", {"texts": [[]]}, "texts[0]:"),
        ("tagger", "/predict", {"texts": [["a1", 3]]}, "texts[0][1]:"),
        ("tagger", "/explain", {"text": "a1", "entity": -1}, "entity:"),
    ],
    indirect=["product"],
)
def test_a_refusal_names_the_field_and_says_what_is_allowed(api, path, body, said):
    reply = api.post(path, content=json.dumps(body), headers=JSON)
    first = reply.json()["error"]["fields"][0]
    assert (reply.status_code, f"{first['field']}: {first['message']}"[: len(said)]) == (422, said)


NO_REQUESTS = {
    "empty": b"", "cut": b"{", "null": b"null", "string": b'"texts"', "binary": b"\x00\xff\xfe\x80",
    "latin": b'{"texts": ["\xff"]}', "nested": b"[" * 100_000, "nested-objects": b'{"texts":' * 20_000,
    "digits": b'{"texts": ' + b"9" * 10_000 + b"}", "nan": b'{"texts": [NaN]}',
}  # fmt: skip


@pytest.mark.parametrize("body", NO_REQUESTS)
@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_bodies_that_are_no_requests(client, path, body):
    reply = client.post(path, content=NO_REQUESTS[body], headers=JSON)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "invalid")


def test_a_body_without_its_content_type_is_told_about_it(client):
    for headers in ({}, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "text/plain"}):
        reply = client.post("/predict", content=b'{"texts": ["a1"]}', headers=headers)
        assert reply.status_code == 415
        assert "Content-Type: application/json" in reply.json()["error"]["message"]


def test_a_body_has_a_limit_also_when_it_does_not_say_how_long_it_is(client_of):
    client = client_of("classifier", Limits(body=1000))
    whole, pieces, lying, good = (
        client.post("/predict", content=content, headers={**JSON, **headers})
        for content, headers in (
            (b"x" * 1001, {}),
            ((b"x" * 100 for _ in range(20)), {}),
            (b"{}", {"content-length": "ten"}),
            (iter([b'{"texts": ', b'["a1"]}']), {}),
        )
    )
    assert "content-length" not in pieces.request.headers
    assert [whole.status_code, pieces.status_code, lying.status_code, good.status_code] == [413, 413, 413, 200]
    assert "1,000 bytes" in pieces.json()["error"]["message"]


def test_a_fault_of_the_service_is_answered_and_raised_and_tells_nothing(client_of, monkeypatch, caplog):
    def fail(self, texts):
        raise ZeroDivisionError("/secret/path/model.safetensors")

    monkeypatch.setattr(Predictor, "predict", fail)
    client = client_of("classifier")
    reply = client.post("/predict", json={"texts": ["a1 a2 a3"]})
    assert client.get("/health").status_code == 200
    assert reply.status_code == 500
    assert reply.json() == {
        "error": {"code": "internal", "message": "The service failed on this request; its log says why."}
    }
    assert reply.headers["content-security-policy"]  # also what fails is sent with the headers
    assert "POST /predict failed" in caplog.text
    with pytest.raises(ZeroDivisionError):
        client_of("classifier", raises=True).post("/predict", json={"texts": ["a1 a2 a3"]})


class Request:
    """A client that leaves at an event, and work for it without end, which knows whether it has begun and ended."""

    def __init__(self):
        self.begun, self.left, self.ended = asyncio.Event(), asyncio.Event(), False

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def work(self):
        try:
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.ended = True


async def test_the_work_for_a_client_that_leaves_is_cancelled_and_the_task_itself_goes_on():
    request = Request()
    request.left = request.begun
    with pytest.raises(Refusal) as refusal:
        await until_disconnect(request.receive, request.work())
    assert (refusal.value.status_code, request.ended, asyncio.current_task().cancelling()) == (499, True, 0)


async def test_a_client_that_stays_gets_its_answer_and_nothing_listens_any_longer():
    before = asyncio.all_tasks()
    assert await until_disconnect(Request().receive, asyncio.sleep(0, 7)) == 7
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_request_that_is_cancelled_from_outside_stays_cancelled():
    """As uvicorn does when its patience at a stop ends."""
    request = Request()
    task = asyncio.create_task(until_disconnect(request.receive, request.work()))
    await request.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert request.ended
