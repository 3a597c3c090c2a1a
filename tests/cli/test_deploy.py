"""uatlite export: what it writes, says and refuses."""

import json
from pathlib import Path

import pytest

from uatlite.cli import main


def run(*arguments: object) -> int:
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_export_then_predict_and_calibrate(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    lines = [{"text": f"a{n % 50} a{n % 7} a{n % 11}", "label": ("bad", "fair", "good")[n % 3]} for n in range(60)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    assert run("export", saved, "-o", out, "--method", "base", "--texts", rows, "--int8") == 0
    said = capsys.readouterr().err
    assert "On 60 texts logits differ from PyTorch's by" in said
    assert "Not calibrated" in said
    assert run("calibrate", out, rows, "-o", tmp_path / "calibrated", "--target-coverage", "0.8") == 0
    assert run("predict", tmp_path / "calibrated", rows, "-o", tmp_path / "scored.jsonl") == 0
    assert len((tmp_path / "scored.jsonl").read_text().splitlines()) == 60
    assert run("export", saved, "-o", out, "--method", "base") == 2
    assert "is not empty" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", saved, "-o", tmp_path / "out") == 2
    assert "the method uat:samples=2 needs more than one plain pass" in capsys.readouterr().err
    assert run("export", saved, "-o", tmp_path / "out", "--texts", tmp_path / "nothing.csv") == 2
    assert run("export", tmp_path / "nothing", "-o", tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()
