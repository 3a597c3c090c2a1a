"""The service as an ASGI application, with its OpenAPI description; and as a process that ends what it has accepted."""

import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from uatlite import __version__
from uatlite.classifier.product import Product
from uatlite.errors import ConfigurationError
from uatlite.serve.access import OPEN, Access, allowed_hosts
from uatlite.serve.http import WORDS, BoundedBodies, ErrorResponse, SecureHeaders, failed, overloaded, until_disconnect
from uatlite.serve.limits import Limits
from uatlite.serve.schema import ServedModel, Status, response_of
from uatlite.serve.service import Service
from uatlite.serve.traffic import RequestCounter

ABOUT = "Labels with calibrated probabilities, their uncertainty, and whether to abstain."
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": WORDS[status][1]}
    for status in (401, 403, 408, 413, 415, 421, 422, 500, 503, 504)
}
GRACE = 5
"""Seconds that a stop waits beyond the deadline; by then every accepted request has ended."""
IDLE = 30
"""Seconds after which a connection without a request is closed."""


def create_app(
    service: Service,
    *,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> ASGIApp:
    """The service as an ASGI application, which calls `on_start`; `hosts` are those it accepts, None for any."""
    api = build_api(service, secured=token is not None, on_start=on_start)
    bounded = BoundedBodies(api, most=service.limits.body, seconds=service.limits.deadline)
    names = None if hosts is None else {host.casefold() for host in hosts}
    access = Access(bounded, token=token, hosts=names, most=service.limits.requests)
    paths = [str(getattr(route, "path", "")) for route in api.routes]
    return RequestCounter(SecureHeaders(access), counters=service.traffic.counters, paths=paths)


def build_api(service: Service, *, secured: bool, on_start: Callable[[], None]) -> FastAPI:
    """The addresses without the layers; with `secured`, OpenAPI says that a token is needed."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            on_start()
            yield

    api = FastAPI(
        title="UAT-Lite",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from another host
        redoc_url=None,
        responses=REFUSALS,
        exception_handlers=dict.fromkeys((HTTPException, RequestValidationError, Exception), failed),
    )
    _add_answers(api, service)
    _add_probes(api, service)
    _add_pages(api, inspector=service.answers.explain is not None)
    _describe(api, service.limits, secured=secured)
    return api


def _add_answers(api: FastAPI, service: Service) -> None:
    kind, predictor = service.answers, service.predictor
    response = response_of(kind.answer)

    @api.post(kind.path, summary=kind.predicts, tags=["classify"], response_model=response)
    async def predict(body: kind.request, request: Request) -> Response:  # type: ignore[name-defined]
        """Each text gets the same prediction as if it were sent alone; one that cannot be read gets an error."""
        rows = await until_disconnect(request.receive, service.predict(body.texts))
        told = {"calibrated": predictor.calibration is not None, "method": predictor.settings.method.name}
        shift = await service.traffic.add([row for row in rows if "error" not in row])
        answer = response.model_validate({"predictions": rows, "shift": shift, **told})
        # FastAPI would validate again what is known to be valid, and encode it slowly.
        return Response(answer.model_dump_json(), media_type="application/json")

    if kind.explain is None:
        return
    hints = get_type_hints(kind.explain)
    asked, explained = hints["asked"], hints["return"]

    @api.post("/explain", summary=kind.explains, description=kind.explain.__doc__, tags=["classify"])
    async def explain(body: asked, request: Request) -> explained:  # type: ignore[valid-type]
        return await until_disconnect(request.receive, service.explain(body.text, body))  # type: ignore[attr-defined]


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
    def model() -> ServedModel:  # in a thread: telling what has changed takes arrays
        """What is served: classes, method, what calibration promises, whether the traffic has changed, limits."""
        return service.about(service.traffic.count())

    @api.get("/metrics", tags=["operate"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def metrics() -> Response:
        """Counters, and the verdict on the traffic, in Prometheus's text format."""
        service.traffic.count()
        return Response(generate_latest(service.traffic.counters.registry), media_type=CONTENT_TYPE_LATEST)


def _add_pages(api: FastAPI, *, inspector: bool) -> None:
    static = files("uatlite.serve") / "static"
    pages = {"/": "index.html", "/docs": "docs.html"}
    for address, name in list(pages.items())[not inspector :]:
        page = HTMLResponse((static / name).read_text(encoding="utf-8"))  # which is an application itself
        api.router.routes.append(Route(address, page, methods=["GET"], include_in_schema=False))
    api.mount("/static", StaticFiles(directory=str(static)), name="static")


def _describe(api: FastAPI, limits: Limits, *, secured: bool) -> None:
    """Add the limits of this service, and its token, to the OpenAPI specification."""
    specification = api.openapi()  # FastAPI makes it once and keeps it, so that changes to it last
    for name, schema in specification["components"]["schemas"].items():
        fields = schema["properties"] if name.endswith("Request") else {}
        if "scores" in fields:
            fields["scores"]["maxItems"] = limits.texts
        if "texts" in fields:
            fields["texts"]["maxItems"] = limits.texts
            _bound_strings(fields["texts"]["items"]["oneOf"], limits.characters)
        if "text" in fields:
            _bound_strings(fields["text"]["oneOf"], limits.explained)
    if secured:
        specification["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in specification["paths"].items():
            for operation in methods.values() if path not in OPEN else ():
                operation["security"] = [{"token": []}]


def _bound_strings(kinds: list[dict[str, Any]], most: int) -> None:
    for kind in kinds:
        if kind.get("type") == "string":
            kind |= {"minLength": 1, "maxLength": most}


def serve(
    classifier: Product[Any],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
    watch: Path | None = None,
    on_start: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a classifier until SIGINT or SIGTERM, and then answer the requests accepted before.

    `port=0` takes a free port. `on_start` gets the address once the service answers there. `hosts` are host names to
    accept; on loopback the local names are accepted as well, elsewhere no `hosts` means any. `watch` is a file that
    keeps what is known of the traffic.
    """
    service = Service(classifier, limits, watch=watch)
    service.warm_up()
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ConfigurationError(
            f"The service cannot listen on {host}:{port} ({error.strerror or error}); give another --host or --port, "
            "or --port 0 for a free one."
        ) from error
    name, number = bound.getsockname()[:2]
    address = f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"
    config = uvicorn.Config(
        create_app(service, token=token, hosts=allowed_hosts(host, hosts), on_start=lambda: on_start(address)),
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=round(service.limits.deadline) + GRACE,
    )
    with bound, _quiet_signals():
        uvicorn.Server(config).run(sockets=[bound])


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Ignore the signal that uvicorn raises again after it stopped, so that a stop by signal exits with code 0."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
