"""A watch over files: each row once through kills and beside another process, alarms, resets, and what it refuses."""

import json
import os
import random
import time
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from uatlite.classifier.record import Calibration
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, DataError, StoreError
from uatlite.scoring.timeline import HourTally, Timeline, WatchedRow, hour_of, share, spelt_hour
from uatlite.scoring.watch import Watch, changed_rows, rows_since, watched_calibration
from uatlite.scoring.watch_state import WatchState
from uatlite.trust.scope import Scope
from uatlite.trust.shift import summarise

CALIBRATION = 200
SPAN = {"start": 0, "end": 4, "text": "text"}
NORMAL = np.sort(np.random.default_rng(0).normal(size=CALIBRATION))


def calibration() -> Calibration:
    """What a watch reads of a calibration: scores and strangeness of 200 rows."""
    found = SimpleNamespace(shift=summarise(NORMAL, score="logit-margin"), scope=Scope(0.01, 0, NORMAL))
    return cast(Calibration, found)


def rows(first: int, number: int, *, moved: float = 0.0) -> list[dict[str, Any]]:
    """Scored rows, numbered from `first`; with `moved` they are stranger."""
    rng = np.random.default_rng(first + 1)
    strange, margins = rng.normal(moved, 1, size=number), rng.normal(size=number)
    p = (1 + CALIBRATION - np.searchsorted(NORMAL, strange, side="left")) / (1 + CALIBRATION)
    return [
        {
            "id": first + place, "text": f"text {first + place}", "label": "ab"[place % 2], "confidence": 0.5,
            "logit_margin": float(margins[place]), "scope": float(p[place]), "abstain": place % 4 == 0,
            "out_of_scope": bool(p[place] <= 0.01), "at": f"2026-11-17T{first // 1000:02d}:30:00Z",
        }
        for place in range(number)
    ]  # fmt: skip


def write(path: Path, some: list[dict[str, Any]], mode: str = "a") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in some)


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(calibration(), tmp_path / "state" / "watch.json", time="at", patience=0.3)


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    (tmp_path / "scored").mkdir()
    return tmp_path / "scored"


def test_looks_add_up_to_one_look(watch: Watch, scored: Path, tmp_path: Path) -> None:
    for number in range(5):
        write(scored / f"{number % 2}.jsonl", rows(1000 * number, 150))
        watch.look(str(scored))
    state = watch.look(str(scored))
    assert state.rows == 750
    assert [tally.rows for tally in state.timeline.hours.values()] == [150] * 5
    assert next(iter(state.timeline.hours)) == "2026-11-17T00"
    # The same rows at once, in the order in which they were counted.
    whole = tmp_path / "whole"
    whole.mkdir()
    for number in range(5):
        write(whole / f"{number}.jsonl", rows(1000 * number, 150))
    once = Watch(watch.calibration, tmp_path / "once.json", time="at").look(str(whole))
    assert once.monitor.log_martingale == pytest.approx(state.monitor.log_martingale)
    assert once.timeline.hours["2026-11-17T03"].labels == {"a": 75, "b": 75}


def test_an_alarm_its_rows_and_the_reset(watch: Watch, scored: Path) -> None:
    write(scored / "a.jsonl", rows(0, 400))
    assert watch.look(str(scored)).alarm is None
    write(scored / "b.jsonl", rows(5000, 300, moved=1.5))
    state = watch.look(str(scored))
    alarm = state.alarm
    assert alarm is not None
    assert abs(alarm.change - 400) < 25
    assert 400 < alarm.row < 450
    assert (alarm.since, alarm.raised) == ("2026-11-17T05", "2026-11-17T05")
    assert "ALARM" in state.describe(300)[1]
    assert "b.jsonl" in state.describe(300)[-1]
    found = list(rows_since(watch, state, str(scored), 395))
    assert [row.number for row in found] == list(range(395, 700))
    assert [row.row.values["id"] for row in found][:7] == [395, 396, 397, 398, 399, 5000, 5001]
    changed = changed_rows(watch, state, str(scored), 400, around=5)
    assert changed.tally.rows == 300
    assert [row.number for row in changed.around] == list(range(395, 405))
    assert [row.watched.scope for row in changed.strangest] == sorted(row.watched.scope for row in found[5:])[:20]  # type: ignore[type-var]

    over = watch.acknowledge()
    assert over.alarm is None
    assert over.alarms[-1].answer == "over"
    assert watch.look(str(scored)).alarm is None
    write(scored / "b.jsonl", rows(6000, 300, moved=1.5))
    again = watch.look(str(scored))
    assert again.alarm is not None
    assert abs(again.alarm.change - 700) < 25
    normal = watch.acknowledge(fresh=True)
    write(scored / "b.jsonl", rows(7000, 900, moved=1.5))
    settled = watch.look(str(scored))
    assert settled.alarm is None
    assert "new normal" in settled.describe()[1]
    assert normal.begun == 1000
    with pytest.raises(StoreError, match="no alarm to acknowledge"):
        watch.acknowledge()


@pytest.mark.parametrize("answer", [{"labels": ["joy"]}, {"entities": [{"label": "joy", "reported": True} | SPAN]}])
def test_several_answers_a_text_are_watched_too(answer: dict[str, Any], tmp_path: Path, scored: Path) -> None:
    found = SimpleNamespace(shift=summarise(NORMAL, score="log_odds"), scope=Scope(0.01, 0, NORMAL))
    watch = Watch(cast(Calibration, found), tmp_path / "watch.json", time="at")
    written = [{**row, **answer, "log_odds": row["logit_margin"]} for row in rows(0, 400) + rows(5000, 300, moved=1.5)]
    write(scored / "a.jsonl", [{name: row[name] for name in row if name != "label"} for row in written])
    state = watch.look(str(scored))
    assert state.alarm is not None
    assert state.timeline.total().labels == {"joy": 700}


def test_rows_that_cannot_be_used_are_counted_apart(watch: Watch, scored: Path) -> None:
    broken = [{**rows(0, 1)[0], "confidence": None}, {**rows(0, 1)[0], "at": "yesterday"}]
    write(scored / "a.jsonl", [*rows(0, 5), *broken, *rows(5, 5)])
    (scored / "b.jsonl").write_text("no json\n")
    state = watch.look(str(scored))
    assert (state.rows, state.rejected) == (10, 3)
    assert [row.number for row in rows_since(watch, state, str(scored), 0)] == list(range(10))


def look(watch: Watch, scored: Path) -> BaseProcess:
    """Another process that looks, seven rows a block: many writings of the state, to be killed between and in them."""

    def run() -> None:
        replace(watch, patience=60, block=7).look(str(scored))

    process = get_context("fork").Process(target=run)
    process.start()
    return process


def test_a_kill_at_any_point_loses_and_repeats_nothing(watch: Watch, scored: Path) -> None:
    write(scored / "a.jsonl", rows(0, 600))
    write(scored / "b.jsonl", rows(1000, 600))
    rng = random.Random(0)
    counts = []
    for number in range(8):
        before = watch.read().rows
        process = look(watch, scored)
        while process.is_alive() and watch.read().rows == before:  # however fast the machine is
            pass
        time.sleep(rng.uniform(0, 0.005 * number))
        process.kill()
        process.join()
        counts.append(watch.read().rows)
    state = watch.look(str(scored))
    assert counts == sorted(counts)
    assert any(0 < count < 1200 for count in counts)  # at least one was in the middle
    assert state.rows == 1200
    whole = Watch(watch.calibration, watch.path.with_name("whole.json"), time="at").look(str(scored))
    assert state.monitor.log_martingale == pytest.approx(whole.monitor.log_martingale)
    for hour, tally in whole.timeline.hours.items():
        kept = state.timeline.hours[hour]
        assert (kept.rows, kept.answered, kept.outside) == (tally.rows, tally.answered, tally.outside)
        assert kept.labels == tally.labels
    assert len(list(rows_since(watch, state, str(scored), 0))) == 1200


def test_two_processes_take_turns(watch: Watch, scored: Path) -> None:
    write(scored / "a.jsonl", rows(0, 300))
    both = [look(watch, scored) for _ in range(2)]
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert watch.read().rows == 300


def test_a_held_state_is_an_error_after_a_while(watch: Watch, scored: Path) -> None:
    write(scored / "a.jsonl", rows(0, 3))
    other = Watch(watch.calibration, watch.path, patience=0.1)
    with watch.locked(), pytest.raises(StoreError, match="in use by another process"):
        other.look(str(scored))
    assert other.look(str(scored)).rows == 3


def test_states_that_do_not_fit_are_refused(watch: Watch, scored: Path) -> None:
    write(scored / "a.jsonl", rows(0, 3))
    watch.look(str(scored))
    with pytest.raises(StoreError, match=r"begun with the bound 0\.01, not 0\.05"):
        Watch(watch.calibration, watch.path, bound=0.05).read()
    moved = SimpleNamespace(shift=summarise(NORMAL + 1, score="logit-margin"), scope=Scope(0.01, 0, NORMAL))
    with pytest.raises(StoreError, match="another calibration"):
        Watch(cast(Calibration, moved), watch.path).read()
    for text, reason in (
        ("{", "cannot be read"),
        ("{}", "broken"),
        ('{"format": 1}', "broken.*begin a new state file"),
    ):
        watch.path.write_text(text)
        with pytest.raises(StoreError, match=reason):
            watch.read()
    missing = [{"label": "a", "confidence": 0.5}]
    write(scored / "c.jsonl", missing)
    with pytest.raises(DataError, match="no column 'logit_margin'"):
        Watch(watch.calibration, watch.path.with_name("other.json")).look(str(scored))


def test_a_directory_without_calibration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="uatlite calibrate"):
        Watch(watched_calibration(tmp_path), tmp_path / "state.json")


def test_the_state_stays_small(watch: Watch, scored: Path) -> None:
    write(scored / "a.jsonl", rows(0, 2000))
    watch.look(str(scored))
    assert os.path.getsize(watch.path) < 8000
    state = watch.read()
    assert dump(load(WatchState, dump(state), advice="")) == dump(state)


def outcome(hour: str, *, answered: bool = True) -> WatchedRow:
    return WatchedRow(hour, "a", 0.8, 1.0, abstain=not answered, out_of_scope=False)


def test_old_hours_become_days() -> None:
    hours = [f"2026-{month:02d}-{day:02d}T{hour:02d}" for month in (1, 2) for day in range(1, 29) for hour in range(24)]
    timeline = Timeline()
    for hour in hours:
        timeline = timeline.with_rows([outcome(hour)] * 2, np.zeros(2))
    assert timeline.total().rows == 2 * len(hours)
    assert next(iter(timeline.hours)) == "2026-01-01"
    assert timeline.hours["2026-01-01"].rows == 48
    assert sum("T" in hour for hour in timeline.hours) == 14 * 24


def test_shares_and_their_intervals() -> None:
    tally = HourTally.of([outcome("h"), outcome("h", answered=False)]) + HourTally.of([outcome("h")] * 98)
    shares = tally.shares()
    assert shares["answered"].value == 0.99
    assert (shares["answered"].low, shares["answered"].high) == (
        pytest.approx(0.9455, abs=1e-4),
        pytest.approx(0.9997, abs=1e-4),
    )
    assert (shares["out of scope"].value, shares["confidence"].value) == (0.0, pytest.approx(0.8))
    assert shares["confidence"].high == pytest.approx(0.8, abs=1e-6)
    assert tally.label_share("a").value == 1.0
    assert share(0, 0).high == 1.0
    assert HourTally().shares() == {}


@pytest.mark.parametrize(
    "moment", ["2026-11-17T04:59:59Z", "2026-11-17 05:10+01:00", 1794888000, 1794888000000, "1794888000.5"]
)
def test_hours(moment: object) -> None:
    assert hour_of(moment) == "2026-11-17T04"
    assert spelt_hour(hour_of(moment)) == "2026-11-17 04:00 UTC"
    assert spelt_hour("2026-11-17") == "2026-11-17"
