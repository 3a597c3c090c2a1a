"""uatlite export: what it writes, says and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_export_then_predict_and_calibrate(saved: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.jsonl"
    lines = [{"text": f"a{n % 50} a{n % 7} a{n % 11}", "label": ("bad", "fair", "good")[n % 3]} for n in range(60)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    said = run("export", saved, "-o", out, "--method", "base", "--texts", rows, "--int8").err
    assert "On 60 texts logits differ from PyTorch's by" in said
    assert "Not calibrated" in said
    run("calibrate", out, rows, "-o", tmp_path / "calibrated", "--target-coverage", "0.8")
    run("predict", tmp_path / "calibrated", rows, "-o", tmp_path / "scored.jsonl")
    assert len((tmp_path / "scored.jsonl").read_text().splitlines()) == 60
    assert "is not empty" in run("export", saved, "-o", out, "--method", "base", code=2).err


def test_what_cannot_be_exported_is_refused(saved: Path, tmp_path: Path, run: Run) -> None:
    to = ("-o", tmp_path / "out")
    assert "the method uat:samples=2 needs more than one plain pass" in run("export", saved, *to, code=2).err
    run("export", saved, *to, "--texts", tmp_path / "nothing.csv", code=2)
    run("export", tmp_path / "nothing", *to, code=2)
    assert not (tmp_path / "out").exists()
