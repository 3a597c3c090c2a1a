"""The commands report and train: what they hand on, what they say, and their errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from uatlite.cli.calibrate import calibrate
from uatlite.cli.evaluate import report
from uatlite.cli.predict import predict
from uatlite.cli.train import train
from uatlite.errors import ConfigurationError, DataError, StoreError

app = typer.Typer(pretty_exceptions_enable=False)
for command in (calibrate, predict, report, train):
    app.command()(command)


def run(*arguments: str, succeeds: bool = True) -> Result:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=not succeeds)
    assert (result.exit_code == 0) == succeeds, result.output
    return result


def test_train_writes_a_classifier_of_the_task(model_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "sst2").mkdir(parents=True)
    rows = [{"text": f"w{place} w{place % 7}", "label": ("negative", "positive")[place % 2]} for place in range(20)]
    for name in ("train", "dev"):
        (data / "sst2" / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    result = run(
        "train", "--task", "sst2", "--backbone", str(model_dir), "-o", str(tmp_path / "out"), "--data-dir", str(data),
        "--epochs", "2", "--warmup-steps", "0", "--patience", "1",
    )  # fmt: skip
    record = json.loads((tmp_path / "out" / "uatlite-training.json").read_text())
    assert record["run"]["recipe"]["learning_rate"] == 2e-5
    assert record["rows"] == 20
    assert f"{record['steps']} steps over 20 rows" in " ".join(result.stderr.split())
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == {"0": "negative", "1": "positive"}


def test_train_takes_a_users_own_file_and_calibrate_and_predict_go_on(
    model_dir: Path, reviews: Path, tmp_path: Path
) -> None:
    model, classifier, scored = tmp_path / "model", tmp_path / "classifier", tmp_path / "scored.jsonl"
    result = run(
        "train", "--data", str(reviews), "--text", "body", "--label", "stars", "--backbone", str(model_dir),
        "--recipe", "demo", "--held-out", "0.4", "-o", str(model),
    )  # fmt: skip
    assert "2 steps over 60 rows" in result.stderr
    assert f"40 rows were held out. Calibrate on them: uatlite calibrate {model}" in result.stderr
    classes = json.loads((model / "config.json").read_text())["id2label"]
    assert classes == {"0": "negative", "1": "neutral", "2": "positive"}
    columns = ("--text", "body")
    run("calibrate", str(model), str(model / "held-out.jsonl"), *columns, "--label", "stars", "-o", str(classifier))
    run("predict", str(classifier), str(reviews), *columns, "-o", str(scored))
    labels = {json.loads(line)["label"] for line in scored.read_text().splitlines()}
    assert labels <= {"negative", "neutral", "positive"}


def test_a_missing_column_is_an_error_before_the_weights_are_loaded(
    reviews: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "uatlite.lab.train.fine_tune.with_new_head", lambda *_, **__: pytest.fail("weights were loaded")
    )
    result = run("train", "--data", str(reviews), "--label", "stars", "-o", str(tmp_path / "out"), succeeds=False)
    assert isinstance(result.exception, DataError)
    assert str(result.exception) == "There is no column 'text'; the columns are: body, stars."
    assert not (tmp_path / "out").exists()


def test_an_unknown_recipe_lists_those_that_there_are(tmp_path: Path) -> None:
    result = run("train", "--task", "sst2", "-o", str(tmp_path), "--recipe", "papr", succeeds=False)
    assert isinstance(result.exception, ConfigurationError)
    assert str(result.exception) == "recipe='papr' is not one of: paper, demo, few-rows. Did you mean 'paper'?"


def test_report_hands_its_options_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def build_report(store: Path, output: Path, **options: Any) -> Path:
        seen.update(store=store, output=output, **options)
        return output / "report.html"

    monkeypatch.setattr("uatlite.lab.report.evaluation_page.build_report", build_report)
    result = run("report", str(tmp_path / "store"), "--method", "uat+ts", "--target-risk", "0.2")
    assert seen["output"] == seen["store"] == tmp_path / "store"  # no results beside it: not a store of ours
    assert (seen["contender"], seen["target_risk"]) == ("uat+ts", 0.2)
    assert "report.html" in "".join(result.stderr.split())


def test_a_directory_without_results_is_an_error(tmp_path: Path) -> None:
    result = run("report", str(tmp_path), succeeds=False)
    assert isinstance(result.exception, StoreError)
