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
    assert "the method uat:samples=2 needs its stochastic passes: add --passes" in capsys.readouterr().err
    assert run("export", saved, "-o", tmp_path / "out", "--method", "base", "--passes") == 2
    assert "has no stochastic ones" in capsys.readouterr().err
    assert run("export", saved, "-o", tmp_path / "out", "--method", "analytic", "--passes") == 2
    assert "the method analytic is not exported" in capsys.readouterr().err
    assert run("export", saved, "-o", tmp_path / "out", "--texts", tmp_path / "nothing.csv") == 2
    assert run("export", tmp_path / "nothing", "-o", tmp_path / "out") == 2
    assert not (tmp_path / "out").exists()


def test_export_with_passes(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The calibration of the sampling method is kept, and the decisions are those of the checkpoint."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": f"a{n % 50} a{n % 7}"}) + "\n" for n in range(30)))
    assert run("export", saved, "-o", tmp_path / "out", "--passes", "--texts", rows) == 0
    assert "Not calibrated" not in capsys.readouterr().err
    for name, model in (("theirs", saved), ("ours", tmp_path / "out")):
        assert run("predict", model, rows, "-o", tmp_path / f"{name}.jsonl") == 0
    theirs, ours = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("theirs", "ours")
    )
    assert [row["label"] for row in ours] == [row["label"] for row in theirs]
    assert [row["abstain"] for row in ours] == [row["abstain"] for row in theirs]
