"""The loop by its commands: pick, label, recheck, update, history; and what each says when it cannot."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def calibrated_dir(model_dir: Path, reviews: Path, run: Run, tmp_path: Path) -> Path:
    directory = tmp_path / "clf"
    columns = ("--text", "body", "--label", "stars")
    assert (
        run("calibrate", model_dir, reviews, *columns, "--target-risk", 0.9, "--method", "base", "-o", directory).code
        == 0
    )
    return directory


@pytest.fixture
def scored(calibrated_dir: Path, reviews: Path, run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "scored.jsonl"
    arguments = ("--text", "body", "--keep", "body", "--keep", "stars", "-o", path)
    assert run("predict", calibrated_dir, reviews, *arguments).code == 0
    return path


def test_from_scored_rows_to_a_new_version_and_back(
    calibrated_dir: Path, scored: Path, tmp_path: Path, run: Run
) -> None:
    picked, labelled = tmp_path / "to_label.csv", tmp_path / "labelled.jsonl"
    done = run("pick", scored, "--text", "body", "--budget", 60, "-o", picked)
    assert done.code == 0
    assert "random answer, each with the inclusion probability" in done.err
    assert run("pick", scored, "--text", "body", "--budget", 60, "-o", labelled).code == 0
    rng = random.Random(0)
    rows = [json.loads(line) for line in labelled.read_text().splitlines()]
    for row in rows[1:]:  # the first stays without a label
        row["label"] = rng.choice(("negative", "neutral", "positive"))
    labelled.write_text("\n".join(map(json.dumps, rows)))
    code, _, said = run("recheck", calibrated_dir, labelled)
    assert code == 0
    assert "1 rows left out; the first: line 1, no label" in said
    assert "Promised: at most 90.00%" in said
    assert "labelled answers are wrong, a risk of" in said
    assert not (calibrated_dir / "versions").exists()
    done = run("recheck", calibrated_dir, labelled, "--target-risk", 0.01)
    assert done.code == 0
    assert "The promise is broken" in done.err
    done = run("recheck", calibrated_dir, labelled, "--update", "--scored", scored)
    assert done.code == 0
    assert "Version 2 is in use; go back with" in done.err
    done = run("history", calibrated_dir, "--use", 1)
    assert done.code == 0
    assert done.out.splitlines()[-1] == "Version 1 is in use."
    done = run("history", calibrated_dir, "--use", 9)
    assert done.code == 2
    assert "has no version 9; there are 1, 2." in done.err
    done = run("recheck", calibrated_dir, labelled, "--update", "--target-risk", 0.001)
    assert done.code == 0
    assert "Abstain on all" in done.err
    done = run("recheck", calibrated_dir, labelled, "--update", "--target-risk", 0.95)
    assert done.code == 2
    assert "go back to one that does" in done.err
    assert run("history", calibrated_dir, "--use", 1).code == 0
    done = run("recheck", calibrated_dir, labelled, "--update", "--target-risk", 0.95)
    assert done.code == 0
    assert "at most 95.00% of the answers are wrong" in done.err


def test_rows_to_label_and_suspects(scored: Path, tmp_path: Path, run: Run) -> None:
    spread = tmp_path / "spread.jsonl"
    assert run("pick", scored, "--text", "body", "--budget", 40, "-o", spread).code == 0
    assert len(spread.read_text().splitlines()) == 40
    done = run("pick", scored, "--errors", "--label", "stars", "-o", tmp_path / "suspects.csv")
    assert done.code == 0
    assert "rows are probably mislabelled" in done.err
    assert run("pick", scored, "--budget", 40, "-o", tmp_path / "known.jsonl").code == 0
    assert (tmp_path / "known.jsonl").read_bytes() == spread.read_bytes()  # its summary knows the column
    done = run("pick", scored, "--text", "words", "-o", tmp_path / "x.jsonl")
    assert done.code == 2
    assert "There is no column 'words'" in done.err
    done = run("history", tmp_path)
    assert done.code == 2
    assert "not a saved classifier" in done.err


def test_watch_counts_each_row_once_and_exits_with_4_on_an_alarm(
    calibrated_dir: Path, scored: Path, tmp_path: Path, run: Run
) -> None:
    state, files = tmp_path / "watch.json", tmp_path / "days"
    files.mkdir()
    found = [json.loads(line) for line in scored.read_text().splitlines()]
    ranks = random.Random(1).sample(range(1, len(found) + 1), len(found))
    usual = [{**row, "scope": rank / (len(found) + 1)} for row, rank in zip(found, ranks, strict=True)]
    (files / "monday.jsonl").write_text("\n".join(map(json.dumps, usual)) + "\n")
    look = ("watch", calibrated_dir, files, "-o", state, "--text", "body", "--once")
    assert run(*look).code == 0
    assert run(*look, "--report", tmp_path / "page.html").code == 0
    assert json.loads(state.read_text())["rows"] == len(usual)
    strange = [{**row, "id": f"strange {place}", "scope": 1 / (len(found) + 1)} for place, row in enumerate(usual)]
    (files / "tuesday.jsonl").write_text("\n".join(map(json.dumps, strange)) + "\n")
    done = run(*look, "--report", tmp_path / "page.html")
    assert done.code == 4
    assert "alarm" in done.err.lower()
    assert "<html" in (tmp_path / "page.html").read_text()
    assert run("watch", calibrated_dir, "-o", state, "--once", "--report", tmp_path / "state.html").code == 4
    assert f"uatlite watch {calibrated_dir} -o {state} --acknowledge" in (tmp_path / "state.html").read_text()
    done = run("watch", calibrated_dir, "-o", tmp_path / "none.json", "--once")
    assert done.code == 2
    assert "none.json does not exist; give scored files" in done.err
    done = run("watch", calibrated_dir, files, "-o", state, "--once", "--text", "boddy")
    assert done.code == 2
    assert "has no column 'boddy'" in done.err
    assert run("watch", calibrated_dir, files, "-o", state, "--acknowledge").code == 0
    assert run(*look).code == 0
    done = run("watch", calibrated_dir, files, "-o", state, "--new-normal")
    assert done.code == 2
    assert "give it with --acknowledge" in done.err
