"""Who is let in, and what a browser may do with what it is sent."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.errors import ConfigurationError
from uatlite.serve.access import TOKEN_VARIABLE, allowed_hosts, host_name, is_loopback, read_token
from uatlite.serve.app import create_app
from uatlite.serve.http import HEADERS, SecureHeaders
from uatlite.serve.service import Limits, Service

TOKEN = "correct-horse-battery"
TEXTS = {"texts": ["a1"]}


@pytest.fixture
def locked(classifier: UncertaintyClassifier) -> Iterator[TestClient]:
    with TestClient(create_app(Service(classifier), token=TOKEN)) as made:
        yield made


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"]
)
def test_a_wrong_token_is_refused(locked: TestClient, given: str) -> None:
    for path in ("/predict", "/explain"):
        reply = locked.post(path, json=TEXTS, headers={"authorization": given.encode("latin-1")})  # type: ignore[dict-item]
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
    assert locked.get("/metrics").status_code == locked.get("/model").status_code == 401


def test_the_right_token_and_what_needs_none(locked: TestClient) -> None:
    for scheme in ("Bearer", "bearer"):
        assert locked.post("/predict", json=TEXTS, headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 200
    for path in ("/health", "/ready", "/", "/docs", "/openapi.json", "/static/main.js"):
        assert locked.get(path).status_code == 200, path


def test_every_response_has_the_headers(client: TestClient) -> None:
    for reply in (
        client.get("/"),
        client.get("/static/main.js"),
        client.get("/nothing"),
        client.post("/predict", json=TEXTS),
        client.post("/predict", content=b"x" * 2_000_000),
    ):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in reply.headers
    assert client.post("/predict", json=TEXTS).headers["cache-control"] == "no-store"


def test_another_sites_page_is_refused(client: TestClient, classifier: UncertaintyClassifier) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert client.post("/predict", json=TEXTS, headers={"sec-fetch-site": site}).status_code == status
    named = create_app(Service(classifier), hosts=allowed_hosts("127.0.0.1", ["my.host"]))
    with TestClient(named) as local:
        for host, status in (
            ("127.0.0.1:8000", 200),
            ("LOCALHOST", 200),
            ("[::1]:80", 200),
            ("my.host", 200),
            ("evil.example", 421),
            ("127.0.0.1.evil.example:8000", 421),
            ("", 421),
        ):
            assert local.get("/health", headers={"host": host}).status_code == status, host


def test_files_outside_the_page_are_not_served(client: TestClient) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/", "/static"):
        assert client.get(path).status_code == 404, path


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("127.8.8.8", True), ("0.0.0.0", False), ("x.y", False)],
)
def test_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_hosts() -> None:
    assert allowed_hosts("0.0.0.0", []) is None
    assert allowed_hosts("0.0.0.0", ["a.b"]) == ("a.b",)
    assert "[::1]" in (allowed_hosts("::1", []) or ())
    assert [host_name(host) for host in ("a:80", "A", "[::1]:80", "[::1]", "a:b")] == [
        "a",
        "a",
        "[::1]",
        "[::1]",
        "a:b",
    ]


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert read_token(None) == TOKEN
    (tmp_path / "token").write_text(f"{TOKEN}-2\n")
    assert read_token(tmp_path / "token") == f"{TOKEN}-2"
    rules = {
        "": "is empty",
        "short": "has 5 characters, and a token has 16 or more",
        "with space in the middle": "has spaces or characters other than printable ASCII",
        "ä" * 20: "has spaces or characters other than printable ASCII",
    }
    for bad, rule in rules.items():
        (tmp_path / "token").write_text(bad, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=rule):
            read_token(tmp_path / "token")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(
    "wrong", [{"texts": 0}, {"deadline": float("inf")}, {"batch": 1.5}, {"gather": -1.0}, {"waiting": True}]
)
def test_limits_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Limits(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="could never be accepted"):
        Limits(texts=100, waiting=99)


def test_a_header_of_the_application_does_not_stand_beside_ours() -> None:
    sent: list[Message] = []

    async def careless(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"X-Frame-Options", b"ALLOWALL"), (b"cache-control", b"public"), (b"etag", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    app = SecureHeaders(careless)
    for path, caching in (("/predict", b"no-store"), ("/static/main.js", b"no-cache")):
        sent.clear()
        asyncio.run(app({"type": "http", "method": "GET", "path": path, "headers": []}, receive, send))
        headers = [(name, value) for name, value in sent[0]["headers"] if name != b"etag"]
        assert len(sent[0]["headers"]) == len(headers) + 1
        expected = {name.lower().encode(): value.encode() for name, value in HEADERS.items()}
        assert dict(headers) == expected | {b"cache-control": caching}
        assert len(headers) == len(expected) + 1
