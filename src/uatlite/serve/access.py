"""Who is let in: by host name, by the site of the page that asks and by bearer token; and how many at a time."""

import hmac
import ipaddress
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from uatlite.errors import ConfigurationError
from uatlite.serve.http import STATIC, Layer, Refusal, answer, overloaded

TOKEN_VARIABLE = "UATLITE_TOKEN"
SHORTEST_TOKEN = 16
OPEN = ("/health", "/ready", "/", "/docs", "/openapi.json")
"""Addresses that need no token, as the static files: probes, and pages without data."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass
class Access(Layer):
    """Checks host, site and token of each request, and limits the requests that are under way."""

    token: str | None
    hosts: Collection[str] | None
    """host names that are accepted, in lower case; None for any"""
    most: int
    under_way: int = 0

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.under_way += 1
        try:
            refusal = self._refusal(scope)
            await (self.app if refusal is None else answer(refusal))(scope, receive, send)
        finally:
            self.under_way -= 1

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers, path = Headers(scope=scope), scope["path"]
        if self.under_way > self.most:
            return overloaded(1)
        if self.hosts is not None and host_name(headers.get("host", "")) not in self.hosts:
            return Refusal(421)  # DNS rebinding: another site's name that points to this machine
        if scope["method"] == "POST" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return Refusal(403)
        if self.token is None or path in OPEN or path.startswith(STATIC):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return None
        return Refusal(401, headers={"WWW-Authenticate": "Bearer"})


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).casefold()


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def allowed_hosts(host: str, more: Collection[str]) -> tuple[str, ...] | None:
    """The host names to accept: on loopback the local ones and `more`; otherwise `more`, or None for any."""
    if is_loopback(host):
        return (*LOCAL_NAMES, f"[{host}]" if ":" in host else host, *more)
    return tuple(more) or None


def read_token(file: Path | None) -> str | None:
    """The bearer token from a file or the environment; other users could read one on the command line."""
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
    if len(token) < SHORTEST_TOKEN:
        fault = f"has {len(token)} characters, and a token has {SHORTEST_TOKEN} or more" if token else "is empty"
    elif not token.isascii() or not token.isprintable() or " " in token:
        fault = "has spaces or characters other than printable ASCII, which a token may not have"
    else:
        return token
    raise ConfigurationError(f"{where} {fault}. Make one: python -c 'import secrets; print(secrets.token_urlsafe())'")
