"""The monitor over scope and score: the bound over the whole life, the alarm, the reset, and what it refuses."""

import json
import math

import numpy as np
import pytest

from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, ConfigurationError, DataError, InputError, StoreError
from uatlite.trust.martingale import BETS
from uatlite.trust.monitor import MEANING, STREAMS, Monitor, Reference
from uatlite.trust.scope import Scope
from uatlite.trust.shift import ShiftReference, Usual, summarise

CALIBRATION = 300


class Rows:
    """Rows whose strangeness and score go together: pairs of a normal distribution with correlation -0.6."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        strange, scores = self.draw(CALIBRATION)
        self.scope = Scope(0.01, 0, np.sort(strange))
        self.reference = Reference.of(summarise(scores, score="logit-margin"), self.scope)

    def draw(self, rows: int, moved: float = 0.0, unsure: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        pairs = self.rng.multivariate_normal([moved, -unsure], [[1, -0.6], [-0.6, 1]], size=rows)
        return pairs[:, 0], pairs[:, 1]

    def new(self, rows: int, moved: float = 0.0, unsure: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Scores and p-values of scope."""
        strange, scores = self.draw(rows, moved, unsure)
        below = np.searchsorted(self.scope.nonconformities, strange, side="left")
        return scores, (1.0 + CALIBRATION - below) / (1.0 + CALIBRATION)


def test_without_a_change_it_hardly_ever_alarms_though_it_is_read_after_every_row() -> None:
    bound, repetitions = 0.05, 300
    alarms = 0
    for seed in range(repetitions):
        rows = Rows(seed)
        monitor, logs = Monitor.begin(rows.reference, bound=bound, seed=seed).after(rows.reference, *rows.new(1500))
        alarms += monitor.alarm is not None
        assert (monitor.alarm is not None) == bool((logs >= -math.log(bound)).any())
    assert alarms / repetitions <= bound + 2.5 * math.sqrt(bound * (1 - bound) / repetitions)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_change_is_found_named_and_dated(stream: str) -> None:
    rows = Rows(3)
    monitor, _ = Monitor.begin(rows.reference).after(rows.reference, *rows.new(800))
    assert monitor.alarm is None
    change = {"moved": 1.2} if stream == "scope" else {"unsure": 1.2}
    monitor, _ = monitor.after(rows.reference, *rows.new(200, **change))
    assert monitor.alarm is not None
    assert monitor.alarm.stream == stream
    assert 800 < monitor.alarm.row < 900
    assert abs(monitor.alarm.change - 800) < 30
    assert monitor.alarm.describe() == MEANING[stream, monitor.alarm.bet]
    assert "low" in monitor.alarm.bet
    # It stays, with the same date, whatever comes.
    later, _ = monitor.after(rows.reference, *rows.new(2000))
    assert later.alarm == monitor.alarm


def test_rows_after_the_alarm_tell_more_about_the_change() -> None:
    rows = Rows(3)
    monitor, _ = Monitor.begin(rows.reference).after(rows.reference, *rows.new(400))
    assert monitor.latest is None
    monitor, _ = monitor.after(rows.reference, *rows.new(400, moved=0.5))
    assert monitor.alarm is not None
    assert monitor.alarm.describe() == "many texts are strange"
    monitor, _ = monitor.after(rows.reference, *rows.new(200, moved=4.0))
    assert monitor.latest is not None
    assert monitor.latest.describe() == "many texts are not of this task"
    assert abs(monitor.latest.change - 800) < 30


def test_blocks_and_a_file_in_between_change_nothing() -> None:
    rows = Rows(4)
    scores, scope = (np.append(a, b) for a, b in zip(rows.new(300), rows.new(100, moved=1.0), strict=True))
    whole, logs = Monitor.begin(rows.reference).after(rows.reference, scores, scope)
    parts, seen = Monitor.begin(rows.reference), []
    for first in range(0, 400, 37):
        some = slice(first, first + 37)
        parts, own = parts.after(rows.reference, scores[some], scope[some])
        parts = load(Monitor, json.loads(json.dumps(dump(parts), allow_nan=False)), advice="begin anew.")
        seen += own.tolist()
    np.testing.assert_allclose(seen, logs, rtol=1e-9)
    assert whole.alarm is not None
    assert parts.alarm is not None
    assert (parts.alarm.row, parts.alarm.change, parts.alarm.bet) == (
        whole.alarm.row,
        whole.alarm.change,
        whole.alarm.bet,
    )
    assert parts.log_martingale == pytest.approx(whole.log_martingale)


def test_a_reset_begins_again_against_the_calibration_rows_or_a_new_normal() -> None:
    rows = Rows(5)
    changed, _ = Monitor.begin(rows.reference).after(rows.reference, *rows.new(300, moved=1.2))
    with pytest.raises(StoreError, match="no alarm to acknowledge"):
        Monitor.begin(rows.reference).acknowledged(rows.reference)
    over = changed.acknowledged(rows.reference)
    assert (over.alarm, over.rows, over.epoch, over.log_martingale) == (None, 0, 1, pytest.approx(0.0))
    assert over.after(rows.reference, *rows.new(300, moved=1.2))[0].alarm is not None
    normal = changed.acknowledged(rows.reference, fresh=True)
    settled, _ = normal.after(rows.reference, *rows.new(1500, moved=1.2))
    assert settled.fresh
    assert settled.alarm is None
    back, _ = settled.after(rows.reference, *rows.new(300))
    assert back.alarm is not None
    assert "high" in back.alarm.bet


def test_without_a_scope_the_score_is_watched_alone() -> None:
    rows = Rows(6)
    reference = Reference.of(summarise(rows.draw(100)[1]), None)
    monitor, _ = Monitor.begin(reference).after(reference, rows.new(200, unsure=1.5)[0], None)
    assert monitor.alarm is not None
    assert monitor.alarm.stream == "score"
    assert list(monitor.evidence) == ["score"]


def test_every_winning_bet_has_words() -> None:
    assert set(MEANING) == {(stream, bet) for stream in STREAMS for bet in BETS}


def test_refusals() -> None:
    rows = Rows(7)
    monitor, reference = Monitor.begin(rows.reference), rows.reference
    with pytest.raises(CalibrationError, match="fewer than 50"):
        Reference.of(None, rows.scope)
    with pytest.raises(ConfigurationError, match="bound=2"):
        Monitor.begin(reference, bound=2)
    with pytest.raises(InputError, match="p-values of scope of the new rows too"):
        monitor.after(reference, [0.5], None)
    with pytest.raises(InputError, match="2 scores came with 1"):
        monitor.after(reference, [0.5, 0.6], [0.5])
    with pytest.raises(DataError, match="scored with another calibration"):
        monitor.after(reference, [0.5], [0.5012345])
    with pytest.raises(StoreError, match="broken"):
        load(Monitor, {"bound": 0.01}, advice="begin a new state file.")
    same, logs = monitor.after(reference, [], [])
    assert same is monitor
    assert len(logs) == 0


def test_what_is_usual_is_kept_with_the_calibration_rows() -> None:
    usual = Usual.of(np.array([0.5, 0.7]), np.array([1, 1]), np.array([True, False]), ("a", "b"))
    assert usual == Usual(pytest.approx(0.6), {"a": 0.0, "b": 1.0}, 0.5)
    kept = summarise(np.arange(60.0), usual=usual)
    arrays: dict[str, np.ndarray] = {}
    again = load(ShiftReference, json.loads(json.dumps(dump(kept, arrays))), arrays, advice="calibrate again.")
    assert again.usual == kept.usual
