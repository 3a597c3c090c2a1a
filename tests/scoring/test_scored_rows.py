"""Scored rows read back: the same from every format, in files and in memory."""

import json
from pathlib import Path

import numpy as np
import pytest

from by_hand import calibration_of
from uatlite.errors import DataError
from uatlite.scoring.scored_rows import ScoredRow, scored_rows
from uatlite.scoring.watch import Watch
from uatlite.scoring.watch_state import WatchedRow
from uatlite.text.rows import Row
from uatlite.text.write import row_writer
from uatlite.trust.scope import Scope
from uatlite.trust.shift import summarise

HOUR = "2026-11-17T04"
SCORES = np.arange(60.0)


def watch_of(score, scope, time=None):
    calibration = calibration_of(summarise(SCORES, score=score), Scope(0.01, 0, SCORES) if scope else None)
    return Watch(calibration, Path("state.json"), time=time)


WATCH = watch_of("logit-margin", True)
ANSWERS = {
    "one": ({"label": "a"}, "a", "a"),
    "labels": ({"labels": ["joy"], "withheld": ["fear"], "p_joy": 0.75}, ["joy"], "joy"),
    "several labels": (
        {"labels": ["joy", "fear"], "withheld": [], "p_joy": 0.75, "p_fear": 0.5}, ["joy", "fear"], "several"
    ),
    "no label": ({"labels": [], "withheld": ["fear"]}, [], "none"),
    "entities": (
        {
            "entities": [
                {"start": 0, "end": 3, "text": "Ada", "label": "person", "confidence": 0.9, "reported": True},
                {"start": 8, "end": 12, "text": "Rome", "label": "place", "confidence": 0.4, "reported": False},
            ]
        },
        [{"start": 0, "end": 3, "text": "Ada", "label": "person"}],
        "person",
    ),
}  # fmt: skip
"""Name -> the columns of a prediction, its answer as gold is written, and the label that it counts under."""
WRONG = {"labels": (0.25,), "several labels": (0.25, 0.5), "entities": (pytest.approx(0.1),)}
"""Name -> of its reported answers the chances of being wrong; what is abstained on has none."""


@pytest.mark.parametrize("name", ANSWERS)
def test_every_format_and_memory_hold_the_same(name, tmp_path):
    columns, answer, label = ANSWERS[name]
    row = {
        "id": "1", **columns, "abstain": True, "confidence": 0.9, "logit_margin": 2.5, "scope": 0.25,
        "out_of_scope": False,
    }  # fmt: skip
    rows = [ScoredRow(row)]
    for suffix in ("parquet", "jsonl", "csv"):
        with row_writer(tmp_path / f"a.{suffix}") as write:
            write(row)
        rows += scored_rows(tmp_path / f"a.{suffix}", ("scope",))
    for scored in rows:
        assert (scored.answer, scored.counted_label, scored.answered) == (answer, label, False)
        watched = WatchedRow.of(scored, "logit-margin", HOUR)
        known = {"abstain": True, "out_of_scope": False, "file": scored.file, "line": scored.line}
        assert watched == WatchedRow(HOUR, label, 0.9, 2.5, 0.25, **known, wrong=WRONG.get(name, ()))
        WATCH.check(Row(scored.file, scored.line, scored.values))


def test_a_score_is_higher_where_it_is_more_trustworthy():
    row = ScoredRow({"label": "a", "confidence": 0.9, "entropy": 0.3, "log_odds": -1.5})
    assert [row.score(name) for name in ("confidence", "entropy", "log_odds")] == [0.9, -0.3, -1.5]
    values = {**row.values, "time": "2026-11-17 06:30:00+02:00"}
    watch = watch_of("entropy", False, "time")
    watched = watch.watched(Row("f", 1, values), "1970-01-01T00")
    assert watched == WatchedRow(HOUR, "a", 0.9, -0.3, wrong=(pytest.approx(0.1),), file="f", line=1)
    for broken in ({"entropy": "high"}, {"entropy": "nan"}, {"time": "soon"}, {"abstain": "perhaps"}):
        assert watch.watched(Row("f", 1, {**values, **broken}), "1970-01-01T00") is None


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("1", True), (1, True), (False, False),
                                             ("false", False), ("0", False), ("", None), (None, None)])  # fmt: skip
def test_truth_values_are_read_in_one_way(text, value):
    row = ScoredRow({"label": "a", "confidence": 0.9, "abstain": text, "out_of_scope": text})
    assert row.truth("abstain") is value
    assert row.answered is (not value)
    watched = WatchedRow.of(row, "confidence", HOUR, scoped=False)
    assert (watched.abstain, watched.out_of_scope) == (value, value)


def test_an_answer_that_is_not_reported_cannot_be_wrong():
    row = {"label": "a", "confidence": 0.75}
    for others, wrong in (
        ({}, [0.25]),
        ({"abstain": False}, [0.25]),
        ({"abstain": True}, []),
        ({"out_of_scope": 1}, []),
    ):
        assert ScoredRow(row | others).wrong == wrong
    assert ScoredRow({"labels": [1], "p_joy": 0.9, "p_fear": 0.75}).wrong == [0.25]  # classes said by column


def test_a_kept_column_is_not_taken_for_the_answer():
    row = ScoredRow({"id": "1", "label": "joy", "labels": ["fear"], "confidence": 0.9})
    assert (row.answer_column, row.kept, row.answer) == ("labels", ["id", "label"], ["fear"])


def test_files_that_are_not_scored_say_why(tmp_path):
    row = Row("rows.csv", 2, {"label": "a", "confidence": "0.5"})
    with pytest.raises(DataError) as caught:
        WATCH.check(row)
    assert "no column 'logit_margin'" in str(caught.value)
    assert "label, confidence, logit_margin, scope" in str(caught.value)
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"label": "a"}) + "\n{broken\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: broken JSON.*Score the rows again"):
        list(scored_rows(path, ()))
    path.write_text(json.dumps({"label": "a", "confidence": "sure"}) + "\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 1: column 'confidence' holds 'sure', where a number"):
        [row.number("confidence") for row in scored_rows(path, ())]
