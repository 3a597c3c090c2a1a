"""Who is let in, and what a browser may do with what it is sent."""

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from uatlite.errors import ConfigurationError
from uatlite.serve.access import TOKEN_VARIABLE, allowed_hosts, host_name, is_loopback, read_token
from uatlite.serve.http import HEADERS, SecureHeaders
from uatlite.serve.limits import Limits

TOKEN = "correct-horse-battery"
TEXTS = {"texts": ["a1"]}


@pytest.fixture
def locked(client_of):
    return client_of("classifier", token=TOKEN)


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"]
)
def test_a_wrong_token_is_refused(locked, given):
    for path in ("/predict", "/explain"):
        reply = locked.post(path, json=TEXTS, headers={"authorization": given.encode("latin-1")})
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
    assert locked.get("/metrics").status_code == locked.get("/model").status_code == 401


def test_the_right_token_and_what_needs_none(locked):
    for scheme in ("Bearer", "bearer"):
        assert locked.post("/predict", json=TEXTS, headers={"authorization": f"{scheme} {TOKEN}"}).status_code == 200
    for path in ("/health", "/ready", "/", "/docs", "/openapi.json", "/static/main.js"):
        assert locked.get(path).status_code == 200, path


def test_every_response_has_the_headers(client):
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    for reply in (
        *map(client.get, ("/", "/static/main.js", "/nothing")),
        client.post("/predict", json=TEXTS),
        client.post("/predict", content=b"x" * 2_000_000),
    ):
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS
        assert "access-control-allow-origin" not in reply.headers
        caching = "no-cache" if "static" in str(reply.url) else "no-store"
        assert reply.headers["cache-control"] == caching


def test_another_sites_page_is_refused(client, client_of):
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert client.post("/predict", json=TEXTS, headers={"sec-fetch-site": site}).status_code == status
    local = client_of("classifier", hosts=allowed_hosts("127.0.0.1", ["my.host"]))
    for host in ("127.0.0.1:8000", "LOCALHOST", "[::1]:80", "my.host"):
        assert local.get("/health", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example:8000", ""):
        assert local.get("/health", headers={"host": host}).status_code == 421, host


def test_files_outside_the_page_are_not_served(client):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static/", "/static"):
        assert client.get(path).status_code == 404, path


def test_hosts():
    addresses = ("127.0.0.1", "localhost", "::1", "127.8.8.8", "0.0.0.0", "x.y")
    assert list(map(is_loopback, addresses)) == [True, True, True, True, False, False]
    assert allowed_hosts("0.0.0.0", []) is None
    assert allowed_hosts("0.0.0.0", ["a.b"]) == ("a.b",)
    assert "[::1]" in (allowed_hosts("::1", []) or ())
    assert list(map(host_name, ("a:80", "A", "[::1]:80", "[::1]", "a:b"))) == ["a", "a", "[::1]", "[::1]", "a:b"]


def test_the_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert read_token(None) == TOKEN
    (tmp_path / "token").write_text(f"{TOKEN}-2\n")
    assert read_token(tmp_path / "token") == f"{TOKEN}-2"
    for bad, rule in {
        "": "is empty",
        "short": "has 5 characters, and a token has 16 or more",
        "with space in the middle": "has spaces or characters other than printable ASCII",
        "ä" * 20: "has spaces or characters other than printable ASCII",
    }.items():
        (tmp_path / "token").write_text(bad, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=rule):
            read_token(tmp_path / "token")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(
    "wrong", [{"texts": 0}, {"deadline": float("inf")}, {"batch": 1.5}, {"gather": -1.0}, {"waiting": True}]
)
def test_limits_are_checked(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Limits(**wrong)
    with pytest.raises(ConfigurationError, match="could never be accepted"):
        Limits(texts=100, waiting=99)


def test_a_header_of_the_application_does_not_stand_beside_ours():
    careless = Response(headers={"cache-control": "public", "x-frame-options": "ALLOWALL", "etag": "1"})
    headers = TestClient(SecureHeaders(careless)).get("/").headers
    assert len({name.lower() for name, _ in headers.raw}) == len(headers.raw)
    assert (headers["etag"], headers["cache-control"], headers["x-frame-options"]) == ("1", "no-store", "DENY")
