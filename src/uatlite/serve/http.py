"""The HTTP layers around the service: refusals as JSON, bounded request bodies, security headers.

Every refusal has the same shape, and never holds a file path, a text or a trace:

    {"error": {"code": "invalid", "message": "...", "fields": [{"field": "texts[2]", "message": "..."}]}}
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("uatlite.serve")
CLOSE = {"Connection": "close"}

_Result = TypeVar("_Result")


class FieldError(BaseModel):
    """What is wrong with a field."""

    field: str
    message: str


class ErrorBody(BaseModel):
    """Why the request was refused."""

    code: str
    message: str
    fields: list[FieldError] = []


class ErrorResponse(BaseModel):
    """The body of every refusal."""

    error: ErrorBody


# status -> the code and the default message of a refusal
WORDS: dict[int, tuple[str, str]] = {
    401: ("unauthorized", "A bearer token is needed: send the header 'Authorization: Bearer TOKEN'."),
    403: ("forbidden", "Another site's page may not use this service."),
    404: ("not-found", "There is no such address; GET /openapi.json lists them."),
    405: ("wrong-method", "This address does not accept this method; GET /openapi.json lists those it accepts."),
    408: ("slow-body", "The body did not arrive in time."),
    413: ("too-large", "The body is larger than this service accepts."),
    415: ("wrong-type", "The body must be JSON and say so: send the header 'Content-Type: application/json'."),
    421: ("wrong-host", "This service does not accept that host name; start it with --allow-host NAME."),
    422: ("invalid", "The request is not valid."),
    499: ("gone", "The client left before it was answered."),
    500: ("internal", "The service failed on this request; its log says why."),
    503: ("overloaded", "The service is full; try again after the seconds in the header Retry-After."),
    504: ("deadline", "The answer took longer than this service allows."),
}

# The forms of a text, which pydantic puts into a location; they are not part of the field names that a client knows.
TEXT, PAIR, QUESTION, AS_WORDS = TEXT_FORMS = ("text", "pair", "question-with-options", "words")


class Refusal(HTTPException):
    """A request that is refused; `fields` are pairs of a field and what is wrong with it."""

    def __init__(
        self,
        status: int,
        message: str | None = None,
        *,
        fields: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail=message or WORDS[status][1], headers=headers)
        self.fields = tuple(fields)


def overloaded(seconds: int) -> Refusal:
    """503, with the seconds after which to try again."""
    return Refusal(503, headers={"Retry-After": str(seconds)})


def invalid(field: str, message: str) -> Refusal:
    """422 for one field."""
    return Refusal(422, fields=[(field, message)])


def answer(refusal: HTTPException) -> JSONResponse:
    """The response that a refusal becomes."""
    status = refusal.status_code
    if status == HTTPStatus.BAD_REQUEST:  # FastAPI's status for a body that json.loads cannot read
        refusal, status = invalid("body", "is not JSON in UTF-8, or is nested too deeply"), 422
    code, sentence = WORDS.get(status, ("refused", "The request was refused."))
    error: dict[str, Any] = {"code": code, "message": sentence}
    if isinstance(refusal, Refusal):  # what others say may hold more than a client shall see
        error["message"] = refusal.detail
        if refusal.fields:
            error["fields"] = [{"field": field, "message": message} for field, message in refusal.fields]
    return JSONResponse({"error": error}, status, headers=dict(refusal.headers or {}))


async def failed(request: Request, error: Exception) -> JSONResponse:
    """Whatever failed, answered in the same shape."""
    if isinstance(error, HTTPException):
        return answer(error)
    if not isinstance(error, RequestValidationError):
        LOG.error("%s %s failed", request.method, request.url.path)
        return answer(Refusal(500))
    faults = [(fault["loc"], str(fault["msg"])) for fault in error.errors()]
    about_body = any(location == ("body",) for location, _ in faults)
    if about_body and "json" not in request.headers.get("content-type", "").casefold():
        return answer(Refusal(415))
    return answer(Refusal(422, fields=[(field_of(location), message) for location, message in faults]))


def field_of(location: Sequence[int | str]) -> str:
    """A location of pydantic, ('body', 'texts', 2, 'pair', 1), as a client would write it: 'texts[2][1]'."""
    source, *parts = location
    if source == "body" and (not parts or isinstance(parts[0], int)):
        return "body"  # a position in bytes that are not JSON
    field = ""
    for key in parts:
        if isinstance(key, int):
            field += f"[{key}]"
        elif key not in TEXT_FORMS or not field:
            field += f".{key}" if field else key
    return field or str(source)


@dataclass
class Layer(ABC):
    """An application around another; whatever is no HTTP request goes through unchanged."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.http if scope["type"] == "http" else self.app)(scope, receive, send)

    @abstractmethod
    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, mostly by the application within."""


@dataclass
class BoundedBodies(Layer):
    """Reads a body before the application does, and refuses one that is too large or too slow."""

    most: int
    seconds: float

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                body = await self._read(scope, receive)
        except (TimeoutError, Refusal) as error:
            refusal = error if isinstance(error, Refusal) else Refusal(408, headers=CLOSE)
            await answer(refusal)(scope, receive, send)
            return
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            """The body once, and then what the client sends next, which is its disconnect."""
            return messages.pop() if messages else await receive()

        if body is not None:
            await self.app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; None where the client has left."""
        too_large = f"The body is larger than the {self.most:,} bytes that this service accepts."
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared) > self.most:
            raise Refusal(413, too_large, headers=CLOSE)
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self.most:
                raise Refusal(413, too_large, headers=CLOSE)
            if not message.get("more_body", False):
                return bytes(body)


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`, which is cancelled when the client disconnects."""

    async def leave() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(leave())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(499)
        return working.result()
    finally:  # also where the service itself is told to stop
        leaving.cancel()
        working.cancel()
        await asyncio.wait([working])


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
        "require-trusted-types-for 'script'",  # our scripts never turn a string into markup
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
STATIC = "/static/"
"""The folder of files that a browser may keep, if it asks whether they have changed."""


class SecureHeaders(Layer):
    """Adds the headers to each response; those of the application by these names are replaced."""

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        caching = {"Cache-Control": "no-cache" if scope["path"].startswith(STATIC) else "no-store"}

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update({**HEADERS, **caching})
            await send(message)

        await self.app(scope, receive, secured)
