"""The loop by its commands: pick, label, recheck, update, history; and what each says when it cannot."""

import json
import random
import re
import shlex
import shutil
from html import unescape

import pytest


@pytest.fixture
def calibrated_dir(model_dir, reviews, run, tmp_path):
    asked = ("--text", "body", "--label", "stars", "--target-risk", 0.9, "--method", "base")
    run("calibrate", model_dir, reviews, *asked, "-o", tmp_path / "clf")
    return tmp_path / "clf"


@pytest.fixture
def scored(calibrated_dir, reviews, run, tmp_path):
    path = tmp_path / "scored.jsonl"
    run("predict", calibrated_dir, reviews, "--text", "body", "--keep", "body", "--keep", "stars", "-o", path)
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_from_scored_rows_to_a_new_version_and_back(calibrated_dir, scored, tmp_path, run):
    picked, labelled = tmp_path / "to_label.csv", tmp_path / "labelled.jsonl"
    done = run("pick", scored, "--text", "body", "--budget", 60, "-o", picked)
    assert "random answer, each with the inclusion probability" in done.err
    run("pick", scored, "--text", "body", "--budget", 60, "-o", labelled)
    rng, rows = random.Random(0), rows_of(labelled)
    for row in rows[1:]:  # the first stays without a label
        row["label"] = rng.choice(("negative", "neutral", "positive"))
    labelled.write_text("\n".join(map(json.dumps, rows)))
    recheck = ("recheck", calibrated_dir, labelled)
    said = run(*recheck).err
    assert "1 row left out; the first: line 1, no label" in said
    assert "Promised: at most 90.00%" in said
    assert "labelled answers are wrong, a risk of" in said
    assert not (calibrated_dir / "versions").exists()
    assert "The promise is broken" in run(*recheck, "--target-risk", 0.01).err
    assert "Version 2 is in use; go back with" in run(*recheck, "--update", "--scored", scored).err
    history = ("history", calibrated_dir, "--use")
    assert run(*history, 1).out.splitlines()[-1] == "Version 1 is in use."
    assert "has no version 9; there are 1, 2." in run(*history, 9, code=2).err
    refused = run(*recheck, "--update", "--target-risk", 0.001, code=5).err.splitlines()
    assert refused[0].startswith("Version 3 is not put in use: it answers nothing. Abstain on all: ")
    assert "cannot promise a risk of 0.10% with confidence 0.95: even " in refused[0]
    assert "for 0.10% it cannot be told from " in refused[0]
    assert refused[0].endswith(f"Take it anyway: uatlite history {calibrated_dir} --use 3")
    assert refused[-1] == "Version 1 stays in use."
    assert sum("Abstain on all" in line for line in refused) == 1
    assert run("history", calibrated_dir).out.splitlines()[-1] == "Version 1 is in use."
    run(*history, 3)
    assert "go back to one that does" in run(*recheck, "--update", "--target-risk", 0.95, code=2).err
    run(*history, 1)
    again = run(*recheck, "--update", "--target-risk", 0.95)
    assert "at most 95.00% of the answers are wrong" in again.err
    assert "Version 4 is in use; go back with" in again.err


def test_rows_to_label_and_suspects(scored, tmp_path, run):
    spread, known = tmp_path / "spread.jsonl", tmp_path / "known.jsonl"
    run("pick", scored, "--text", "body", "--budget", 40, "-o", spread)
    assert len(rows_of(spread)) == 40
    done = run("pick", scored, "--errors", "--label", "stars", "-o", tmp_path / "suspects.csv")
    assert "rows probably mislabelled" in done.err
    run("pick", scored, "--budget", 40, "-o", known)
    assert known.read_bytes() == spread.read_bytes()  # its summary knows the column
    done = run("pick", scored, "--text", "words", "-o", tmp_path / "x.jsonl", code=2)
    assert "There is no column 'words'" in done.err
    assert "not a saved classifier" in run("history", tmp_path, code=2).err


def test_watch_counts_each_row_once_and_exits_with_4_on_an_alarm(calibrated_dir, scored, tmp_path, run, monkeypatch):
    state, files, page = tmp_path / "watch.json", tmp_path / "days", tmp_path / "page.html"
    files.mkdir()
    for day in ("monday", "tuesday"):  # as predict writes them
        shutil.copy(scored.with_name("scored.jsonl.summary.json"), files / f"{day}.jsonl.summary.json")
    (files / "monday.jsonl.rejects.jsonl").write_text('{"line": 7, "reason": "no text"}\n')
    found = rows_of(scored)
    ranks = random.Random(1).sample(range(1, len(found) + 1), len(found))
    usual = [{**row, "scope": rank / (len(found) + 1)} for row, rank in zip(found, ranks, strict=True)]
    (files / "monday.jsonl").write_text("\n".join(map(json.dumps, usual)) + "\n")
    watch = ("watch", calibrated_dir, files, "-o", state)
    look = (*watch, "--once")
    run(*look)
    run(*look, "--report", page)
    assert json.loads(state.read_text())["rows"] == len(usual)
    strange = [{**row, "id": f"strange {place}", "scope": 1 / (len(found) + 1)} for place, row in enumerate(usual)]
    (files / "tuesday.jsonl").write_text("\n".join(map(json.dumps, strange)) + "\n")
    assert "alarm" in run(*look, "--report", page, code=4).err.lower()
    assert "<html" in page.read_text()
    monkeypatch.chdir(tmp_path)
    run(*shlex.split(re.search("uatlite (pick .*)", unescape(page.read_text()))[1]))  # as it is printed
    assert len(rows_of(tmp_path / "to_label.jsonl")) == 100
    run("watch", calibrated_dir, "-o", state, "--once", "--report", page, code=4)
    assert f"uatlite watch {calibrated_dir} -o {state} --acknowledge" in page.read_text()
    done = run("watch", calibrated_dir, "-o", tmp_path / "none.json", "--once", code=2)
    assert "none.json does not exist; give scored files" in done.err
    assert "has no column 'boddy'" in run(*watch, "--once", "--text", "boddy", code=2).err
    run(*watch, "--acknowledge")
    run(*look)
    assert "give it with --acknowledge" in run(*watch, "--new-normal", code=2).err
