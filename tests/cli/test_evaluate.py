"""`uatlite evaluate`: what it prints and writes, how it fails, and that it goes on after Ctrl-C."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import date
from html import unescape
from inspect import signature

import numpy as np
import pytest

import uatlite
from uatlite.cli import main
from uatlite.cli.evaluate import evaluate as command
from uatlite.errors import UATLiteError
from uatlite.lab.evaluate.store import Store
from uatlite.lab.evaluation import OPTIONS

OF_REVIEWS = ("--text", "body", "--label", "stars")


def test_a_table_is_printed_and_everything_is_written(run, model_dir, reviews, tmp_path):
    home, methods = tmp_path / "out", ("--methods", "base,ts,uat:samples=2+ts", "--seeds", 2, "--resamples", 50)
    done = run("evaluate", model_dir, "--data", reviews, *OF_REVIEWS, "--perturb", "swap", *methods, "-o", home)
    out = done.out
    for shown in ("reviews.jsonl/test · 50 rows", "reviews.jsonl+swap/test · 50 rows", "uat:samples="):
        assert shown in out
    assert "Not compared" not in done.said
    assert out.index("Which method to use") < out.index("NLL of the row less that of the column") < out.index("\nUse")
    assert "Wrote results.json, results.csv, results.md, texts.jsonl and store/" in done.said
    written = {"results.csv", "results.json", "results.md", "store", "texts.jsonl"}
    assert {path.name for path in home.iterdir()} == written
    results = json.loads((home / "results.json").read_text())
    assert results["contenders"] == ["base", "base+ts", "uat:samples=2+ts"]
    assert all(run.complete for run in Store(home / "store").runs())
    again = ("evaluate", model_dir, "--data", reviews, *OF_REVIEWS, "--methods", "base", "--resamples", 20, "-o", home)
    refused = run(*again, code=2).said
    assert "holds the results of an evaluation; give another directory, --resume to compute only what is" in refused
    assert json.loads((home / "results.json").read_text()) == results
    stamps = {path: path.stat().st_mtime_ns for path in home.glob("store/run=*/*.parquet")}
    run(*again, "--resume")
    assert json.loads((home / "results.json").read_text())["contenders"] == ["base"]
    assert {path: path.stat().st_mtime_ns for path in home.glob("store/run=*/*.parquet")} == stamps
    (home / "store" / "notes.txt").touch()
    run(*again, "--overwrite")
    written = {path: path.stat().st_mtime_ns for path in home.glob("store/run=*/*.parquet")}
    assert written.keys() < stamps.keys()  # those of the other methods are gone, and none is as it was
    assert all(stamp > stamps[path] for path, stamp in written.items())
    assert (home / "store" / "notes.txt").exists()


def test_python_does_what_the_command_does(run, model_dir, reviews, tmp_path):
    columns, asked = {"text": "body", "label": "stars"}, {"methods": "base,ts", "resamples": 50, "perturb": ["swap"]}
    results = uatlite.evaluate(model_dir, tmp_path / "python", data=reviews, **columns, **asked)
    words = shlex.split(results.command)
    assert words[:3] == ["uatlite", "evaluate", str(model_dir)]
    words[-1] = str(tmp_path / "command")
    run(*words[1:])
    ours, theirs = ((tmp_path / name / "results.csv").read_text() for name in ("python", "command"))
    assert ours == theirs
    assert results.date == date.today().isoformat()
    page = uatlite.report(tmp_path / "python", method="base+ts", target_risk=0.3)
    assert page == tmp_path / "python" / "report.html"
    assert results.command in unescape(page.read_text(encoding="utf-8"))
    with pytest.raises(UATLiteError, match=r"option='tsk' is not one of: .* Did you mean 'task'\?"):
        uatlite.evaluate(model_dir, tmp_path, tsk="sst2")


def test_python_has_the_options_of_the_command_and_their_defaults():
    parameters = signature(command).parameters
    assert {name: parameters[name].default for name in OPTIONS} == OPTIONS
    elsewhere = {
        "model",
        "scores",
        "device",
        "output",
        "resume",
        "overwrite",
        "engine",
        "address",
        "workers",
        "gpus_per_worker",
    }  # of what, and where
    assert set(parameters) - set(OPTIONS) == elsewhere


def test_a_method_named_alone_suggests_its_calibrator(run, model_dir, reviews, tmp_path):
    rows = ("--data", reviews, *OF_REVIEWS, "--resamples", 20)
    done = run("evaluate", model_dir, *rows, "--methods", "ts,analytic", "-o", tmp_path)
    told = "Not compared: analytic+its, a method with its own calibrator; add to --methods."
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
def test_an_error_is_one_sentence_and_exit_code_2(run, model_dir, tmp_path, arguments, message):
    done = run("evaluate", model_dir, *arguments, "-o", tmp_path, code=2)
    assert done.out == ""
    assert re.match(message, done.said)


def test_what_is_missing_is_named(run, model_dir, reviews, tmp_path):
    rows = ("--data", reviews, "--label", "stars", "-o", tmp_path)
    columns = "There is no column 'bode'; the columns are: body, stars. Did you mean 'body'?"
    assert columns in run("evaluate", model_dir, *rows, "--text", "bode", code=2).said
    gone = run("evaluate", tmp_path / "absent", *rows, "--text", "body", code=2)
    assert "absent is not a directory" in gone.said


def test_texts_out_of_scope_come_from_a_file_and_the_report_still_draws(run, model_dir, reviews, tmp_path):
    strange = tmp_path / "strange.csv"
    strange.write_text("body\n" + "\n".join(f"w{number} w0 w1" for number in range(30)) + "\n")
    rows = ("--data", reviews, *OF_REVIEWS, "--methods", "base,ts", "--resamples", 50)
    shown = run("evaluate", model_dir, *rows, "--out-of-scope", strange, "-o", tmp_path / "out").shown
    assert "reviews.jsonl/test: finding 30 texts out of scope" in shown
    assert "scope: by 50 calibration rows alone, as no training texts of the task were found" in shown
    assert "By confidence ↓ × in scope ↓ Change" in shown
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert list(results["out_of_scope"]["detection"]) == ["base", "base+ts", "scope"]
    run("report", tmp_path / "out")
    other = run("evaluate", model_dir, *rows, "--out-of-scope", reviews, "--text", "bode", "-o", tmp_path / "o", code=2)
    assert "There is no column 'bode'; the columns are: body, stars." in other.said


def test_debug_shows_the_traceback(model_dir, tmp_path):
    with pytest.raises(UATLiteError, match="sst3"):
        main(["evaluate", str(model_dir), "--task", "sst3", "-o", str(tmp_path), "--debug"])


def test_help_teaches_by_example_and_an_unknown_option_is_wrong_use(run, model_dir):
    assert "uatlite evaluate my-model --task sst2 -o out" in run("evaluate", "--help").out
    run("evaluate", model_dir, "--tsk", "sst2", code=2)


def test_after_ctrl_c_the_same_command_goes_on(run, model_dir, reviews, tmp_path):
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


def test_entities_are_evaluated_and_reported(run, model_of, names, tmp_path):
    out, methods = tmp_path / "out", ("--methods", "base,base+answers", "--resamples", 30, "--target-risk", 0.3)
    done = run("evaluate", model_of("entities"), "--data", names, *methods, "-o", out)
    assert "names.jsonl/test · 100 rows" in done.shown
    assert "What is promised, and kept base+answers, names.jsonl/test:" in done.shown
    assert "Wrote results.json, results.csv, results.md and store/" in done.said
    results = json.loads((out / "results.json").read_text())
    assert (results["kind"], results["contenders"]) == ("entities", ["base", "base+answers"])
    run("report", out)
    assert "What is promised, and kept" in (out / "report.html").read_text()


def test_what_does_not_carry_over_is_refused(run, model_of, names, tmp_path):
    entities, labels, one = map(model_of, ("entities", "labels", "one"))
    for arguments, message in (
        ((entities, "--perturb", "negation"), "its entities would be in other places"),
        ((entities, "--methods", "base+ts"), "'ts' is for one class a text"),
        ((labels, "--methods", "base"), "is no model of entities"),
        ((one, "--methods", "base"), "is no model of entities"),
        ((entities, labels), "one model is evaluated"),
    ):
        assert message in run("evaluate", *arguments, "--data", names, "-o", tmp_path / "out", code=2).said


LEARNS = ("--learning-rate", 5e-3, "--warmup-steps", 2, "--batch-size", 8, "--epochs", 10)


def written(kind, path):
    """Rows of words: w1 is a person and w2 a place; or the label joy where w1 is in a text, and anger where w2 is."""
    rng, lines = np.random.default_rng(0), []
    for size in rng.integers(2, 8, size=120):
        words = [f"w{word}" for word in rng.integers(0, 6, size=size)]
        if kind == "entities":
            row = {"tokens": words, "tags": [{"w1": "B-person", "w2": "B-place"}.get(word, "O") for word in words]}
        else:
            row = {
                "text": " ".join(words),
                "labels": [name for at, name in (("w1", "joy"), ("w2", "anger")) if at in words],
            }
        lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("kind", ["entities", "labels"])
def test_an_ensemble_is_trained_calibrated_and_evaluated(kind, run, model_dir, tmp_path):
    data, model, made = written(kind, tmp_path / "rows.jsonl"), tmp_path / "ensemble", tmp_path / "made"
    asked = ("--backbone", model_dir, "--method", "ensemble:members=2", "--recipe", "demo", *LEARNS)
    run("train", "--data", data, *asked, "--held-out", 0.4, "-o", model)
    run("calibrate", model, model / "held-out.jsonl", "-o", made)
    for directory in (model, made):
        output = tmp_path / f"{directory.name}.jsonl"
        run("predict", directory, data, "-o", output)
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        assert [row["passes"] for row in rows] == [2] * 120
    if kind == "entities":
        assert all(entity["variance"] is not None for row in rows for entity in row["entities"])
        assert {entity["label"] for row in rows for entity in row["entities"]} == {"person", "place"}
    methods = ("--methods", "base,ensemble:members=2,ensemble:members=2+answers", "--resamples", 20)
    run("evaluate", model, "--data", data, *methods, "-o", tmp_path / "out")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["contenders"] == ["base", "ensemble:members=2", "ensemble:members=2+answers"]
    assert [results["methods"][name]["cost"] for name in results["contenders"]] == [1, 2, 2]
