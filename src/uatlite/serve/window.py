"""A window over the served traffic: are the latest texts, of whatever requests, like the calibration rows?

One request is often one text, which is too few to tell a shift. The window holds the latest texts of all requests.
Each look is one test with the calibration's rate of false alarms; whoever looks often sees that rate of the looks
alarmed without a shift, so alert on an alarm that stays.
"""

import threading
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from uatlite.classifier.predictions import MEASURES, Prediction
from uatlite.trust.rule import trust
from uatlite.trust.shift import ShiftReference, ShiftReport
from uatlite.values import Floats

WINDOW = 1000
"""Texts of the window: enough to see a shift of a few percent of them, few enough to see it soon."""


def shift_values(reference: ShiftReference, predictions: Sequence[Prediction]) -> tuple[Floats, Floats | None]:
    """What a reference compares: the score and, where it is known, the scope's p-value of each prediction, (rows,)."""
    columns = {name: np.array([getattr(one, name) for one in predictions], dtype=np.float64) for name in MEASURES}
    scope = [one.scope for one in predictions if one.scope is not None]
    return trust(reference.score, SimpleNamespace(**columns)), np.array(scope) if scope else None


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

    def add(self, predictions: Sequence[Prediction]) -> None:
        """Add the predictions of a request; the oldest leave a full window."""
        if self._reference is None or not predictions:
            return
        scores, scope = shift_values(self._reference, predictions)
        unknown = np.full(len(scores), np.nan)
        rows = zip(scores.tolist(), (unknown if scope is None else scope).tolist(), strict=True)
        with self._lock:
            self._rows.extend(rows)
            self._seen += len(predictions)

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
