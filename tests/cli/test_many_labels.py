"""calibrate and predict of a model of many labels, from the arguments to the files."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from transformers import BertTokenizer, PreTrainedModel

from uatlite import UncertaintyLabeler
from uatlite.cli import main
from uatlite.predictive import sigmoid
from uatlite.trust.search import RISKS

LABELS = ("anger", "joy", "fear")


def run(*arguments: object) -> int:
    """The exit code of `uatlite ARGUMENTS`."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., PreTrainedModel], tokenizer: BertTokenizer
) -> Path:
    directory = tmp_path_factory.mktemp("models") / "many"
    names = {"id2label": dict(enumerate(LABELS)), "label2id": {name: column for column, name in enumerate(LABELS)}}
    tiny("bert", problem_type="multi_label_classification", **names).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def data(model: Path, made_texts: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 labelled rows; one has an unknown label and one has no list of labels."""
    texts = made_texts(300)
    chances = sigmoid(UncertaintyLabeler.from_pretrained(model, "base").predict(texts).logits)
    drawn = np.random.default_rng(0).random(chances.shape) < chances
    rows = [{"text": text, "labels": [LABELS[at] for at in np.flatnonzero(row)]} for text, row in zip(texts, drawn)]  # noqa: B905
    rows[3]["labels"] = ["hope"]
    rows[5]["labels"] = None  # type: ignore[assignment]
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def calibrated(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("out") / "labeler"
    assert run("calibrate", model, data, "--target-precision", 0.5, "--method", "base", "-o", directory) == 0
    return directory


def test_calibrate_says_what_is_promised_and_lists_rejects(calibrated: Path) -> None:
    labeler = UncertaintyLabeler.from_pretrained(calibrated)
    assert labeler.calibration_ is not None
    assert labeler.calibration_.rows == 298
    assert labeler.calibration_.rule is not None
    reasons = [json.loads(line)["reason"] for line in (calibrated / "rejects.jsonl").read_text().splitlines()]
    assert "hope" in reasons[0]
    assert "no list of labels" in reasons[1]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_predict_writes_labels(suffix: str, calibrated: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / f"out.{suffix}"
    assert run("predict", calibrated, data, "-o", output) == 0
    if suffix == "jsonl":
        rows = [json.loads(line) for line in output.read_text().splitlines()]
    elif suffix == "parquet":
        rows = pq.read_table(output).to_pylist()
    else:
        with output.open() as file:
            rows = [{**row, "labels": json.loads(row["labels"])} for row in csv.DictReader(file)]
    texts = [json.loads(line)["text"] for line in data.read_text().splitlines()]
    expected = UncertaintyLabeler.from_pretrained(calibrated).predict(texts, check_shift=False)
    assert [tuple(row["labels"]) for row in rows] == expected.labels
    assert [float(row["p_joy"]) for row in rows] == pytest.approx(expected.probabilities[:, 1].tolist(), abs=1e-6)
    summary = json.loads((tmp_path / f"out.{suffix}.summary.json").read_text())
    assert summary["rows"] == 300
    assert summary["abstained"] == int(expected.abstain.sum())
    assert summary["shift"]["rows"] == 300
    assert summary["promise"].startswith("Report")


def test_a_resumed_run_gives_the_same_bytes(
    calibrated: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uatlite.scoring import run as scoring_run
    from uatlite.scoring.source import blocks

    monkeypatch.setattr(scoring_run, "blocks", lambda items: blocks(items, rows=64))
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    assert run("predict", calibrated, data, "-o", whole) == 0
    scored, seen = scoring_run.score_block, []

    def fail(*arguments: object) -> object:
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return scored(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(scoring_run, "score_block", fail)
    assert run("predict", calibrated, data, "-o", killed) != 0
    monkeypatch.setattr(scoring_run, "score_block", scored)
    assert run("predict", calibrated, data, "-o", killed, "--resume") == 0
    assert killed.read_bytes() == whole.read_bytes()


def test_the_menu_is_printed_and_kept(
    model: Path, data: Path, calibrated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("calibrate", model, data, "--method", "base", "--menu") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("risk  promise (confidence 0.95, ")
    assert "labelled texts, by log-odds)" in lines[0]
    assert len(lines) == len(RISKS) + 2
    directory = tmp_path / "with-menu"
    assert run("calibrate", model, data, "--method", "base", "--menu", "-o", directory) == 0
    stored = {one: UncertaintyLabeler.from_pretrained(one).calibration_ for one in (directory, calibrated)}
    assert stored[directory].menu.describe() == lines  # type: ignore[union-attr]
    assert stored[calibrated].menu is None  # type: ignore[union-attr]


def test_options_of_the_other_kind_are_refused(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("calibrate", model, data, "--target-risk", 0.1, "-o", tmp_path / "out") != 0
    assert "--target-precision" in capsys.readouterr().err
    assert run("calibrate", model, data, "--target-precision", 1.5, "-o", tmp_path / "out") != 0
    assert "target_precision=1.5" in capsys.readouterr().err


def test_review_shows_labels_and_doubts(
    calibrated: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.csv"
    assert run("predict", calibrated, data, "-o", output, "--review", 30) == 0
    with (tmp_path / "out.csv.review.csv").open() as file:
        reviewed = list(csv.DictReader(file))
    with output.open() as file:
        scored = {row["id"]: row for row in csv.DictReader(file)}
    assert len(reviewed) == 30
    for row in reviewed:
        said, doubt = (json.loads(scored[row["id"]][column]) for column in ("labels", "withheld"))
        assert row["label"] == ", ".join(said or [f"{name}?" for name in doubt])
    assert run("review", output, "-n", 2) == 0
