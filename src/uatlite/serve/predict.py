"""POST /predict: what a service of each kind answers, and the short path of a request that is valid.

FastAPI describes the address, words the refusals and answers whatever the short path hands on to it. With a small model
its general path (middleware, routes, dependencies) would cost a good part of what the model does.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from uatlite.model.architectures import Answering
from uatlite.serve.http import Refusal, answer, failed, replay
from uatlite.serve.schema import Answer, PredictRequest, PredictResponse, Shift, text_of
from uatlite.serve.service import Service, checked_texts
from uatlite.serve.text_answers import (
    EntitiesAnswer,
    EntitiesResponse,
    LabelsAnswer,
    LabelsResponse,
    TagRequest,
    tagged_of,
)
from uatlite.values import Text

Result = TypeVar("Result")

PATH = "/predict"
TYPE = "application/json"


async def predict_classes(service: Service, body: PredictRequest, receive: Receive) -> PredictResponse:
    """One class for each text."""
    predictions, rows, common = await _predicted(service, receive, [text_of(one) for one in body.texts])
    answers = [Answer.of(one, row) for one, row in zip(predictions, rows, strict=True)]
    service.counters.predictions(answers)
    return PredictResponse(predictions=answers, **common)


async def predict_labels(service: Service, body: PredictRequest, receive: Receive) -> LabelsResponse:
    """The labels of each text."""
    predictions, _, common = await _predicted(service, receive, [text_of(one) for one in body.texts])
    answers = [LabelsAnswer.of(one, service.predictor) for one in predictions]
    service.counters.predictions(answers)
    return LabelsResponse(predictions=answers, **common)


async def predict_entities(service: Service, body: TagRequest, receive: Receive) -> EntitiesResponse:
    """The entities of each text."""
    predictions, _, common = await _predicted(service, receive, [tagged_of(one) for one in body.texts])
    answers = [EntitiesAnswer.of(one) for one in predictions]
    service.counters.predictions(answers)
    return EntitiesResponse(predictions=answers, **common)


Predict = Callable[[Service, Any, Receive], Awaitable[BaseModel]]
PREDICT: dict[Answering, tuple[type[BaseModel], Predict]] = {
    "one": (PredictRequest, predict_classes),
    "choice": (PredictRequest, predict_classes),
    "many": (PredictRequest, predict_labels),
    "tokens": (TagRequest, predict_entities),
}
"""What a model says about a text -> the body of a request, and what answers it."""


async def _predicted(
    service: Service, receive: Receive, given: Sequence[Text]
) -> tuple[list[Any], list[dict[str, Any]], dict[str, Any]]:
    """The predictions of a request, each also as a row, and the fields of its response that all kinds share."""
    predictions = await until_disconnect(receive, service.predict(checked_texts(given, service)))
    rows = [one.as_row() for one in predictions]
    report = await service.count(rows)
    return (
        predictions,
        rows,
        {
            "shift": None if report is None else Shift.of(report),
            "calibrated": service.predictor.calibration is not None,
            "method": service.predictor.settings.method.name,
        },
    )


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the client disconnects."""
    asking = asyncio.current_task()
    assert asking is not None
    left = False

    async def leave() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        asking.cancel()

    leaving = asyncio.create_task(leave())
    try:
        return await work
    except asyncio.CancelledError:
        if left and asking.uncancel() == 0:  # else the service itself was told to stop
            raise Refusal(499) from None
        raise
    finally:
        leaving.cancel()


class ShortPath:
    """Answers valid requests to /predict itself and hands all others on; below a layer that gives the body at once."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._body, self._answer = PREDICT[service.kind]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_short(scope):
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]
        try:
            asked = self._body.model_validate(json.loads(body))
        except (ValueError, RecursionError):  # of JSON, of UTF-8, or of pydantic; FastAPI says what is wrong
            await self._app(scope, replay(body, receive), send)
            return
        try:
            found = await self._answer(self._service, asked, receive)
            response = Response(found.__pydantic_serializer__.to_json(found), media_type=TYPE)
        except HTTPException as refusal:
            response = answer(refusal)
        except Exception:
            await failed(scope["method"], scope["path"])(scope, receive, send)
            raise
        await response(scope, receive, send)


def _is_short(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
        return False
    return [value for name, value in scope["headers"] if name == b"content-type"] == [TYPE.encode()]
