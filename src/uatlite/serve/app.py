"""The addresses of the service, the layers around them, and the OpenAPI description with the limits of the service."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, get_type_hints

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from uatlite import __version__
from uatlite.serve.access import OPEN, Access
from uatlite.serve.http import (
    WORDS,
    BoundedBodies,
    ErrorResponse,
    SecureHeaders,
    add_handlers,
    overloaded,
    until_disconnect,
)
from uatlite.serve.limits import Limits
from uatlite.serve.schema import ServedModel, Shift, Status, response_of, sent_text
from uatlite.serve.service import Service
from uatlite.serve.traffic import RequestCounter

ABOUT = "Labels with calibrated probabilities, their uncertainty, and whether to abstain."
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": WORDS[status][1]}
    for status in (401, 403, 408, 413, 415, 421, 422, 500, 503, 504)
}


def create_app(service: Service, *, token: str | None = None, hosts: Collection[str] | None = None) -> ASGIApp:
    """The service as an ASGI application; `hosts` are the host names it accepts, None for any."""
    api = build_api(service, secured=token is not None)
    bounded = BoundedBodies(api, most=service.limits.body, seconds=service.limits.deadline)
    access = Access(bounded, token=token, hosts=hosts, most=service.limits.requests)
    paths = [str(getattr(route, "path", "")) for route in api.routes]
    return RequestCounter(SecureHeaders(access), counters=service.traffic.counters, paths=paths)


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
        responses=REFUSALS,
    )
    add_handlers(api)
    _add_answers(api, service)
    _add_probes(api, service)
    _add_pages(api)
    _describe(api, service.limits, secured=secured)
    return api


def _add_answers(api: FastAPI, service: Service) -> None:
    kind = service.answers
    response, hints = response_of(kind.answer), get_type_hints(kind.explain)
    asked, explained = hints["asked"], hints["return"]

    @api.post("/predict", summary=kind.predicts, tags=["classify"], response_model=response)
    async def predict(body: kind.request, request: Request) -> Response:  # type: ignore[name-defined]
        """Each text gets the same prediction as if it were sent alone."""
        texts = [sent_text(text) for text in body.texts]
        service.limits.check_texts(texts, service.fault)
        rows = await until_disconnect(request.receive, service.predict(texts))
        shift, predictor = await service.traffic.add(rows), service.predictor
        answer = response(
            predictions=rows,
            shift=None if shift is None else Shift.of(shift),
            calibrated=predictor.calibration is not None,
            method=predictor.settings.method.name,
        )
        # FastAPI would validate again what is known to be valid, and encode it slowly.
        return Response(answer.__pydantic_serializer__.to_json(answer), media_type="application/json")

    @api.post("/explain", summary=kind.explains, description=kind.explain.__doc__, tags=["classify"])
    async def explain(body: asked, request: Request) -> explained:  # type: ignore[valid-type]
        text = sent_text(body.text)  # type: ignore[attr-defined]
        service.limits.check_explained(text, service.fault)
        work = partial(kind.explain, service.predictor, text, body)
        return await until_disconnect(request.receive, service.explain(work))


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
        return service.about(await service.traffic.watched())

    @api.get("/metrics", tags=["operate"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters, and the verdict on the traffic, in Prometheus's text format."""
        await service.traffic.watched()
        return Response(service.traffic.counters.text(), media_type=CONTENT_TYPE_LATEST)


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
