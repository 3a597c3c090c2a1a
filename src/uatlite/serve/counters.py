"""Counters of the service, which Prometheus reads at /metrics."""

import math
import time
from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uatlite.scoring.watch_state import WatchState
from uatlite.serve.schema import Answer
from uatlite.serve.text_answers import EntitiesAnswer, LabelsAnswer
from uatlite.trust.shift import ShiftReport

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SEVERAL = "several"
"""The label under which texts are counted that have several answers, or none."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Counters:
    """The counters of one service, in its own registry, so that two services in a process do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "uatlite_requests", "Requests by address and status", ("path", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "uatlite_request_seconds", "Time to answer", ("path",), buckets=SECONDS, registry=self.registry
        )
        self._batches = Histogram(
            "uatlite_batch_texts", "Texts that the model read at once", buckets=SIZES, registry=self.registry
        )
        self._texts = Counter("uatlite_texts", "Texts classified, by label", ("label",), registry=self.registry)
        self._reported = Counter(
            "uatlite_reported", "Labels or entities reported, by label", ("label",), registry=self.registry
        )
        self._abstained = Counter("uatlite_abstained", "Texts not answered", registry=self.registry)
        self._outside = Counter("uatlite_out_of_scope", "Texts that are not of the task", registry=self.registry)
        self._passes = Counter("uatlite_passes", "Stochastic passes run", registry=self.registry)
        self._window = Gauge("uatlite_window_texts", "Latest texts in the window", registry=self.registry)
        self._shift = Gauge(
            "uatlite_shift", "Whether the window has shifted: 1, 0, NaN where that is unknown", registry=self.registry
        )
        self._shift_p_value = Gauge(
            "uatlite_shift_p_value", "p-value of the window being like the calibration rows", registry=self.registry
        )
        self._window_outside = Gauge(
            "uatlite_window_out_of_scope", "Share of the window that is out of scope", registry=self.registry
        )
        self._watched = Gauge("uatlite_watch_texts", "Texts watched, over the whole life", registry=self.registry)
        self._evidence = Gauge("uatlite_watch_evidence", "Evidence that the texts have changed", registry=self.registry)
        self._limit = Gauge("uatlite_watch_limit", "Evidence that raises an alarm", registry=self.registry)
        self._alarm = Gauge(
            "uatlite_watch_alarm", "1 from an alarm until it is acknowledged, else 0", registry=self.registry
        )
        self.traffic(None)

    def add_gauge(self, name: str, about: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read on each request to /metrics."""
        Gauge(name, about, registry=self.registry).set_function(read)

    def batch(self, size: int) -> None:
        """Count a batch of texts given to the model."""
        self._batches.observe(size)

    def predictions(self, answers: Collection[Answer | LabelsAnswer | EntitiesAnswer]) -> None:
        """Count classified texts."""
        for answer in answers:
            self._texts.labels(str(answer.label) if isinstance(answer, Answer) else SEVERAL).inc()
            for label in () if isinstance(answer, Answer) else answer.reported:
                self._reported.labels(label).inc()
            if answer.abstain:
                self._abstained.inc()
            if answer.out_of_scope:
                self._outside.inc()
            self._passes.inc(answer.passes)

    def traffic(self, report: ShiftReport | None) -> None:
        """Set the verdict on the latest texts; NaN where it is not known."""
        self._window.set(0 if report is None else report.rows)
        found = (None,) * 3 if report is None else (report.shifted, report.p_value, report.out_of_scope)
        for gauge, value in zip((self._shift, self._shift_p_value, self._window_outside), found, strict=True):
            gauge.set(math.nan if value is None else float(value))

    def watched(self, state: WatchState) -> None:
        """Set what is known of all texts over the whole life."""
        self._watched.set(state.rows)
        self._evidence.set(state.evidence)
        self._limit.set(1.0 / state.monitor.bound)
        self._alarm.set(state.alarm is not None)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All counters in Prometheus's text format."""
        return generate_latest(self.registry)


class RequestCounter:
    """Counts each request by its path. Unknown paths are counted as one, so that clients cannot add series."""

    def __init__(self, app: ASGIApp, *, counters: Counters, paths: Collection[str]) -> None:
        self._app = app
        self._counters = counters
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 499  # stays where the client leaves before there is a status

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._counters.request(path, status, time.perf_counter() - begun)
