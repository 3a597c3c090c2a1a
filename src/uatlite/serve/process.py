"""The service as a process: it binds an address, and on a signal finishes its accepted requests and stops."""

import signal
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from uatlite.classifier.product import Product
from uatlite.errors import ConfigurationError
from uatlite.serve.access import allowed_hosts
from uatlite.serve.app import create_app
from uatlite.serve.limits import Limits
from uatlite.serve.service import Service

STOPPING = (signal.SIGINT, signal.SIGTERM)
GRACE = 5
"""Seconds that a stop waits beyond the deadline; by then every accepted request has ended."""
IDLE = 30
"""Seconds after which a connection without a request is closed."""


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
    app = create_app(service, token=token, hosts=allowed_hosts(host, hosts))
    with _bound(host, port) as bound, _quiet_signals():
        _Server(_configuration(app, service.limits), on_start).run(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"The service cannot listen on {host}:{port} ({error.strerror or error}); give another --host or --port, "
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


class _Server(uvicorn.Server):
    """A server that reports its address when it has started."""

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
    """Ignore the signal that uvicorn raises again after it stopped, so that a stop by signal exits with code 0."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
