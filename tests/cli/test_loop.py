"""The loop by its commands: pick, label, recheck, update, history; and what each says when it cannot."""

import json
import random
from pathlib import Path

import pytest

from uatlite.cli import main


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


@pytest.fixture
def calibrated_dir(model_dir: Path, reviews: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "clf"
    columns = ("--text", "body", "--label", "stars")
    assert (
        call("calibrate", model_dir, reviews, *columns, "--target-risk", 0.9, "--method", "base", "-o", directory) == 0
    )
    return directory


@pytest.fixture
def scored(calibrated_dir: Path, reviews: Path, tmp_path: Path) -> Path:
    path = tmp_path / "scored.jsonl"
    arguments = ("--text", "body", "--keep", "body", "--keep", "stars", "-o", path)
    assert call("predict", calibrated_dir, reviews, *arguments) == 0
    return path


def test_from_scored_rows_to_a_new_version_and_back(
    calibrated_dir: Path, scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picked, labelled = tmp_path / "to_label.csv", tmp_path / "labelled.jsonl"
    assert call("pick", scored, "--text", "body", "--budget", 60, "-o", picked) == 0
    assert "random answer, each with the inclusion probability" in capsys.readouterr().err
    assert call("pick", scored, "--text", "body", "--budget", 60, "-o", labelled) == 0
    rng = random.Random(0)
    rows = [json.loads(line) for line in labelled.read_text().splitlines()]
    for row in rows[1:]:  # the first stays without a label
        row["label"] = rng.choice(("negative", "neutral", "positive"))
    labelled.write_text("\n".join(map(json.dumps, rows)))
    capsys.readouterr()
    assert call("recheck", calibrated_dir, labelled) == 0
    said = capsys.readouterr().err
    assert "1 rows left out; the first: line 1, no label" in said
    assert "Promised: at most 90.00%" in said
    assert "labelled answers are wrong, a risk of" in said
    assert not (calibrated_dir / "versions").exists()
    assert call("recheck", calibrated_dir, labelled, "--target-risk", 0.01) == 0
    assert "The promise is broken" in capsys.readouterr().err
    assert call("recheck", calibrated_dir, labelled, "--update", "--scored", scored) == 0
    assert "Version 2 is in use; go back with" in capsys.readouterr().err
    assert call("history", calibrated_dir, "--use", 1) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Version 1 is in use."
    assert call("history", calibrated_dir, "--use", 9) == 2
    assert "has no version 9; there are 1, 2." in capsys.readouterr().err
    assert call("recheck", calibrated_dir, labelled, "--update", "--target-risk", 0.001) == 0
    assert "Abstain on all" in capsys.readouterr().err
    assert call("recheck", calibrated_dir, labelled, "--update", "--target-risk", 0.95) == 2
    assert "go back to one that does" in capsys.readouterr().err
    assert call("history", calibrated_dir, "--use", 1) == 0
    assert call("recheck", calibrated_dir, labelled, "--update", "--target-risk", 0.95) == 0
    assert "at most 95.00% of the answers are wrong" in capsys.readouterr().err


def test_rows_to_label_and_suspects(scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spread = tmp_path / "spread.jsonl"
    assert call("pick", scored, "--text", "body", "--budget", 40, "-o", spread) == 0
    assert len(spread.read_text().splitlines()) == 40
    capsys.readouterr()
    assert call("pick", scored, "--errors", "--label", "stars", "-o", tmp_path / "suspects.csv") == 0
    assert "rows are probably mislabelled" in capsys.readouterr().err
    assert call("pick", scored, "--budget", 40, "-o", tmp_path / "known.jsonl") == 0
    assert (tmp_path / "known.jsonl").read_bytes() == spread.read_bytes()  # its summary knows the column
    capsys.readouterr()
    assert call("pick", scored, "--text", "words", "-o", tmp_path / "x.jsonl") == 2
    assert "There is no column 'words'" in capsys.readouterr().err
    assert call("history", tmp_path) == 2
    assert "not a saved classifier" in capsys.readouterr().err


def test_watch_counts_each_row_once_and_exits_with_4_on_an_alarm(
    calibrated_dir: Path, scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, files = tmp_path / "watch.json", tmp_path / "days"
    files.mkdir()
    found = [json.loads(line) for line in scored.read_text().splitlines()]
    ranks = random.Random(1).sample(range(1, len(found) + 1), len(found))
    usual = [{**row, "scope": rank / (len(found) + 1)} for row, rank in zip(found, ranks, strict=True)]
    (files / "monday.jsonl").write_text("\n".join(map(json.dumps, usual)) + "\n")
    look = ("watch", calibrated_dir, files, "-o", state, "--text", "body", "--once")
    assert call(*look) == 0
    assert call(*look, "--report", tmp_path / "page.html") == 0
    assert json.loads(state.read_text())["rows"] == len(usual)
    strange = [{**row, "id": f"strange {place}", "scope": 1 / (len(found) + 1)} for place, row in enumerate(usual)]
    (files / "tuesday.jsonl").write_text("\n".join(map(json.dumps, strange)) + "\n")
    capsys.readouterr()
    assert call(*look, "--report", tmp_path / "page.html") == 4
    assert "alarm" in capsys.readouterr().err.lower()
    assert "<html" in (tmp_path / "page.html").read_text()
    assert call("watch", calibrated_dir, "-o", state, "--once", "--report", tmp_path / "state.html") == 4
    assert f"uatlite watch {calibrated_dir} -o {state} --acknowledge" in (tmp_path / "state.html").read_text()
    capsys.readouterr()
    assert call("watch", calibrated_dir, "-o", tmp_path / "none.json", "--once") == 2
    assert "none.json does not exist; give scored files" in capsys.readouterr().err
    assert call("watch", calibrated_dir, files, "-o", state, "--once", "--text", "boddy") == 2
    assert "has no column 'boddy'" in capsys.readouterr().err
    assert call("watch", calibrated_dir, files, "-o", state, "--acknowledge") == 0
    assert call(*look) == 0
    assert call("watch", calibrated_dir, files, "-o", state, "--new-normal") == 2
    assert "give it with --acknowledge" in capsys.readouterr().err
