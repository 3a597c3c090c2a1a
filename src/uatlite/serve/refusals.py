"""What a client is told when it gets no answer: a code, a sentence, the fields. Never a path, a text or a trace.

{"error": {"code": "invalid", "message": "...", "fields": [{"field": "texts[2]", "message": "..."}]}}
"""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

LOG = logging.getLogger("uatlite.serve")

# status -> the code and the sentence of refusals that say no more
WORDS: dict[int, tuple[str, str]] = {
    401: ("unauthorized", "A bearer token is needed: send the header 'Authorization: Bearer TOKEN'."),
    403: ("forbidden", "Another site's page may not use this service."),
    404: ("not-found", "There is nothing here; GET /openapi.json lists what there is."),
    405: ("wrong-method", "This address takes another method; GET /openapi.json lists them."),
    408: ("slow-body", "The body did not arrive in time."),
    413: ("too-large", "The body is larger than this service takes."),
    421: ("wrong-host", "This service does not go by that host name; start it with --allow-host NAME."),
    422: ("invalid", "The request is not as it should be."),
    499: ("gone", "The client left before it was answered."),
    500: ("internal", "The service failed on this request; its log says why."),
    503: ("overloaded", "The service is full; try again after the seconds that Retry-After says."),
    504: ("deadline", "The answer took longer than this service allows."),
}

# The parts of a location by which pydantic says which kind of text it tried: no part of a client's own field names.
KINDS = ("text", "pair", "question-with-options")


class Refusal(HTTPException):
    """A request that is not answered; `fields` are (field, what is wrong with it)."""

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
    """503, and in how many seconds to come again."""
    return Refusal(503, headers={"Retry-After": str(seconds)})


def invalid(field: str, message: str) -> Refusal:
    """422 for one field."""
    return Refusal(422, fields=[(field, message)])


def answer(refusal: HTTPException) -> JSONResponse:
    """The response that a refusal becomes."""
    status = refusal.status_code
    if status == HTTPStatus.BAD_REQUEST:  # how FastAPI calls a body that json.loads cannot read at all
        refusal, status = invalid("body", "is not JSON in UTF-8, or is nested too deeply"), 422
    code, sentence = WORDS.get(status, ("refused", "The request was refused."))
    own = isinstance(refusal, Refusal)
    error: dict[str, Any] = {"code": code, "message": refusal.detail if own else sentence}
    if isinstance(refusal, Refusal) and refusal.fields:
        error["fields"] = [{"field": field, "message": message} for field, message in refusal.fields]
    return JSONResponse({"error": error}, status, headers=dict(refusal.headers or {}))


def install(app: FastAPI) -> None:
    """Let every way to fail end in the same shape."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return answer(error)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return answer(Refusal(422, fields=[(field_of(one["loc"]), str(one["msg"])) for one in error.errors()]))


async def _failed(request: Request, error: Exception) -> JSONResponse:
    LOG.error("%s %s failed", request.method, request.url.path)  # the trace follows: uvicorn logs what is raised
    return answer(Refusal(500))


def field_of(location: Sequence[int | str]) -> str:
    """A location of pydantic's, ('body', 'texts', 2, 'pair', 1), as a client would write it: 'texts[2][1]'."""
    place, *parts = location
    if place == "body" and (not parts or isinstance(parts[0], int)):
        return "body"  # a position in bytes that are no JSON
    field = ""
    for part in parts:
        if isinstance(part, int):
            field += f"[{part}]"
        elif part not in KINDS or not field:
            field += f".{part}" if field else part
    return field or str(place)
