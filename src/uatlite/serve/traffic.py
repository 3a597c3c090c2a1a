"""The served traffic: are the texts, of whatever requests, like the calibration rows? And the counters of /metrics.

One request is often one text, which is too few to tell a shift. The state goes by all texts since the service began, or
since its file did: its evidence is valid at every moment, so looking often costs no false alarms.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import Message, Receive, Scope, Send

from uatlite.classifier.record import Calibration
from uatlite.errors import CalibrationError, UATLiteError
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.scoring.watch import Watch
from uatlite.scoring.watch_state import WatchedRow, WatchState, hour_of
from uatlite.serve.http import Layer
from uatlite.trust.monitor import SCOPE, Reference
from uatlite.trust.shift import ShiftReport
from uatlite.values import counted

COUNTING = 5.0
"""Seconds between two countings of the traffic; a kill loses at most these."""
LOCK_PATIENCE = 2.0
"""Seconds to wait for another process that holds the state of the traffic."""
PENDING = 100_000
"""Texts that may wait to be counted while the state file cannot be written; then the oldest are forgotten."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
SERVED = "the service's traffic"
"""What a state file calls the place of rows that a service counted."""


class Traffic:
    """The counters of /metrics, and whether the texts are like the calibration rows: those of a request, and all.

    Of the texts it keeps counts alone. With a path the state is in that file: it goes on after a restart, several
    processes share it, and `uatlite watch` shows and acknowledges its alarms. Without one it ends with the service.
    `add` runs on the event loop, `count` in any thread.
    """

    def __init__(
        self, calibration: Calibration | None, path: Path | None = None, *, patience: float = LOCK_PATIENCE
    ) -> None:
        self.counters = Counters()
        self._calibration = calibration
        self._pending: deque[WatchedRow] = deque(maxlen=PENDING)
        self._counting = threading.Lock()
        self._watch: Watch | None = None
        self._state: WatchState | None = None
        if calibration is not None and calibration.shift is not None:
            self._reference = Reference.of(calibration.shift, calibration.scope)
            self._watch = None if path is None else Watch(calibration, path, patience=patience)
            self._state = WatchState.begin(self._reference) if self._watch is None else self._watch.read()
        elif path is not None:
            raise CalibrationError(
                f"{path} cannot keep what is known of the traffic: the classifier has no calibration rows to compare "
                "with. Run: uatlite calibrate"
            )

    async def add(self, rows: Sequence[Mapping[str, Any]]) -> ShiftReport | None:
        """Count the texts of a request, each a row of output; whether they are like the calibration rows.

        None where these are unknown.
        """
        scored = [ScoredRow(row, SERVED) for row in rows]
        self.counters.texts(scored)
        calibration, texts = self._calibration, len(scored)
        if calibration is None or (shift := calibration.shift) is None:
            return None
        scoped, hour = SCOPE in self._reference.cells, hour_of(time.time())
        watched = [WatchedRow.of(row, shift.score, hour, scoped=scoped) for row in scored]
        self._pending.extend(watched)
        scope = [row.scope for row in watched if row.scope is not None] if scoped else None
        report = await asyncio.to_thread(shift.check, [row.score for row in watched], scope)  # takes milliseconds
        wrong = [chance for row in watched for chance in row.wrong]
        over = f"this request of {counted(texts, 'text')}"
        return calibration.judged(report, over, texts, len(wrong), sum(wrong))

    async def run(self) -> None:
        """Count the texts every few seconds, without end."""
        while True:
            await asyncio.sleep(COUNTING)
            await asyncio.to_thread(self.count)

    def count(self) -> WatchState | None:
        """Count the texts that were added, and return what is known of all over the whole life.

        None where there are no rows to compare with. Where the file fails, the texts wait for the next counting.
        """
        with self._counting:
            rows = [self._pending.popleft() for _ in range(len(self._pending))]
            try:
                if self._watch is not None:
                    self._state = self._watch.count(rows)
                elif self._state is not None:
                    self._state = self._state.after(self._reference, rows)
            except UATLiteError as error:
                self._pending.extendleft(reversed(rows))
                logging.getLogger(__name__).warning("the traffic is not counted: %s", error)
            if self._state is not None:
                self.counters.watched(self._state)
            return self._state


class Counters:
    """The counters of one service, in its own registry, so that two services in a process do not mix."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.requests = counter("uatlite_requests", "Requests by address and status", ("path", "status"))
        self.seconds = histogram("uatlite_request_seconds", "Time to answer", ("path",), buckets=SECONDS)
        self.batches = histogram("uatlite_batch_texts", "Texts that the model read at once", buckets=SIZES)
        self._texts = counter("uatlite_texts", "Texts classified, by label", ("label",))
        self._reported = counter("uatlite_reported", "Labels or entities reported, by label", ("label",))
        self._abstained = counter("uatlite_abstained", "Texts not answered")
        self._outside = counter("uatlite_out_of_scope", "Texts that are not of the task")
        self._passes = counter("uatlite_passes", "Stochastic passes run")
        self._watched = gauge("uatlite_watch_texts", "Texts watched, over the whole life")
        self._evidence = gauge("uatlite_watch_evidence", "Evidence that the texts have changed")
        self._limit = gauge("uatlite_watch_limit", "Evidence that raises an alarm")
        self._alarm = gauge("uatlite_watch_alarm", "1 from an alarm until it is acknowledged, else 0")
        self.waiting = gauge("uatlite_waiting_texts", "Texts that wait for the model")

    def texts(self, rows: Iterable[ScoredRow]) -> None:
        """Count classified texts."""
        for row in rows:
            self._texts.labels(row.counted_label).inc()
            for label in row.reported:
                self._reported.labels(label).inc()
            if row.values.get("abstain"):
                self._abstained.inc()
            if row.values.get("out_of_scope"):
                self._outside.inc()
            self._passes.inc(row.values["passes"])

    def watched(self, state: WatchState) -> None:
        """Set what is known of all texts over the whole life."""
        self._watched.set(state.rows)
        self._evidence.set(state.evidence)
        self._limit.set(1.0 / state.monitor.bound)
        self._alarm.set(state.alarm is not None)


@dataclass
class RequestCounter(Layer):
    """Counts each request by its path. Unknown paths are counted as one, so that clients cannot add series."""

    counters: Counters
    paths: Collection[str]

    async def http(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, status = time.perf_counter(), 499  # stays where the client leaves before there is a status

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, counted)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.counters.requests.labels(path, str(status)).inc()
            self.counters.seconds.labels(path).observe(time.perf_counter() - begun)
