"""Who may ask, and what a browser may do with the answer."""

import hmac
import ipaddress
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uatlite.errors import ConfigurationError
from uatlite.serve.refusals import Refusal, answer

TOKEN_VARIABLE = "UATLITE_TOKEN"
SHORTEST_TOKEN = 16
OPEN = ("/health", "/ready", "/", "/docs", "/openapi.json")
"""Addresses that need no token: probes, and pages that hold nothing but themselves."""
OPEN_FOLDER = "/static/"
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",  # no script of ours makes markup of a string
        "trusted-types 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Protection:
    """Checks host, site and token of each request, counts those under way, and adds the headers to each response."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str] | None, most: int) -> None:
        self._app = app
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else {host.casefold() for host in hosts}
        self._most = most
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fresh = not scope["path"].startswith(OPEN_FOLDER)

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers["Cache-Control"] = "no-store" if fresh else "no-cache"
            await send(message)

        self._under_way += 1
        try:
            refusal = self._refusal(scope)
            await (self._app if refusal is None else answer(refusal))(scope, receive, protected)
        finally:
            self._under_way -= 1

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers, path = Headers(scope=scope), scope["path"]
        if self._under_way > self._most:
            return Refusal(503, headers={"Retry-After": "1"})
        if self._hosts is not None and host_name(headers.get("host", "")) not in self._hosts:
            return Refusal(421)  # a page elsewhere whose name was made to mean this machine
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return Refusal(403)
        if self._token is None or path in OPEN or path.startswith(OPEN_FOLDER):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token):
            return None
        return Refusal(401, headers={"WWW-Authenticate": "Bearer"})


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).casefold()


def is_loopback(host: str) -> bool:
    """Whether an address to bind to is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str, more: Collection[str]) -> tuple[str, ...] | None:
    """The names that the service goes by: on loopback the local ones and `more`, elsewhere `more`, or any without."""
    if is_loopback(host):
        own = f"[{host}]" if ":" in host else host
        return (*LOCAL_NAMES, own, *more)
    return tuple(more) or None


def read_token(file: Path | None) -> str | None:
    """The bearer token from a file or the environment, never from the command line, which other users can read."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE)
        where = f"the variable {TOKEN_VARIABLE}"
    else:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the token file {file} cannot be read ({error}); give a readable one.") from error
        where = f"the token file {file}"
    if token is None:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"{where} holds no token: allowed are {SHORTEST_TOKEN} or more printable ASCII characters without spaces. "
            "Make one: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token
