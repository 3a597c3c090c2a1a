"""The sample that tells a shift: bounded, uniform, and the same however the stream was cut."""

import numpy as np

from uatlite.scoring.run import ShiftMonitor, hashed
from uatlite.trust.shift import summarise

REFERENCE = summarise(np.random.default_rng(0).random(200))


def test_the_sample_does_not_depend_on_the_cuts() -> None:
    scores = np.random.default_rng(1).random(5000)
    reports = []
    for size in (5000, 700, 1):
        monitor = ShiftMonitor(REFERENCE, size=300)
        for start in range(0, len(scores), size):
            part = scores[start : start + size]
            monitor.add(np.arange(start, start + len(part)), part, None)
        reports.append(monitor.report())
    assert reports[0] == reports[1] == reports[2]
    assert reports[0] is not None
    assert reports[0].rows == 300


def test_the_sample_is_spread_over_the_stream() -> None:
    places = np.argsort(hashed(np.arange(100_000, dtype=np.uint64)))[:10_000]
    counts = np.histogram(places, bins=10, range=(0, 100_000))[0]
    assert (abs(counts - 1000) < 4 * np.sqrt(900)).all()
    assert len(np.unique(hashed(np.arange(100_000, dtype=np.uint64)))) == 100_000


def test_without_a_reference_there_is_no_report() -> None:
    monitor = ShiftMonitor(None)
    monitor.add([0], [0.5], None)
    assert monitor.report() is None
    assert ShiftMonitor(REFERENCE).report().shifted is None  # type: ignore[union-attr]
