"""The served traffic: are the texts, of whatever requests, like the calibration rows?

One request is often one text, which is too few to tell a shift. The window holds the latest texts of all requests, and
each look at it is one test. The monitor goes by all texts since the service began, or since its state file did: its
evidence is valid at every moment, so looking often costs no false alarms.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from uatlite.errors import UATLiteError
from uatlite.scoring.parts import measures_of, shift_scores
from uatlite.scoring.timeline import Outcome, hour_of
from uatlite.scoring.watch import Watch
from uatlite.scoring.watch_state import WatchState
from uatlite.trust.monitor import Reference
from uatlite.trust.shift import ShiftReference, ShiftReport
from uatlite.values import Floats

WINDOW = 1000
"""Texts of the window: enough to see a shift of a few percent of them, few enough to see it soon."""
PENDING = 100_000
"""Texts that may wait to be counted while the state file cannot be written; then the oldest are forgotten."""
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
        measures = measures_of(rows)
        return cls(rows, shift_scores(score, measures), measures.scope)


def counted_label(row: Mapping[str, Any]) -> str:
    """What a text is counted under: its label; of several answers the only one, "none" or "several"."""
    if "label" in row:
        return str(row["label"])
    reported = row["labels"] if "labels" in row else [one["label"] for one in row["entities"] if one["reported"]]
    return "none" if not reported else str(reported[0]) if len(set(reported)) == 1 else "several"


@lru_cache(maxsize=1)
def _spelt(hour: float) -> str:
    """An hour since 1970 as the time line writes it; spelling it for each request would cost more than counting."""
    return hour_of(hour * 3600)


class TrafficWindow:
    """The latest texts of a service, as the numbers that a shift check needs; it holds no texts.

    `add` and `report` may be called from different threads.
    """

    def __init__(self, reference: ShiftReference | None, size: int = WINDOW) -> None:
        self._reference = reference
        self._rows: deque[tuple[float, float]] = deque(maxlen=size)
        self._seen = 0
        self._reported = 0
        self._report: ShiftReport | None = None if reference is None else reference.check([])
        self._lock = threading.Lock()

    def add(self, readings: Readings) -> None:
        """Add the texts of a request; the oldest leave a full window."""
        scores = readings.scores.tolist()
        scope = [np.nan] * len(scores) if readings.scope is None else readings.scope.tolist()
        with self._lock:
            self._rows.extend(zip(scores, scope, strict=True))
            self._seen += len(scores)

    def report(self) -> ShiftReport | None:
        """Whether the texts of the window are like the calibration rows; None where these are unknown.

        Computed once for the same texts; it takes milliseconds.
        """
        with self._lock:
            seen, rows = self._seen, np.array(self._rows, dtype=np.float64).reshape(-1, 2)
        if self._reference is None or seen == self._reported:
            return self._report
        scores, scope = rows.T
        self._report = self._reference.check(scores, None if np.isnan(scope).any() else scope)
        self._reported = seen
        return self._report


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
        self._pending: deque[Outcome] = deque(maxlen=PENDING)
        self._counting = threading.Lock()

    def add(self, readings: Readings) -> None:
        """Add the texts of a request; `count` counts them."""
        hour = _spelt(time.time() // 3600)
        known = ("scope", "abstain", "out_of_scope")
        self._pending.extend(
            Outcome(hour, counted_label(row), row["confidence"], score, *(row.get(name) for name in known))
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

    def _after(self, outcomes: list[Outcome]) -> WatchState:
        if self._watch is not None:
            return self._watch.count(outcomes, SERVED)
        return self._state.after(self._reference, outcomes, [(SERVED, 0)] * len(outcomes))
