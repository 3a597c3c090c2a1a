"""The service as a process: bound to an address, stopped by a signal, finishing what it accepted."""

import signal
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from uatlite.classifier.classifier import UncertaintyClassifier
from uatlite.errors import ConfigurationError
from uatlite.serve.app import create_app
from uatlite.serve.http import allowed_hosts
from uatlite.serve.service import Limits, Service, warm_up

STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE = 5
"""Seconds beyond the deadline that a stop waits for: then no accepted request can be under way any more."""
IDLE = 30
"""Seconds after which a connection without a request is closed."""


def serve(
    classifier: UncertaintyClassifier,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Collection[str] = (),
    on_start: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a classifier until SIGINT or SIGTERM; what was accepted until then is answered.

    `port=0` takes a free one. `on_start` is told the address when the service answers at it. `hosts` are further names
    that the service goes by; on loopback it otherwise answers to local names alone.
    """
    service = Service(classifier, limits)
    warm_up(classifier)
    app = create_app(service, token=token, hosts=allowed_hosts(host, hosts))
    with _bound(host, port) as bound, _quiet_signals():
        _Announcing(_configuration(app, service.limits), on_start).run(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"{host}:{port} cannot be bound to ({error.strerror or error}); give another --host or --port, "
            "or --port 0 for a free one."
        ) from error


def _configuration(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=round(limits.deadline) + GRACE,
    )


class _Announcing(uvicorn.Server):
    """A server that says where it is."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[str], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and self.started:
            host, port = sockets[0].getsockname()[:2]
            self._on_start(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """uvicorn raises the signal that stopped it once more when all is done; a stop that was asked for is no failure."""

    def ignore(number: int, frame: FrameType | None) -> None:
        return None

    before = {number: signal.signal(number, ignore) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
