"""Scoring a file: every row once and in order, whatever the kind, the formats, the rejects and the interruptions."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from by_hand import calibration_of
from scoring.desk import LAYOUTS, Stop
from uatlite.classifier.runtime import Settings, tokenizer_fingerprint
from uatlite.errors import DataError, StoreError
from uatlite.model.load import model_hash
from uatlite.scoring.job import Job
from uatlite.scoring.run import ShiftMonitor, hashed
from uatlite.text.examples import text_fault
from uatlite.text.schema import Layout
from uatlite.trust.shift import summarise

CALIBRATION = calibration_of(summarise(np.random.default_rng(0).random(200), score="confidence"))
every_kind = pytest.mark.parametrize("kind", LAYOUTS)


def test_the_output_is_what_predict_says_in_the_order_of_the_input(desk, small_blocks):
    texts = desk.made_texts(3 * small_blocks + 5)
    seen = desk.seen(desk.job(desk.rows(texts)))
    rows, pred = desk.output(), desk.classifier.predict(texts)
    assert [row["id"] for row in rows] == [f"r{i}" for i in range(len(texts))]
    assert [row["label"] for row in rows] == pred.labels.tolist()
    assert [row["abstain"] for row in rows] == pred.abstain.tolist()
    assert [tuple(row["label_set"]) for row in rows] == pred.label_sets
    for name in ("confidence", "mutual_information", "variance"):
        np.testing.assert_allclose([row[name] for row in rows], getattr(pred, name), atol=1e-5)
    assert (seen[-1].rows, seen[-1].rejected, seen[-1].abstained) == (len(texts), 0, int(pred.abstain.sum()))
    assert [tally.rows for tally in seen] == [16, 32, 48, 53]
    assert desk.names == ["in.jsonl", "out.jsonl", "out.jsonl.summary.json"]


def test_a_kept_column_of_several_types_is_text_in_parquet(desk):
    desk.score(desk.rows(7, stars=[1, 2.5, None, "x", 5, 6, [7]]), "out.parquet", "stars")
    assert [row["stars"] for row in desk.output("out.parquet")] == ["1", "2.5", None, "x", "5", "6", "[7]"]


def test_the_output_carries_the_text_in_csv_or_where_asked_for(tmp_path):
    layout = Layout(text="premise", pair="hypothesis", label=None, meta=("premise", "stars"))
    job = Job("in.csv", tmp_path / "out.csv", layout)
    assert job.kept == ("premise", "hypothesis", "stars")
    assert replace(job, texts=False).kept == ("premise", "stars")
    assert replace(job, output=tmp_path / "out.csv.gz").kept == job.kept
    assert replace(job, output=tmp_path / "out.parquet").kept == ("premise", "stars")
    assert replace(job, output=tmp_path / "out.parquet", texts=True).kept == job.kept


BROKEN = {
    "one": [
        (b'{"text": ""}', "no text"),
        (b'{"text": 3}', "holds 3, which is no text"),
        (b"{broken", "broken JSON"),
        (b'{"other": 1}', "no text"),
        (b'"\xff"', "not UTF-8"),
    ],
    "entities": [
        (b'{"tokens": []}', "column 'tokens'"),
        (b'{"tokens": ["a1", ""]}', "column 'tokens'"),
        (b"{broken", "broken JSON"),
    ],
    "labels": [
        (b'{"text": ""}', "no text"),
        (b'{"text": 3}', "holds 3, which is no text"),
        (b"{broken", "broken JSON"),
    ],
}
"""Kind -> rows that cannot be scored, and a part of the reason."""


@every_kind
def test_rows_that_cannot_be_scored_are_set_aside_with_line_and_reason(kind, desk_of):
    desk = desk_of(kind)
    broken, why = zip(*BROKEN[kind], strict=True)
    source = desk.rows(7)
    lines = source.read_bytes().splitlines()
    lines[5] = b"{" + lines[5].partition(b", ")[2]  # without an id
    source.write_bytes(b"\n".join([*lines[:5], *broken, *lines[5:]]))
    job = desk.job(source, "out.csv")
    summary = desk.score(source, "out.csv")
    assert (summary.rows, summary.rejected) == (7, len(broken))
    unnamed = f"in.jsonl:{6 + len(broken)}"
    assert [row["id"] for row in desk.output("out.csv")] == [*(f"r{i}" for i in range(5)), unnamed, "r6"]
    rejects = desk.output(job.rejects_path)
    assert [reject["line"] for reject in rejects] == list(range(6, 6 + len(broken)))
    assert all(part in reject["reason"] for reject, part in zip(rejects, why, strict=True))
    assert f"{len(broken)} rows rejected" in "\n".join(summary.describe())
    with pytest.raises(DataError, match=rf"in\.jsonl, line 6: .*{why[0]}"):
        desk.score(source, "strict.csv", strict=True)
    assert not (desk.directory / "strict.csv").exists()


def test_old_rejects_do_not_survive_a_clean_run(desk):
    source = desk.rows(2)
    rejects = desk.job(source).rejects_path
    rejects.write_text("old")
    desk.score(source)
    assert not rejects.exists()


def test_kept_columns_and_those_that_clash(desk):
    source = desk.rows(2, label=["good", "bad"], stars=[5, 1])
    source.write_text(source.read_text().replace('"stars": 1', '"stars": 1, "note": "late"'))
    desk.score(source, "out.jsonl", "label", "stars", "note")
    rows = desk.output()
    assert [row["input_label"] for row in rows] == ["good", "bad"]
    assert [row["stars"] for row in rows] == [5, 1]
    assert [row["note"] for row in rows] == [None, "late"]


def test_an_output_is_not_replaced_unasked(desk):
    source, other = desk.rows(3), desk.rows(2, "other.jsonl")
    desk.score(source)
    with pytest.raises(StoreError, match="exists; give another name, or --overwrite"):
        desk.score(source)
    assert desk.score(source, resume=True).rows == 3
    with pytest.raises(StoreError, match="exists"):
        desk.score(other, resume=True)
    assert desk.score(other, overwrite=True).rows == 2


def test_nothing_is_done_twice(desk, small_blocks, counted):
    """Weights are hashed once, when the model is loaded. A run builds its settings once, checks each text once, and
    reads the parts once, when it writes the output; a resumed part is read once more."""
    rows = 3 * small_blocks
    hashes, fingerprints, checks = (counted(f) for f in (model_hash, tokenizer_fingerprint, text_fault))
    settings, parsed = counted(Settings.__init__), counted(json.loads)
    source = desk.rows(rows)
    assert desk.classifier is not None
    settings.clear()  # those stored with the calibration
    desk.score(source)
    assert (len(hashes), len(settings), len(fingerprints), len(checks)) == (1, 1, 1, rows)
    assert len(part_lines(parsed)) == rows + 3  # a line of counts in each part

    parsed.clear()
    job = desk.job(source, "resumed.jsonl")
    desk.interrupted(job, 2 * small_blocks)
    assert part_lines(parsed) == []
    desk.score(source, "resumed.jsonl", resume=True)
    assert len(part_lines(parsed)) == 2 * (small_blocks + 1) + rows + 3


def part_lines(parsed):
    return [line for line in parsed if str(line).startswith('["')]


def test_a_broken_part_is_scored_again(desk, small_blocks):
    job = desk.job(desk.rows(3 * small_blocks))
    desk.interrupted(job, 2 * small_blocks)
    desk.lines(['["counts", {}]', '["row"'], "out.jsonl.unfinished/part-000000.jsonl")
    assert [tally.resumed for tally in desk.seen(replace(job, resume=True))] == [0, 16, 16]
    assert len(desk.output()) == 3 * small_blocks


def test_an_interrupted_run_is_neither_lost_nor_mixed_up(desk, small_blocks):
    source = desk.rows(4 * small_blocks)
    job = desk.job(source)
    desk.interrupted(job, 2 * small_blocks)
    assert desk.names == ["in.jsonl", "out.jsonl.unfinished"]
    with pytest.raises(StoreError, match="2 parts of an unfinished run; continue it with --resume"):
        desk.score(source)
    with pytest.raises(StoreError, match="belongs to another run: columns differ"):
        desk.score(source, "out.jsonl", "text", resume=True)
    calibration = desk.classifier.calibration_
    stricter = replace(calibration.scope, false_alarm=0.2)  # as after another --false-alarm
    desk.classifier.calibration_ = replace(calibration, scope=stricter)
    with pytest.raises(StoreError, match="belongs to another run: calibration differ"):
        desk.score(source, resume=True)
    desk.classifier.calibration_ = calibration
    content = source.read_text()
    fewer = "".join(content.splitlines(keepends=True)[:small_blocks])
    for changed in (content.replace("a1", "a2"), fewer):
        source.write_text(changed)
        with pytest.raises(StoreError, match="has changed since"):
            desk.score(source, resume=True)
    source.write_text(content)
    assert [tally.resumed for tally in desk.seen(replace(job, resume=True))] == [16, 32, 32, 32]
    desk.score(source, "once.jsonl")
    assert desk.bytes("out.jsonl") == desk.bytes("once.jsonl")
    assert "out.jsonl.unfinished" not in desk.names


@every_kind
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_resumed_run_gives_the_same_bytes(kind, suffix, desk_of, small_blocks):
    desk = desk_of(kind)
    lines = desk.rows(3 * small_blocks).read_text().splitlines()
    source = desk.lines([*lines[:5], *(line.decode(errors="replace") for line, _ in BROKEN[kind]), *lines[5:]])
    desk.score(source, f"whole.{suffix}")
    killed = desk.job(source, f"killed.{suffix}")
    desk.interrupted(killed, 2 * small_blocks)
    assert not killed.output.exists()
    assert desk.seen(replace(killed, resume=True))[-1].resumed == 2 * small_blocks
    for beside in ("", ".rejects.jsonl"):
        assert desk.bytes(f"killed.{suffix}{beside}") == desk.bytes(f"whole.{suffix}{beside}")


_RUN = """
import sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.scoring import Job, score_file, source
source.blocks.__defaults__ = (int(sys.argv[4]), source.BLOCK_CHARACTERS)
classifier = UncertaintyClassifier.from_pretrained(sys.argv[1])
def show(progress):
    print(progress.rows, flush=True)
    time.sleep(0.02)
score_file(classifier, Job(sys.argv[2], Path(sys.argv[3]), resume=True), show)
"""


def test_a_killed_run_goes_on_with_each_row_exactly_once(desk, small_blocks):
    """SIGKILL, for real: after the first block, and again in the middle of a later one."""
    source = desk.rows(9 * small_blocks)
    job = desk.job(source, "out.csv", resume=True)
    command = [sys.executable, "-c", _RUN, str(desk.model), str(source), str(job.output), str(small_blocks)]
    for blocks_to_see, wait in [(1, 0.0), (5, 0.03)]:
        process, done = subprocess.Popen(command, stdout=subprocess.PIPE), 0
        while done < blocks_to_see * small_blocks:
            done = int(process.stdout.readline())
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not job.output.exists()
    last = desk.seen(job)[-1]
    assert last.rows == 9 * small_blocks
    assert last.resumed >= 5 * small_blocks
    desk.score(source, "once.csv")
    assert desk.bytes("out.csv") == desk.bytes("once.csv")
    assert [row["id"] for row in desk.output("out.csv")] == [f"r{i}" for i in range(9 * small_blocks)]


def test_a_kill_while_the_output_is_put_together(desk, small_blocks, monkeypatch):
    """Between summary and output, with an older output there: the older one is not taken for the new."""
    source, older = desk.rows(2 * small_blocks), desk.lines(["old"], "out.jsonl")

    def fail(path, **options):
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("uatlite.scoring.run.row_writer", fail)
        with pytest.raises(Stop):
            desk.score(source, overwrite=True)
    assert older.read_text() == "old\n"
    assert desk.score(source, resume=True).rows == 2 * small_blocks
    assert len(desk.output()) == 2 * small_blocks


def test_a_shift_is_in_the_summary(desk, small_blocks):
    same = desk.score(desk.rows(desk.made_texts(60, seed=8)), "a.csv").shift
    other = desk.score(desk.rows(["a3 a3 a3"] * 60), "b.csv").shift
    assert (same.shifted, other.shifted) == (False, True)
    stored = json.loads(desk.bytes("b.csv.summary.json"))["shift"]
    assert stored["shifted"] is True
    assert "The data have shifted" in stored["verdict"]
    with pytest.warns(UserWarning, match="The data have shifted"):
        said = desk.classifier.predict(["a3 a3 a3"] * 60).shift
    assert (said.level, said.promised, said.expected.rows) == (other.level, other.promised, other.expected.rows)
    assert said.describe().replace("texts:", "rows:") == other.describe() == stored["verdict"]
    assert (stored["level"], stored["expected"]["rows"]) == (other.level, other.expected.rows)


def test_an_uncalibrated_model_scores_too(desk):
    desk.classifier.calibration_ = None
    summary = desk.score(desk.rows(3))
    assert (summary.abstained, summary.shift, summary.promise) == (None, None, None)
    assert "abstain" not in desk.output()[0]


def test_a_file_whose_rows_are_all_rejected_gives_an_empty_output(desk):
    for suffix in ("jsonl", "csv", "parquet"):
        assert desk.score(desk.lines(['{"text": ""}']), f"out.{suffix}").rows == 0
        assert desk.output(f"out.{suffix}") == []


def test_a_rule_for_recall_alone_counts_as_a_rule(desk_of):
    desk = desk_of("entities")
    texts, tagger = desk.made_texts(80, seed=3), desk.classifier
    gold = [[(e.start, e.end, e.label) for e in pred.entities] for pred in tagger.predict(texts, check_shift=False)]
    tagger.calibrate(texts, gold, target_recall=0.3)
    summary = desk.score(desk.rows(texts[:20]))
    assert summary.abstained == sum(row["abstain"] for row in desk.output())
    assert "abstained (" in summary.describe()[0]
    assert (summary.promised, bool(summary.promise)) == (True, True)


def test_the_sample_does_not_depend_on_the_cuts():
    scores = np.random.default_rng(1).random(5000)
    reports = []
    for size in (5000, 700, 1):
        monitor = ShiftMonitor(CALIBRATION, size=300)
        for start in range(0, len(scores), size):
            lines = [("row", {"confidence": score}) for score in scores[start : start + size].tolist()]
            monitor.add(lines, start)
        reports.append(monitor.report())
    assert reports[0] == reports[1] == reports[2]
    assert reports[0].rows == 300


def test_the_sample_is_spread_over_the_stream():
    positions = np.argsort(hashed(np.arange(100_000, dtype=np.uint64)))[:10_000]
    counts = np.histogram(positions, bins=10, range=(0, 100_000))[0]
    assert (abs(counts - 1000) < 4 * np.sqrt(900)).all()
    assert len(np.unique(hashed(np.arange(100_000, dtype=np.uint64)))) == 100_000


def test_few_rows_are_no_verdict():
    assert ShiftMonitor(CALIBRATION).report().shifted is None
