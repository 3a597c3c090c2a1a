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

import pytest

from uatlite.cli import main
from uatlite.errors import UATLiteError
from uatlite.lab.evaluate.store import Store

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(*arguments)`: exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, " ".join(err.split())

    return call


def test_a_table_is_printed_and_everything_is_written(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    arguments = ("--data", reviews, "--text", "body", "--label", "stars", "--perturb", "swap", "--resamples", 50)
    methods = ("--methods", "base,ts,uat:samples=2+ts", "--seeds", 2)
    code, out, err = run("evaluate", model_dir, *arguments, *methods, "-o", tmp_path / "out")
    assert code == 0
    assert "reviews/test · 50 rows" in out
    assert "reviews+swap/test · 50 rows" in out
    assert "uat:samples=" in out
    assert "Not compared" not in err
    assert out.index("Which method to use") < out.index("NLL of the row less that of the column") < out.index("\nUse")
    assert "Wrote results.json, results.csv, results.md, texts.jsonl and store/" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "results.csv",
        "results.json",
        "results.md",
        "store",
        "texts.jsonl",
    ]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["contenders"] == ["base", "base+ts", "uat:samples=2+ts"]
    assert all(run.complete for run in Store(tmp_path / "out" / "store").runs())


def test_a_method_named_alone_suggests_its_calibrator(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    rows = ("--data", reviews, "--text", "body", "--label", "stars", "--resamples", 20)
    code, out, err = run("evaluate", model_dir, *rows, "--methods", "ts,analytic", "-o", tmp_path)
    assert code == 0
    told = "Not compared: analytic+its, a method with its own calibrator; add to --methods."
    assert told in err
    assert told in " ".join(out.split())


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
    code, out, err = run("evaluate", model_dir, *arguments, "-o", tmp_path)
    assert (code, out) == (2, "")
    assert "Traceback" not in err

    assert re.match(message, err)


def test_a_missing_column_lists_those_there_are(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    code, _, err = run("evaluate", model_dir, "--data", reviews, "--text", "bode", "--label", "stars", "-o", tmp_path)
    assert code == 2
    assert "There is no column 'bode'; the columns are: body, stars. Did you mean 'body'?" in err


def test_texts_out_of_scope_come_from_a_file_and_the_report_still_draws(
    run: Run, model_dir: Path, reviews: Path, tmp_path: Path
) -> None:
    strange = tmp_path / "strange.csv"
    strange.write_text("body\n" + "\n".join(f"w{number} w0 w1" for number in range(30)) + "\n")
    rows = ("--data", reviews, "--text", "body", "--label", "stars", "--methods", "base,ts", "--resamples", 50)
    code, out, err = run("evaluate", model_dir, *rows, "--out-of-scope", strange, "-o", tmp_path / "out")
    assert code == 0, err
    said = " ".join(out.split())
    assert "reviews/test: finding 30 texts out of scope" in said
    assert "scope: by 50 calibration rows alone, as no training texts of the task were found" in said
    assert "By confidence ↓ × in scope ↓ Change" in said
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["out_of_scope"]["detection"]) == ["base", "base+ts", "scope"]
    assert run("report", tmp_path / "out")[0] == 0
    code, _, err = run("evaluate", model_dir, *rows, "--out-of-scope", reviews, "--text", "bode", "-o", tmp_path / "o")
    assert code == 2
    assert "There is no column 'bode'; the columns are: body, stars." in err


def test_a_missing_model_is_told_in_one_sentence(run: Run, reviews: Path, tmp_path: Path) -> None:
    arguments = ("--data", reviews, "--text", "body", "--label", "stars", "-o", tmp_path)
    code, _, err = run("evaluate", tmp_path / "absent", *arguments)
    assert code == 2
    assert "absent is not a directory" in err


def test_debug_shows_the_traceback(model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UATLiteError, match="sst3"):
        main(["evaluate", str(model_dir), "--task", "sst3", "-o", str(tmp_path), "--debug"])


def test_an_unknown_option_is_wrong_use_too(run: Run, model_dir: Path) -> None:
    assert run("evaluate", model_dir, "--tsk", "sst2")[0] == 2


def test_help_teaches_by_example(run: Run) -> None:
    code, out, _ = run("evaluate", "--help")
    assert code == 0
    assert "uatlite evaluate my-model --task sst2 -o out" in out


def test_after_ctrl_c_the_same_command_goes_on(run: Run, model_dir: Path, reviews: Path, tmp_path: Path) -> None:
    arguments = ["evaluate", str(model_dir), "--data", str(reviews), "--text", "body", "--label", "stars"]
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
    assert run(*arguments)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
