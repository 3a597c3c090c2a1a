"""Scoring a file: every row once and in order, whatever the formats, the rejects and the interruptions."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uatlite.classifier.classifiers import UncertaintyClassifier
from uatlite.classifier.settings import Settings, tokenizer_fingerprint
from uatlite.errors import ConfigurationError, DataError, StoreError
from uatlite.model.load import model_hash
from uatlite.scoring.job import Job, Tally
from uatlite.scoring.run import ShiftMonitor, hashed, score_file
from uatlite.scoring.source import Source
from uatlite.text.examples import text_fault
from uatlite.text.rows import Row, read_rows
from uatlite.text.schema import Layout
from uatlite.trust.shift import summarise

Texts = Callable[..., list[str]]
REFERENCE = summarise(np.random.default_rng(0).random(200))


def write_jsonl(path: Path, texts: list[str], **columns: list[object]) -> Path:
    rows = [{"id": f"r{place}", "text": text} for place, text in enumerate(texts)]
    for name, values in columns.items():
        rows = [{**row, name: value} for row, value in zip(rows, values, strict=True)]  # type: ignore[dict-item]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> list[dict[str, object]]:
    return [dict(row.values) for row in read_rows(path) if isinstance(row, Row)]


def beside(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_the_output_is_what_predict_says_in_the_order_of_the_input(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, small_blocks: int
) -> None:
    texts = made_texts(3 * small_blocks + 5)
    job = Job(str(write_jsonl(tmp_path / "in.jsonl", texts)), tmp_path / "out.jsonl")
    seen: list[Tally] = []
    summary = score_file(classifier, job, seen.append)
    rows = read(job.output)
    assert [row["id"] for row in rows] == [f"r{place}" for place in range(len(texts))]
    pred = classifier.predict(texts)
    assert [row["label"] for row in rows] == pred.labels.tolist()
    assert [row["abstain"] for row in rows] == pred.abstain.tolist()
    assert [tuple(row["label_set"]) for row in rows] == pred.label_sets  # type: ignore[arg-type]
    for name in ("confidence", "mutual_information", "variance"):
        np.testing.assert_allclose([row[name] for row in rows], getattr(pred, name), atol=1e-5)  # type: ignore[misc]
    assert (summary.rows, summary.rejected, summary.abstained) == (len(texts), 0, int(pred.abstain.sum()))
    assert [progress.rows for progress in seen] == [16, 32, 48, 53]
    assert beside(job.output) == ["in.jsonl", "out.jsonl", "out.jsonl.summary.json"]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "csv", "csv.gz", "parquet"])
def test_every_output_format_holds_the_same(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, suffix: str
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", made_texts(7), stars=[1, 2.5, None, "x", 5, 6, [7]])
    job = Job(str(source), tmp_path / f"out.{suffix}", Layout(label=None, meta=("stars",)))
    score_file(classifier, job)
    plain = Job(str(source), tmp_path / "plain.jsonl", Layout(label=None, meta=("stars",)))
    score_file(classifier, plain)
    expected, rows = read(plain.output), read(job.output)
    text = ["text"] if suffix.startswith("csv") else []  # people read CSV
    assert [list(row) for row in rows] == [["id", *text, *list(row)[1:]] for row in expected]
    assert [row["id"] for row in rows] == [row["id"] for row in expected]
    assert [float(str(row["p_good"])) for row in rows] == [row["p_good"] for row in expected]
    if suffix == "parquet":
        assert [row["stars"] for row in rows] == ["1", "2.5", None, "x", "5", "6", "[7]"]
    if suffix.startswith("csv"):
        assert json.loads(str(rows[0]["label_set"])) == expected[0]["label_set"]


def test_the_output_carries_the_text_in_csv_or_where_asked_for(tmp_path: Path) -> None:
    layout = Layout(text="premise", pair="hypothesis", label=None, meta=("premise", "stars"))
    job = Job("in.csv", tmp_path / "out.csv", layout)
    assert job.kept == ("premise", "hypothesis", "stars")
    assert replace(job, texts=False).kept == ("premise", "stars")
    assert replace(job, output=tmp_path / "out.csv.gz").kept == job.kept
    assert replace(job, output=tmp_path / "out.parquet").kept == ("premise", "stars")
    assert replace(job, output=tmp_path / "out.parquet", texts=True).kept == job.kept


def test_a_column_that_is_named_and_not_there_is_an_error(tmp_path: Path, made_texts: Texts) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", made_texts(3), stars=[1, 2, 3])
    for layout in (Layout(label=None, meta=("strs",)), Layout(label=None, id="strs")):
        job = Job(str(source), tmp_path / "out.csv", layout)
        with pytest.raises(DataError, match=r"There is no column 'strs'; the columns are: id, text, stars\. Did you"):
            Source(job.input).check(job.layout, also=job.named)
    job = Job(str(source), tmp_path / "out.csv", Layout(label=None, meta=("stars",)))
    Source(job.input).check(job.layout, also=job.named)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "jsonl.gz"])
def test_every_input_format_gives_the_same(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, suffix: str
) -> None:
    texts = made_texts(6)
    write_jsonl(tmp_path / "in.jsonl", texts)
    path = tmp_path / f"other.{suffix}"
    if suffix == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"id": [f"r{place}" for place in range(6)], "text": texts}), path)
    elif suffix == "jsonl.gz":
        path.write_bytes(gzip.compress((tmp_path / "in.jsonl").read_bytes()))
    else:
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, delimiter="," if suffix == "csv" else "\t")
            writer.writerows([("id", "text"), *((f"r{place}", text) for place, text in enumerate(texts))])
    score_file(classifier, Job(str(tmp_path / "in.jsonl"), tmp_path / "a.jsonl"))
    score_file(classifier, Job(str(path), tmp_path / "b.jsonl"))
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_directory_and_standard_input(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many").mkdir()
    first = write_jsonl(tmp_path / "many" / "a.jsonl", made_texts(3))
    second = write_jsonl(tmp_path / "many" / "b.jsonl", made_texts(2, seed=1))
    score_file(classifier, Job(str(tmp_path / "many"), tmp_path / "both.jsonl"))
    joined = first.read_bytes() + second.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(joined))))
    score_file(classifier, Job("-", tmp_path / "piped.jsonl"))
    assert (tmp_path / "both.jsonl").read_bytes() == (tmp_path / "piped.jsonl").read_bytes()


def test_rows_that_cannot_be_scored_are_set_aside_with_line_and_reason(
    classifier: UncertaintyClassifier, tmp_path: Path
) -> None:
    lines = [
        b'{"text": "a1"}',
        b'{"text": ""}',
        b'{"text": 3}',
        b"{broken",
        b'{"other": 1}',
        b'"\xff"',
        b'{"text": "a2"}',
    ]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    job = Job(str(tmp_path / "in.jsonl"), tmp_path / "out.csv")
    summary = score_file(classifier, job)
    assert (summary.rows, summary.rejected) == (2, 5)
    assert [row["id"] for row in read(job.output)] == ["in.jsonl:1", "in.jsonl:7"]
    rejects = read(job.rejects_path)
    assert [reject["line"] for reject in rejects] == [2, 3, 4, 5, 6]
    reasons = [str(reject["reason"]) for reject in rejects]
    for reason, part in zip(reasons, ["no text", "holds a int", "broken JSON", "no text", "not UTF-8"], strict=True):
        assert part in reason
    assert "5 rows rejected" in "\n".join(summary.describe())
    with pytest.raises(DataError, match=r"in\.jsonl, line 2: no text"):
        score_file(classifier, Job(job.input, tmp_path / "strict.csv", strict=True))
    assert not (tmp_path / "strict.csv").exists()


def test_old_rejects_do_not_survive_a_clean_run(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path
) -> None:
    job = Job(str(write_jsonl(tmp_path / "in.jsonl", made_texts(2))), tmp_path / "out.csv")
    job.rejects_path.write_text("old")
    score_file(classifier, job)
    assert not job.rejects_path.exists()


def test_kept_columns_and_those_that_clash(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", made_texts(2), label=["good", "bad"], stars=[5, 1])
    source.write_text(source.read_text().replace('"stars": 1', '"stars": 1, "note": "late"'))
    job = Job(str(source), tmp_path / "out.jsonl", Layout(label=None, meta=("label", "stars", "note")))
    score_file(classifier, job)
    rows = read(job.output)
    assert [row["input_label"] for row in rows] == ["good", "bad"]
    assert [row["stars"] for row in rows] == [5, 1]
    assert [row["note"] for row in rows] == [None, "late"]


def test_a_missing_column_lists_those_there_are(classifier: UncertaintyClassifier, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("body,stars\nx,1\n")
    with pytest.raises(DataError, match="no column 'text'; the columns are: body, stars"):
        score_file(classifier, Job(str(tmp_path / "in.csv"), tmp_path / "out.csv"))
    assert beside(tmp_path / "in.csv") == ["in.csv"]
    with pytest.raises(ConfigurationError, match=r"the format of out\.xlsx"):
        score_file(classifier, Job(str(tmp_path / "in.csv"), tmp_path / "out.xlsx"))


def test_an_output_is_not_replaced_unasked(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path
) -> None:
    source = str(write_jsonl(tmp_path / "in.jsonl", made_texts(3)))
    score_file(classifier, Job(source, tmp_path / "out.jsonl"))
    with pytest.raises(StoreError, match="exists; give another name, or --overwrite"):
        score_file(classifier, Job(source, tmp_path / "out.jsonl"))
    again = score_file(classifier, Job(source, tmp_path / "out.jsonl", resume=True))
    assert again.rows == 3
    other = str(write_jsonl(tmp_path / "other.jsonl", made_texts(2)))
    with pytest.raises(StoreError, match="exists"):
        score_file(classifier, Job(other, tmp_path / "out.jsonl", resume=True))
    assert score_file(classifier, Job(other, tmp_path / "out.jsonl", overwrite=True)).rows == 2


def test_nothing_is_done_twice(
    saved: Path, made_texts: Texts, tmp_path: Path, small_blocks: int, counted: Callable[[object], list[object]]
) -> None:
    """Weights are hashed once, when the model is loaded. A run builds its settings once, checks each text once, and
    reads the parts once, when it writes the output; a resumed part is read once more."""
    rows = 3 * small_blocks
    hashes, fingerprints, checks = (counted(f) for f in (model_hash, tokenizer_fingerprint, text_fault))
    settings, parsed = counted(Settings.__init__), counted(json.loads)
    job = Job(str(write_jsonl(tmp_path / "in.jsonl", made_texts(rows))), tmp_path / "out.jsonl")
    classifier = UncertaintyClassifier.from_pretrained(saved)
    settings.clear()  # those stored with the calibration
    score_file(classifier, job)
    assert (len(hashes), len(settings), len(fingerprints), len(checks)) == (1, 1, 1, rows)
    assert len(part_lines(parsed)) == rows + 3  # a line of counts in each part

    parsed.clear()
    job = replace(job, output=tmp_path / "resumed.jsonl")
    interrupted(classifier, job, 2 * small_blocks)
    assert part_lines(parsed) == []
    score_file(classifier, replace(job, resume=True))
    assert len(part_lines(parsed)) == 2 * (small_blocks + 1) + rows + 3


def part_lines(parsed: list[object]) -> list[object]:
    return [line for line in parsed if str(line).startswith('["')]


def test_a_broken_part_is_scored_again(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, small_blocks: int
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", made_texts(3 * small_blocks))
    job = Job(str(source), tmp_path / "out.jsonl")
    interrupted(classifier, job, 2 * small_blocks)
    (tmp_path / "out.jsonl.unfinished" / "part-000000.jsonl").write_text('["counts", {}]\n["row"')
    seen: list[Tally] = []
    score_file(classifier, replace(job, resume=True), seen.append)
    assert [progress.resumed for progress in seen] == [0, 16, 16]
    assert len(read(job.output)) == 3 * small_blocks


class Stop(Exception):
    """What a test interrupts a run with."""


def interrupted(classifier: UncertaintyClassifier, job: Job, after: int) -> None:
    def stop(progress: Tally) -> None:
        if progress.seen >= after:
            raise Stop

    with pytest.raises(Stop):
        score_file(classifier, job, stop)


def test_an_interrupted_run_is_neither_lost_nor_mixed_up(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, small_blocks: int
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", made_texts(4 * small_blocks))
    job = Job(str(source), tmp_path / "out.jsonl")
    interrupted(classifier, job, 2 * small_blocks)
    assert beside(job.output) == ["in.jsonl", "out.jsonl.unfinished"]
    with pytest.raises(StoreError, match="2 parts of an unfinished run; continue it with --resume"):
        score_file(classifier, job)
    with pytest.raises(StoreError, match="belongs to another run: columns differ"):
        score_file(classifier, Job(str(source), job.output, Layout(label=None, meta=("id",)), resume=True))
    calibration = classifier.calibration_
    assert calibration is not None
    assert calibration.scope is not None
    stricter = replace(calibration.scope, false_alarm=0.2)  # as after another --false-alarm
    classifier.calibration_ = replace(calibration, scope=stricter)
    with pytest.raises(StoreError, match="belongs to another run: calibration differ"):
        score_file(classifier, Job(str(source), job.output, resume=True))
    classifier.calibration_ = calibration
    changed = source.read_text().replace("a1", "a2")
    whole = source.read_text()
    source.write_text(changed)
    with pytest.raises(StoreError, match="has changed since"):
        score_file(classifier, Job(str(source), job.output, resume=True))
    source.write_text("".join(whole.splitlines(keepends=True)[:small_blocks]))
    with pytest.raises(StoreError, match="has changed since"):
        score_file(classifier, Job(str(source), job.output, resume=True))
    source.write_text(whole)
    seen: list[Tally] = []
    score_file(classifier, Job(str(source), job.output, resume=True), seen.append)
    assert [progress.resumed for progress in seen] == [16, 32, 32, 32]
    score_file(classifier, Job(str(source), tmp_path / "once.jsonl"))
    assert job.output.read_bytes() == (tmp_path / "once.jsonl").read_bytes()
    assert "out.jsonl.unfinished" not in beside(job.output)


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


def test_a_killed_run_goes_on_with_each_row_exactly_once(
    saved: Path, classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, small_blocks: int
) -> None:
    """SIGKILL, for real: after the first block, and again in the middle of a later one."""
    source = write_jsonl(tmp_path / "in.jsonl", made_texts(9 * small_blocks))
    output = tmp_path / "out.csv"

    command = [sys.executable, "-c", _RUN, str(saved), str(source), str(output), str(small_blocks)]
    done = 0
    for blocks_to_see, wait in [(1, 0.0), (5, 0.03)]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        while done < blocks_to_see * small_blocks:
            done = int(process.stdout.readline())
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not output.exists()
        done = 0
    seen: list[Tally] = []
    score_file(classifier, Job(str(source), output, resume=True), seen.append)
    assert seen[-1].rows == 9 * small_blocks
    assert seen[-1].resumed >= 5 * small_blocks
    score_file(classifier, Job(str(source), tmp_path / "once.csv"))
    assert output.read_bytes() == (tmp_path / "once.csv").read_bytes()
    assert [row["id"] for row in read(output)] == [f"r{place}" for place in range(9 * small_blocks)]


def test_a_kill_while_the_output_is_put_together(
    classifier: UncertaintyClassifier,
    made_texts: Texts,
    tmp_path: Path,
    small_blocks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between summary and output, with an older output there: the older one is not taken for the new."""
    source = str(write_jsonl(tmp_path / "in.jsonl", made_texts(2 * small_blocks)))
    output = tmp_path / "out.jsonl"
    output.write_text("old\n")

    def fail(path: Path, **options: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("uatlite.scoring.run.row_writer", fail)
        with pytest.raises(Stop):
            score_file(classifier, Job(source, output, overwrite=True))
    assert output.read_text() == "old\n"
    assert score_file(classifier, Job(source, output, resume=True)).rows == 2 * small_blocks
    assert len(read(output)) == 2 * small_blocks


def test_a_shift_is_in_the_summary(
    classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path, small_blocks: int
) -> None:
    same = score_file(
        classifier, Job(str(write_jsonl(tmp_path / "in.jsonl", made_texts(60, seed=8))), tmp_path / "a.csv")
    )
    assert same.shift is not None
    assert same.shift.shifted is False
    odd = write_jsonl(tmp_path / "odd.jsonl", ["a3 a3 a3"] * 60)
    other = score_file(classifier, Job(str(odd), tmp_path / "b.csv"))
    assert other.shift is not None
    assert other.shift.shifted is True
    stored = json.loads((tmp_path / "b.csv.summary.json").read_text())
    assert stored["shift"]["shifted"] is True
    assert "The data have shifted" in stored["shift"]["verdict"]


def test_an_uncalibrated_model_scores_too(classifier: UncertaintyClassifier, made_texts: Texts, tmp_path: Path) -> None:
    classifier.calibration_ = None
    source = str(write_jsonl(tmp_path / "in.jsonl", made_texts(3)))
    summary = score_file(classifier, Job(source, tmp_path / "out.jsonl"))
    assert (summary.abstained, summary.shift, summary.promise) == (None, None, None)
    assert "abstain" not in read(tmp_path / "out.jsonl")[0]


def test_an_empty_file_gives_an_empty_output(classifier: UncertaintyClassifier, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("")
    for suffix in ("jsonl", "csv", "parquet"):
        summary = score_file(classifier, Job(str(tmp_path / "in.jsonl"), tmp_path / f"out.{suffix}"))
        assert summary.rows == 0
        assert read(tmp_path / f"out.{suffix}") == []


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
    positions = np.argsort(hashed(np.arange(100_000, dtype=np.uint64)))[:10_000]
    counts = np.histogram(positions, bins=10, range=(0, 100_000))[0]
    assert (abs(counts - 1000) < 4 * np.sqrt(900)).all()
    assert len(np.unique(hashed(np.arange(100_000, dtype=np.uint64)))) == 100_000


def test_without_a_reference_there_is_no_report() -> None:
    monitor = ShiftMonitor(None)
    monitor.add([0], [0.5], None)
    assert monitor.report() is None
    assert ShiftMonitor(REFERENCE).report().shifted is None  # type: ignore[union-attr]
