"""POST /predict: what a service of each kind answers."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive

from uatlite.serve.http import Refusal
from uatlite.serve.schema import Answer, PredictRequest, PredictResponse, Shift, text_of
from uatlite.serve.service import Service
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

TYPE = "application/json"


def as_json(answer: BaseModel) -> Response:
    """The response of an answer that is known to be valid: FastAPI would validate it again and encode it slowly."""
    return Response(answer.__pydantic_serializer__.to_json(answer), media_type=TYPE)


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


async def _predicted(
    service: Service, receive: Receive, given: Sequence[Text]
) -> tuple[list[Any], list[dict[str, Any]], dict[str, Any]]:
    """The predictions of a request, each also as a row, and the fields of its response that all kinds share."""
    service.limits.check_texts(given, service.shape.fault)
    predictions = await until_disconnect(receive, service.predict(given))
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
