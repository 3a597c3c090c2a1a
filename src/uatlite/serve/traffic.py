"""The served traffic: are the texts, of whatever requests, like the calibration rows? And the counters of /metrics.

One request is often one text, which is too few to tell a shift. The monitor goes by all texts since the service began,
or since its state file did: its evidence is valid at every moment, so looking often costs no false alarms.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from uatlite.errors import UATLiteError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.scoring.timeline import WatchedRow, hour_of
from uatlite.scoring.watch import Watch
from uatlite.scoring.watch_state import WatchState
from uatlite.serve.schema import Answer
from uatlite.serve.text_answers import EntitiesAnswer, LabelsAnswer
from uatlite.trust.monitor import Reference
from uatlite.values import Floats

PENDING = 100_000
"""Texts that may wait to be counted while the state file cannot be written; then the oldest are forgotten."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SEVERAL = "several"
"""The label under which texts are counted that have several answers, or none."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SERVED = "the service's traffic"
"""What a state file calls the place of rows that a service counted."""


@dataclass(frozen=True, eq=False)
class Readings:
    """What the checks of the traffic read of the predictions of a request, made once for all of them."""

    rows: list[dict[str, Any]]
    """the predictions of one product, each as it is written to files"""
    scores: Floats
    """(rows,): what tells a shift"""
    scope: Floats | None
    """(rows,): p-values of being in scope; None where they are not known"""

    @classmethod
    def of(cls, score: str, rows: list[dict[str, Any]]) -> Self:
        """The readings of one prediction or more, each `as_row()`; `score` is the name of what tells a shift."""
        scope = np.array([row["scope"] for row in rows]) if "scope" in rows[0] else None
        return cls(rows, np.array([ScoredRow(row).score(score) for row in rows]), scope)


@lru_cache(maxsize=1)
def _spelt(hour: float) -> str:
    """An hour since 1970 as the time line writes it; spelling it for each request would cost more than counting."""
    return hour_of(hour * 3600)


class TrafficMonitor:
    """The evidence that the served texts have changed, over the whole life; of the texts it keeps counts alone.

    With a `watch` the state is its file: it goes on after a restart, several processes share it, and `uatlite watch`
    shows and acknowledges its alarms. Without one it ends with the service. `add` and `count` may be called from
    different threads.
    """

    def __init__(self, reference: Reference, watch: Watch | None = None) -> None:
        self._reference = reference
        self._watch = watch
        self._state = WatchState.begin(reference) if watch is None else watch.read()
        self._pending: deque[WatchedRow] = deque(maxlen=PENDING)
        self._counting = threading.Lock()

    def add(self, readings: Readings) -> None:
        """Add the texts of a request; `count` counts them."""
        hour = _spelt(time.time() // 3600)
        known = ("scope", "abstain", "out_of_scope")
        self._pending.extend(
            WatchedRow(hour, ScoredRow(row).counted_label, row["confidence"], score, *(row.get(name) for name in known))
            for row, score in zip(readings.rows, readings.scores.tolist(), strict=True)
            if math.isfinite(score)
        )

    def count(self) -> WatchState:
        """Count the texts that were added, and return what is known; where the file fails, they wait for the next."""
        with self._counting:
            outcomes = [self._pending.popleft() for _ in range(len(self._pending))]
            try:
                self._state = self._after(outcomes)
            except UATLiteError as error:
                self._pending.extendleft(reversed(outcomes))
                logging.getLogger(__name__).warning("the traffic is not counted: %s", error)
            return self._state

    def _after(self, outcomes: list[WatchedRow]) -> WatchState:
        if self._watch is not None:
            return self._watch.count(outcomes, SERVED)
        return self._state.after(self._reference, outcomes, [(SERVED, 0)] * len(outcomes))


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
        self._watched = Gauge("uatlite_watch_texts", "Texts watched, over the whole life", registry=self.registry)
        self._evidence = Gauge("uatlite_watch_evidence", "Evidence that the texts have changed", registry=self.registry)
        self._limit = Gauge("uatlite_watch_limit", "Evidence that raises an alarm", registry=self.registry)
        self._alarm = Gauge(
            "uatlite_watch_alarm", "1 from an alarm until it is acknowledged, else 0", registry=self.registry
        )

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
