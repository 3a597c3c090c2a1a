"""`uatlite evaluate`: what it prints and writes, how it fails, and that it goes on after Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uatlite.cli import main
from uatlite.errors import UATLiteError
from uatlite.lab.evaluate.store import Store

Run = Callable[..., Any]
OF_REVIEWS = ("--text", "body", "--label", "stars")


def test_a_table_is_printed_and_everything_is_written(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    home, methods = tmp_path / "out", ("--methods", "base,ts,uat:samples=2+ts", "--seeds", 2, "--resamples", 50)
    done = run("evaluate", model_dir, "--data", reviews, *OF_REVIEWS, "--perturb", "swap", *methods, "-o", home)
    out = done.out
    for shown in ("reviews/test · 50 rows", "reviews+swap/test · 50 rows", "uat:samples="):
        assert shown in out
    assert "Not compared" not in done.said
    assert out.index("Which method to use") < out.index("NLL of the row less that of the column") < out.index("\nUse")
    assert "Wrote results.json, results.csv, results.md, texts.jsonl and store/" in done.said
    written = {"results.csv", "results.json", "results.md", "store", "texts.jsonl"}
    assert {path.name for path in home.iterdir()} == written
    results = json.loads((home / "results.json").read_text())
    assert results["contenders"] == ["base", "base+ts", "uat:samples=2+ts"]
    assert all(run.complete for run in Store(home / "store").runs())


def test_a_method_named_alone_suggests_its_calibrator(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    rows = ("--data", reviews, *OF_REVIEWS, "--resamples", 20)
    done = run("evaluate", model_dir, *rows, "--methods", "ts,analytic", "-o", tmp_path)
    told = "Not compared: analytic+its, a method with its own calibrator; add to --methods."
    assert told in done.said
    assert told in done.shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "sst3"], "Error: task='sst3' is not one of: .* Did you mean 'sst2'?"),
        ([], "Error: Give either --task"),
        (["--task", "sst2", "--methods", "uta"], "Error: There is no method 'uta'.*Did you mean 'uat'"),
        (["--task", "hans", "--methods", "ts"], "Error: base.ts: hans has no calibration split"),
        (["--data", "absent.csv"], "Error: .*absent.csv"),
        (["--task", "sst2", "--seeds", "0"], "Error: seeds=0 is not 1 or more"),
        (["--task", "sst2", "--out-of-scope", "sst2"], "Error: --out-of-scope sst2: this is the task under test"),
        (["--task", "sst2", "--out-of-scope", "absent.csv"], "Error: --out-of-scope absent.csv is neither a file nor"),
    ],
)
def test_an_error_is_one_sentence_and_exit_code_2(
    run: Run, model_dir: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run("evaluate", model_dir, *arguments, "-o", tmp_path, code=2)
    assert done.out == ""
    assert re.match(message, done.said)


def test_what_is_missing_is_named(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    rows = ("--data", reviews, "--label", "stars", "-o", tmp_path)
    columns = "There is no column 'bode'; the columns are: body, stars. Did you mean 'body'?"
    assert columns in run("evaluate", model_dir, *rows, "--text", "bode", code=2).said
    gone = run("evaluate", tmp_path / "absent", *rows, "--text", "body", code=2)
    assert "absent is not a directory" in gone.said


def test_texts_out_of_scope_come_from_a_file_and_the_report_still_draws(
    run: Run, model_dir: Path, reviews: Path, tmp_path: Path
) -> None:
    strange = tmp_path / "strange.csv"
    strange.write_text("body\n" + "\n".join(f"w{number} w0 w1" for number in range(30)) + "\n")
    rows = ("--data", reviews, *OF_REVIEWS, "--methods", "base,ts", "--resamples", 50)
    shown = run("evaluate", model_dir, *rows, "--out-of-scope", strange, "-o", tmp_path / "out").shown
    assert "reviews/test: finding 30 texts out of scope" in shown
    assert "scope: by 50 calibration rows alone, as no training texts of the task were found" in shown
    assert "By confidence ↓ × in scope ↓ Change" in shown
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["out_of_scope"]["detection"]) == ["base", "base+ts", "scope"]
    run("report", tmp_path / "out")
    other = run("evaluate", model_dir, *rows, "--out-of-scope", reviews, "--text", "bode", "-o", tmp_path / "o", code=2)
    assert "There is no column 'bode'; the columns are: body, stars." in other.said


def test_debug_shows_the_traceback(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UATLiteError, match="sst3"):
        main(["evaluate", str(model_dir), "--task", "sst3", "-o", str(tmp_path), "--debug"])


def test_help_teaches_by_example_and_an_unknown_option_is_wrong_use(run: Run, model_dir: Path) -> None:
    assert "uatlite evaluate my-model --task sst2 -o out" in run("evaluate", "--help").out
    run("evaluate", model_dir, "--tsk", "sst2", code=2)


def test_after_ctrl_c_the_same_command_goes_on(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    arguments = ["evaluate", str(model_dir), "--data", str(reviews), *OF_REVIEWS]
    arguments += ["--methods", "uat:samples=400", "--seeds", "1", "--resamples", "20", "-o", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-m", "uatlite", *arguments], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90
    while not list(tmp_path.glob("store/run=*/piece-*.parquet")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "goes on from there" in " ".join(err.split())
    assert "Traceback" not in err
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("store/run=*/piece-*.parquet")}
    assert len(stamps) < 4
    run(*arguments)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
