"""A watch over files: each row once, however they grow, through kills and beside others; alarms, resets, refusals."""

import json
import os
import random
import time
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest

from by_hand import calibration_of
from uatlite.codec import dump, load
from uatlite.errors import CalibrationError, DataError, ModelError, StoreError
from uatlite.scoring.watch import Watch, changed_rows, grown_files, rows_since, watched_calibration
from uatlite.scoring.watch_state import HourTally, Timeline, WatchedRow, WatchState, hour_of, spelt_hour
from uatlite.text.rows import Row
from uatlite.text.write import row_writer
from uatlite.trust.scope import Scope
from uatlite.trust.shift import Share, summarise

CALIBRATION = 200
NORMAL = np.sort(np.random.default_rng(0).normal(size=CALIBRATION))


def calibration(score="logit-margin", moved=0.0):
    """What a watch reads of a calibration: scores and strangeness of 200 rows."""
    return calibration_of(summarise(NORMAL + moved, score=score), Scope(0.01, 0, NORMAL))


def rows(first, number, *, moved=0.0):
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


def write(path, some, mode="a"):
    with path.open(mode) as file:
        file.writelines(json.dumps(row) + "\n" for row in some)


@pytest.fixture
def watch(tmp_path):
    return Watch(calibration(), tmp_path / "state" / "watch.json", time="at", patience=0.3)


@pytest.fixture
def scored(tmp_path):
    (tmp_path / "scored").mkdir()
    return tmp_path / "scored"


def test_looks_add_up_to_one_look(watch, scored, tmp_path):
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


def test_an_alarm_its_rows_and_the_reset(watch, scored):
    write(scored / "a.jsonl", rows(0, 400))
    assert watch.look(str(scored)).alarm is None
    write(scored / "b.jsonl", rows(5000, 300, moved=1.5))
    state = watch.look(str(scored))
    alarm = state.alarm
    assert abs(alarm.change - 400) < 25
    assert 400 < alarm.row < 450
    assert (alarm.since, alarm.raised) == ("2026-11-17T05", "2026-11-17T05")
    report = state.report(watch.calibration)
    assert report.describe().startswith(
        f"ALARM: {alarm.what}, since about row {alarm.change + 1} (2026-11-17 05:00 UTC), "
    )
    assert "Over the whole life, 700 rows, and the answers from b.jsonl on: evidence of a change " in report.describe()
    assert report.expected.rows == sum(
        not row["abstain"] and not row["out_of_scope"] for row in rows(5000, 300, moved=1.5)
    )
    told = json.loads(watch.path.read_text())["told"]
    assert (told["verdict"]["verdict"], told["verdict"]["level"]) == (report.describe(), report.level)
    first, second = told["files"]
    assert (first["file"], first["rows"], second["file"], second["rows"]) == ("a.jsonl", 400, "b.jsonl", 300)
    assert (first["answered"]["value"], second["expected wrong"]["value"]) == (0.75, 0.5)
    assert first["evidence"] < 5 < 1e6 < second["evidence"]
    assert [text.split()[0] for text in state.details()[:2]] == ["a.jsonl", "b.jsonl"]
    assert state.details()[-1].startswith("The evidence grew most in b.jsonl.")
    found = list(rows_since(watch, state, str(scored), 395))
    assert [row.number for row in found] == list(range(395, 700))
    assert [row.row.values["id"] for row in found][:7] == [395, 396, 397, 398, 399, 5000, 5001]
    changed = changed_rows(watch, state, str(scored), 400, around=5)
    assert changed.tally.rows == 300
    assert [row.number for row in changed.around] == list(range(395, 405))
    assert [row.watched.scope for row in changed.strangest] == sorted(row.watched.scope for row in found[5:])[:20]

    over = watch.acknowledge()
    assert over.alarm is None
    assert over.alarms[-1].answer == "over"
    assert watch.look(str(scored)).alarm is None
    write(scored / "b.jsonl", rows(6000, 300, moved=1.5))
    again = watch.look(str(scored))
    assert abs(again.alarm.change - 700) < 25
    normal = watch.acknowledge(fresh=True)
    write(scored / "b.jsonl", rows(7000, 900, moved=1.5))
    settled = watch.look(str(scored))
    assert settled.alarm is None
    assert "since row 1,001, where the new normal begins" in settled.report(watch.calibration).describe()
    assert normal.begun == 1000
    with pytest.raises(StoreError, match="no alarm to acknowledge"):
        watch.acknowledge()


def test_the_evidence_of_a_file_is_what_it_adds_in_whatever_order_files_change(watch, scored):
    write(scored / "a.jsonl", rows(0, 300, moved=1.5))
    write(scored / "b.jsonl", rows(1000, 300))
    state = watch.look(str(scored))
    growth = [tally.growth for tally in state.batches.values()]
    assert sum(growth) == pytest.approx(state.monitor.log_martingale)
    assert growth[0] > 5 > growth[1]
    assert state.details()[-1].startswith("The evidence grew most in a.jsonl.")
    found = state.report(watch.calibration).describe()
    assert ", since about row 1 (2026-11-17 00:00 UTC), and " in found  # what follows is not called another change
    assert "Over the whole life, 600 rows: evidence" in found


def test_rows_that_cannot_be_used_are_counted_apart(watch, scored):
    broken = [{**rows(0, 1)[0], "confidence": None}, {**rows(0, 1)[0], "at": "yesterday"}]
    write(scored / "a.jsonl", [*rows(0, 5), *broken, *rows(5, 5)])
    (scored / "b.jsonl").write_text("no json\n")
    state = watch.look(str(scored))
    assert (state.rows, state.rejected) == (10, 3)
    assert [row.number for row in rows_since(watch, state, str(scored), 0)] == list(range(10))


def look(watch, scored):
    """Another process that looks, seven rows a block: many writings of the state, to be killed between and in them."""

    def run():
        replace(watch, patience=60, block=7).look(str(scored))

    process = get_context("fork").Process(target=run)
    process.start()
    return process


def test_a_kill_at_any_point_loses_and_repeats_nothing(watch, scored):
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


def test_two_processes_take_turns(watch, scored):
    write(scored / "a.jsonl", rows(0, 300))
    both = [look(watch, scored) for _ in range(2)]
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert watch.read().rows == 300


def test_a_held_state_is_an_error_after_a_while(watch, scored):
    write(scored / "a.jsonl", rows(0, 3))
    other = Watch(watch.calibration, watch.path, patience=0.1)
    with watch.locked(), pytest.raises(StoreError, match="in use by another process"):
        other.look(str(scored))
    assert other.look(str(scored)).rows == 3


def test_states_that_do_not_fit_are_refused(watch, scored):
    write(scored / "a.jsonl", rows(0, 3))
    watch.look(str(scored))
    with pytest.raises(StoreError, match=r"begun with the bound 0\.01, not 0\.05"):
        replace(watch, bound=0.05).read()
    with pytest.raises(StoreError, match="another calibration"):
        replace(watch, calibration=calibration(moved=1.0)).read()
    broken = {"{": "cannot be read", "{}": "broken", '{"format": 1}': "broken.*begin a new state file"}
    for text, reason in broken.items():
        watch.path.write_text(text)
        with pytest.raises(StoreError, match=reason):
            watch.read()
    write(scored / "c.jsonl", [{"label": "a", "confidence": 0.5}])
    with pytest.raises(DataError, match="no column 'logit_margin'"):
        Watch(watch.calibration, watch.path.with_name("other.json")).look(str(scored))


def test_a_directory_without_calibration_is_refused(tmp_path, tiny):
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        watched_calibration(tmp_path)
    tiny("bert").save_pretrained(tmp_path)
    with pytest.raises(CalibrationError, match="uatlite calibrate"):
        Watch(watched_calibration(tmp_path), tmp_path / "state.json")


def test_the_state_stays_small(watch, scored):
    write(scored / "a.jsonl", rows(0, 2000))
    watch.look(str(scored))
    assert os.path.getsize(watch.path) < 8000
    state = watch.read()
    assert dump(load(WatchState, dump(state), advice="")) == dump(state)


def outcome(hour, *, answered=True):
    return WatchedRow(hour, "a", 0.8, 1.0, abstain=not answered, out_of_scope=False)


def test_old_hours_become_days():
    hours = [f"2026-{month:02d}-{day:02d}T{hour:02d}" for month in (1, 2) for day in range(1, 29) for hour in range(24)]
    timeline = Timeline()
    for hour in hours:
        timeline = timeline.with_rows([outcome(hour)] * 2, np.zeros(2))
    assert timeline.total().rows == 2 * len(hours)
    assert next(iter(timeline.hours)) == "2026-01-01"
    assert timeline.hours["2026-01-01"].rows == 48
    assert sum("T" in hour for hour in timeline.hours) == 14 * 24


def test_shares_and_their_intervals():
    tally = HourTally.of([outcome("h"), outcome("h", answered=False)]) + HourTally.of([outcome("h")] * 98)
    shares = tally.shares()
    assert shares["answered"].value == 0.99
    assert [shares["answered"].low, shares["answered"].high] == pytest.approx([0.9455, 0.9997], abs=1e-4)
    assert (shares["out of scope"].value, shares["mean confidence"].value) == (0.0, pytest.approx(0.8))
    assert shares["mean confidence"].high == pytest.approx(0.8, abs=1e-6)
    assert Share.of(0, 0).high == 1.0
    assert HourTally().shares() == {}


@pytest.mark.parametrize(
    "moment", ["2026-11-17T04:59:59Z", "2026-11-17 05:10+01:00", 1794888000, 1794888000000, "1794888000.5"]
)
def test_hours(moment):
    assert hour_of(moment) == "2026-11-17T04"
    assert spelt_hour(hour_of(moment)) == "2026-11-17 04:00 UTC"
    assert spelt_hour("2026-11-17") == "2026-11-17"


def line(number):
    return json.dumps({"id": number, "label": "a"}) + "\n"


def taken(source, counted):
    """The ids of the new rows, and the files as they are counted afterwards."""
    ids = []
    files = {file.name: file for file in counted}
    for file in grown_files(str(source), counted):
        rows = list(file.rows())
        ids += [row.values["id"] if isinstance(row, Row) else "reject" for row in rows]
        last = rows[-1].line if rows else file.counted.line
        files[file.counted.name] = replace(file.counted, line=last, done=True)
    return ids, list(files.values())


def test_a_file_that_grows_goes_on_where_it_was(tmp_path):
    file = tmp_path / "log.jsonl"
    counted = []
    seen = []
    content = ""
    for number in range(6):
        content += line(number)
        # Half of the next line has been written: it is not a row yet.
        file.write_text(content + line(number + 1)[: number + 3])
        ids, counted = taken(tmp_path, counted)
        seen += ids
    assert seen == list(range(6))
    assert taken(tmp_path, counted)[0] == []


def test_a_csv_row_with_a_line_break_is_whole_or_not_there(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text('id,text\n1,"one\ntwo"\n2,"three\nfo')
    ids, counted = taken(tmp_path, [])
    assert ids == ["1"]
    file.write_text('id,text\n1,"one\ntwo"\n2,"three\nfour"\n3,five\n')
    ids, counted = taken(tmp_path, counted)
    assert ids == ["2", "3"]
    assert taken(tmp_path, counted)[0] == []


def test_a_rewritten_file_and_one_with_another_name_are_errors(tmp_path):
    (tmp_path / "log.jsonl").write_text(line(1) + line(2))
    _, counted = taken(tmp_path, [])
    (tmp_path / "log.jsonl").write_text(line(9) + line(2))
    with pytest.raises(DataError, match="counted up to line 2 and has other rows there now"):
        taken(tmp_path, counted)
    (tmp_path / "log.jsonl").write_text(line(1) + line(2))
    (tmp_path / "log.jsonl").rename(tmp_path / "log.1.jsonl")
    with pytest.raises(DataError, match=r"log\.1\.jsonl has the rows of log\.jsonl, which are counted"):
        taken(tmp_path, counted)
    (tmp_path / "log.1.jsonl").unlink()
    (tmp_path / "other.jsonl").write_text(line(3))
    assert taken(tmp_path, counted)[0] == [3]


def test_parquet_gzip_and_what_predict_writes_beside(tmp_path):
    for name in ("a.parquet", "b.jsonl.gz", "c.csv"):
        with row_writer(tmp_path / name) as write:
            for number in range(3):
                write({"id": f"{name}{number}", "label": "x"})
    (tmp_path / "a.parquet.rejects.jsonl").write_text(line(7))
    (tmp_path / "a.parquet.summary.json").write_text("{}")
    (tmp_path / "a.parquet.review.csv").write_text("id,why\n7,cut\n")
    ids, counted = taken(tmp_path, [])
    assert ids == [f"{name}{number}" for name in ("a.parquet", "b.jsonl.gz", "c.csv") for number in range(3)]
    assert taken(tmp_path, counted)[0] == []


def test_an_empty_directory_has_no_rows_yet(tmp_path):
    assert grown_files(str(tmp_path), []) == []
    (tmp_path / "new.jsonl").write_text("")
    (file,) = grown_files(str(tmp_path), [])
    assert taken(tmp_path, []) == ([], [replace(file.counted, done=True)])


def test_addresses_are_refused(tmp_path):
    with pytest.raises(DataError, match="remote"):
        grown_files("s3://bucket/rows", [])
    with pytest.raises(DataError, match="does not exist"):
        grown_files(str(tmp_path / "nothing"), [])
