"""A file of scores goes through every command of the loop, in an installation without PyTorch."""

import csv
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest

from reference import BLOCKED

CLASSES = ("cat", "dog", "eel")
WIDTH = 4


def write(path, rows=400, seed=0, form="p", embeddings=False, texts=True):
    """A file of scores with gold, with a text and the embedding beside it if asked for; the extension says which."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (rows, 3))
    labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    values = {"p": probs, "logit": logits}[form]
    lines = [
        {"id": f"row{i}"}
        | ({"body": f"text number {i}"} if texts else {})
        | {f"{form}_{name}": value for name, value in zip(CLASSES, values[i].tolist(), strict=True)}
        | {"gold": CLASSES[labels[i]]}
        for i in range(rows)
    ]
    vectors = rng.normal(size=(rows, WIDTH)) + np.eye(3, WIDTH)[labels] * 3
    if embeddings:
        np.save(path.with_suffix(".npy"), vectors.astype(np.float32))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(lines)
    return {line["id"]: line["gold"] for line in lines}


@pytest.fixture
def calibrated(tmp_path, run):
    """The directory of a classifier by scores."""
    write(tmp_path / "old.csv")
    asked = ("--text", "body", "--label", "gold", "--target-risk", 0.2, "-o", tmp_path / "clf")
    assert (
        "Scores: probabilities of 3 classes (p_cat, p_dog, p_eel)."
        in run("calibrate", "--scores", tmp_path / "old.csv", *asked).err
    )
    return tmp_path / "clf"


@pytest.mark.parametrize("embeddings", [False, True])
def test_the_whole_loop_without_torch(tmp_path, embeddings):
    write(tmp_path / "old.csv", embeddings=embeddings)
    gold = write(tmp_path / "new.csv", rows=900, seed=1, embeddings=embeddings)
    files = {name: ["--embeddings", str(tmp_path / f"{name}.npy")] if embeddings else [] for name in ("old", "new")}
    code = (
        BLOCKED.replace('"scipy", ', "")
        + f"""
import csv, json, os
from uatlite.cli import main

def run(*arguments):
    try:
        main(arguments)
    except SystemExit as stop:
        assert not stop.code, (arguments, stop.code)

os.chdir({str(tmp_path)!r})
run("calibrate", "--scores", "old.csv", "--text", "body", "--label", "gold", "--target-risk", "0.2", "-o", "clf",
    *{files["old"]!r})
run("predict", "clf", "--scores", "new.csv", "-o", "scored.csv", "--keep-text", *{files["new"]!r})
run("review", "scored.csv", "-n", "5", "-o", "review.csv")
run("watch", "clf", "scored.csv", "-o", "watch.json", "--once")
run("pick", "scored.csv", "--budget", "300", "--random-share", "0.9", "-o", "labelled.jsonl")
gold = {gold!r}
rows = [json.loads(line) for line in open("labelled.jsonl")]
with open("labelled.jsonl", "w") as file:
    file.writelines(json.dumps(row | {{"label": gold[row["id"]]}}) + "\\n" for row in rows)
run("recheck", "clf", "labelled.jsonl")
run("recheck", "clf", "labelled.jsonl", "--update", "--target-risk", "0.4")
run("history", "clf")
run("predict", "clf", "--scores", "new.csv", "-o", "again.csv", *{files["new"]!r})
assert not {{"torch", "transformers", "sklearn", "pandas"}} & set(sys.modules)
"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "900 rows scored" in done.stderr
    assert "labelled answers are wrong, a risk of" in done.stderr
    assert "Version 2 is in use" in done.stderr
    rows = list(csv.DictReader((tmp_path / "scored.csv").open()))
    answered = [row for row in rows if row["abstain"] == "false"]
    assert len(answered) / len(rows) > 0.3
    assert np.mean([row["label"] != gold[row["id"]] for row in answered]) < 0.2
    assert ("scope" in rows[0]) == embeddings
    shown = list(csv.DictReader((tmp_path / "review.csv").open()))
    assert list(shown[0])[:2] == ["id", "body"]
    assert {"logits", "embedding"} & set(shown[0]) == set()


def test_rows_stream_and_parquet_is_read(calibrated, tmp_path, run, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    write(tmp_path / "new.csv", rows=60, seed=2)
    rows = list(csv.DictReader((tmp_path / "new.csv").open()))
    numbers = [{name: float(row[f"p_{name}"]) for name in CLASSES} for row in rows]
    columns = {f"p_{name}": [row[name] for row in numbers] for name in CLASSES}
    parquet.write_table(pa.table({"id": [row["id"] for row in rows], **columns}), tmp_path / "new.parquet")
    lines = "".join(json.dumps({"id": row["id"], **{n: float(row[n]) for n in columns}}) + "\n" for row in rows)
    (tmp_path / "new.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("new.csv", "new.parquet", "new.jsonl.gz"):
        run("predict", calibrated, "--scores", tmp_path / name, "-o", tmp_path / f"{name}.out.jsonl")
    written = [
        [json.loads(line) | {"logits": None} for line in (tmp_path / f"{name}.out.jsonl").open()]
        for name in ("new.csv", "new.parquet", "new.jsonl.gz")
    ]
    assert written[0] == written[1] == written[2]
    assert len(written[0]) == 60


def test_what_is_wrong_is_one_sentence(calibrated, model_dir, tmp_path, run):
    for name, header in (
        ("seen", "p_cat,p_dog,p_eel,p_fox"),
        ("form", "logit_cat,logit_dog,logit_eel"),
        ("sums", "p_cat,p_dog,p_eel"),
    ):
        cells = ",".join(["0.5"] * len(header.split(",")))
        (tmp_path / f"{name}.csv").write_text(f"{header},gold\n{cells},cat\n")
    target = ("-o", tmp_path / "out.csv")
    predict, calibrate = ("predict", calibrated, *target, "--scores"), ("calibrate", "-o", tmp_path / "x", "--scores")
    for arguments, said in (
        ((*predict, tmp_path / "seen.csv"), "'p_fox' is of a class that the calibration has never seen"),
        ((*predict, tmp_path / "form.csv"), "or in another form, need a calibration of their own"),
        (predict[:-1], "give the rows: a file of texts, or --scores with a file of scores"),
        (("predict", model_dir, *predict[2:], tmp_path / "sums.csv"), "this one reads texts"),
        ((*calibrate, tmp_path / "sums.csv", "--label", "gold"), "the probabilities sum to 1.5"),
        ((*calibrate, tmp_path / "old.csv", "--method", "uat"), "--method is not for a file of scores"),
        ((*calibrate, tmp_path / "old.csv", model_dir), "give a model and labelled rows, or --scores"),
        (("explain", calibrated, "a text"), "is a text, and this classifier reads rows of scores"),
    ):
        assert said in run(*arguments, code=2).said


def test_rejected_rows_are_listed_and_columns_may_stand_in_another_order(calibrated, tmp_path, run):
    rows = ["p_eel,p_cat,p_dog", "0.1,0.8,0.1", "0.1,nan,0.9", "0.9,0.9,0.1"]
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n")
    done = run("predict", calibrated, "--scores", tmp_path / "new.csv", "-o", tmp_path / "out.jsonl")
    assert "in another order than at calibration; they are read by name" in done.err
    assert "1 row scored" in done.err
    assert json.loads((tmp_path / "out.jsonl").read_text())["label"] == "cat"
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "out.jsonl.rejects.jsonl").open()]
    assert reasons == ["the score of 'cat' is nan, not a finite number", "the probabilities sum to 1.9, not to 1"]


def test_embeddings_come_for_every_row_and_in_the_same_width(tmp_path, run):
    write(tmp_path / "old.csv", embeddings=True)
    asked = ("--label", "gold", "--target-risk", 0.3, "-o", tmp_path / "clf", "--embeddings", tmp_path / "old.npy")
    assert "with embeddings of 4 numbers" in run("calibrate", "--scores", tmp_path / "old.csv", *asked).err
    write(tmp_path / "new.csv", rows=50, seed=3)
    predict = ("predict", tmp_path / "clf", "--scores", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "embeddings are given by --embeddings" in run(*predict, code=2).said
    for vectors, said in (
        (np.zeros((40, 4)), "has 40 rows, and the rows of scores are 41 or more; give one each"),
        (np.zeros((60, 4)), "has 60 rows, and the rows of scores are 50 or more"),
    ):
        np.save(tmp_path / "new.npy", vectors)
        assert said in run(*predict, "--embeddings", tmp_path / "new.npy", code=2).said
    np.save(tmp_path / "new.npy", np.zeros((50, 5)))
    run(*predict, "--embeddings", tmp_path / "new.npy", "--overwrite")
    reasons = (tmp_path / "out.csv.rejects.jsonl").read_text()
    assert reasons.count("embedding has 5 numbers, and at calibration it had 4") == 50
