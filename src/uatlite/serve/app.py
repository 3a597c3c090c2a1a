"""The addresses of the service, the layers around them, and the OpenAPI description with the limits of the service."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from uatlite import __version__
from uatlite.passes.config import GATES
from uatlite.serve.access import OPEN, Access
from uatlite.serve.http import WORDS, BoundedBodies, ErrorResponse, SecureHeaders, add_handlers, invalid, overloaded
from uatlite.serve.inspector import Inspection, inspect
from uatlite.serve.limits import Limits
from uatlite.serve.predict import as_json, predict_classes, predict_entities, predict_labels, until_disconnect
from uatlite.serve.schema import (
    ExplainRequest,
    ExplainResponse,
    PredictRequest,
    PredictResponse,
    ServedModel,
    Status,
    text_of,
)
from uatlite.serve.service import Service
from uatlite.serve.text_answers import (
    EntitiesResponse,
    ExplainedEntity,
    ExplainedLabel,
    ExplainEntityRequest,
    ExplainLabelRequest,
    LabelsResponse,
    TagRequest,
    explain_entity,
    explain_label,
    tagged_of,
)
from uatlite.serve.traffic import RequestCounter

ABOUT = "Labels with calibrated probabilities, their uncertainty, and whether to abstain."
REFUSED: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": WORDS[status][1]}
    for status in (401, 403, 408, 413, 415, 421, 422, 500, 503, 504)
}


def create_app(service: Service, *, token: str | None = None, hosts: Collection[str] | None = None) -> ASGIApp:
    """The service as an ASGI application; `hosts` are the host names it accepts, None for any."""
    api = build_api(service, secured=token is not None)
    bounded = BoundedBodies(api, most=service.limits.body, seconds=service.limits.deadline)
    access = Access(bounded, token=token, hosts=hosts, most=service.limits.requests)
    paths = [str(getattr(route, "path", "")) for route in api.routes]
    return RequestCounter(SecureHeaders(access), counters=service.counters, paths=paths)


def build_api(service: Service, *, secured: bool = False) -> FastAPI:
    """The addresses without the layers; with `secured`, OpenAPI says that a token is needed."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    api = FastAPI(
        title="UAT-Lite",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from another host
        redoc_url=None,
        responses=REFUSED,
    )
    add_handlers(api)
    ANSWERS[service.kind](api, service)
    _add_probes(api, service)
    _add_pages(api)
    _describe(api, service.limits, secured=secured)
    return api


def _add_classes(api: FastAPI, service: Service) -> None:
    @api.post("/predict", summary="Classify texts", tags=["classify"], response_model=PredictResponse)
    async def predict(body: PredictRequest, request: Request) -> Response:
        """Each text gets the same prediction as if it were sent alone."""
        return as_json(await predict_classes(service, body, request.receive))

    @api.post("/explain", summary="Explain one text", tags=["classify"])
    async def explain(body: ExplainRequest, request: Request) -> ExplainResponse:
        """The prediction, its passes, and the words, layers and attention that its uncertainty comes from."""
        if body.settings.gate is not None and body.settings.gate not in GATES:
            raise invalid("settings.gate", f"is not one of: {', '.join(GATES)}")
        text = text_of(body.text)
        service.limits.check_explained(text, service.shape.fault)
        inspection = Inspection(text, body.settings, body.masking)
        return await until_disconnect(request.receive, service.explain(partial(inspect, service.predictor, inspection)))


def _add_labels(api: FastAPI, service: Service) -> None:
    @api.post("/predict", summary="Label texts", tags=["classify"], response_model=LabelsResponse)
    async def predict(body: PredictRequest, request: Request) -> Response:
        """Each text gets the same labels as if it were sent alone."""
        return as_json(await predict_labels(service, body, request.receive))

    @api.post("/explain", summary="Explain one label of a text", tags=["classify"])
    async def explain(body: ExplainLabelRequest, request: Request) -> ExplainedLabel:
        """All labels of the text, and the words and layers that the uncertainty about one of them comes from."""
        if body.label is not None and body.label not in service.predictor.class_names:
            raise invalid("label", f"is not one of: {', '.join(service.predictor.class_names)}")
        text = text_of(body.text)
        service.limits.check_explained(text, service.shape.fault)
        work = partial(explain_label, service.predictor, text, body.label)
        return await until_disconnect(request.receive, service.explain(work))


def _add_entities(api: FastAPI, service: Service) -> None:
    @api.post("/predict", summary="Find entities in texts", tags=["classify"], response_model=EntitiesResponse)
    async def predict(body: TagRequest, request: Request) -> Response:
        """Each text gets the same entities as if it were sent alone."""
        return as_json(await predict_entities(service, body, request.receive))

    @api.post("/explain", summary="Explain one entity of a text", tags=["classify"])
    async def explain(body: ExplainEntityRequest, request: Request) -> ExplainedEntity:
        """All entities of the text, and the words and layers that the uncertainty about one of them comes from."""
        text = tagged_of(body.text)
        service.limits.check_explained(text, service.shape.fault)
        work = partial(explain_entity, service.predictor, text, body.entity)
        return await until_disconnect(request.receive, service.explain(work))


ANSWERS = {"one": _add_classes, "choice": _add_classes, "labels": _add_labels, "entities": _add_entities}
"""What a model says about a text -> the addresses that ask it."""


def _add_probes(api: FastAPI, service: Service) -> None:
    @api.get("/health", tags=["operate"])
    async def health() -> Status:
        """200 while the process lives."""
        return Status(status="ok")

    @api.get("/ready", tags=["operate"])
    async def ready() -> Status:
        """200 if another text would be accepted, 503 if the queue is full or the service is stopping."""
        if not service.ready:
            raise overloaded(1)
        return Status(status="ready")

    @api.get("/model", tags=["operate"])
    async def model() -> ServedModel:
        """What is served: classes, method, what calibration promises, whether the traffic has changed, limits."""
        return service.about(await service.watched())

    @api.get("/metrics", tags=["operate"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters, and the verdict on the traffic, in Prometheus's text format."""
        await service.watched()
        return Response(service.counters.text(), media_type=CONTENT_TYPE_LATEST)


def _add_pages(api: FastAPI) -> None:
    static = files("uatlite.serve") / "static"
    for address, name in {"/": "index.html", "/docs": "docs.html"}.items():
        _add_page(api, address, (static / name).read_text(encoding="utf-8"))
    api.mount("/static", StaticFiles(directory=str(static)), name="static")


def _add_page(api: FastAPI, address: str, html: str) -> None:
    @api.get(address, include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(html)


def _describe(api: FastAPI, limits: Limits, *, secured: bool) -> None:
    """Add the limits of this service, and its token, to the OpenAPI specification."""
    specification = api.openapi()  # FastAPI makes it once and keeps it, so that changes to it last
    _bound(specification["components"]["schemas"], limits)
    if secured:
        _secure(specification)


def _bound(schemas: dict[str, Any], limits: Limits) -> None:
    asked = [schema["properties"] for name, schema in schemas.items() if name.endswith("Request")]
    for texts in (fields["texts"] for fields in asked if "texts" in fields):
        texts["maxItems"] = limits.texts
        _bound_strings(texts["items"]["oneOf"], limits.characters)
    for text in (fields["text"] for fields in asked if "text" in fields):
        _bound_strings(text["oneOf"], limits.explained)


def _bound_strings(kinds: list[dict[str, Any]], most: int) -> None:
    for kind in kinds:
        if kind.get("type") == "string":
            kind |= {"minLength": 1, "maxLength": most}


def _secure(specification: dict[str, Any]) -> None:
    specification["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, methods in specification["paths"].items():
        if path not in OPEN:
            for operation in methods.values():
                operation["security"] = [{"token": []}]
