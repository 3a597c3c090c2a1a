"""A file of scores goes through every command of the loop, in an installation without PyTorch."""

import csv
import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from pyarrow import Table, parquet
from sklearn.linear_model import LogisticRegression

from reference import BLOCKED
from uatlite import wrap

CLASSES = ("cat", "dog", "eel")
COLUMNS = [f"p_{name}" for name in CLASSES]


def write(path, rows=400, seed=0):
    """A file of scores with texts and gold, and beside it embeddings; id -> gold."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (rows, 3))
    labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.save(path.with_suffix(".npy"), rng.normal(size=(rows, 4)) + np.eye(3, 4)[labels] * 3)
    gold = {f"row{i}": CLASSES[label] for i, label in enumerate(labels)}
    lines = [[id, f"text {id}", *row, name] for (id, name), row in zip(gold.items(), probs.tolist(), strict=True)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body", *COLUMNS, "gold"], *lines])
    return gold


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file) if path.suffix == ".csv" else map(json.loads, file))


@pytest.fixture
def calibrated(tmp_path, run):
    """The directory of a classifier by scores."""
    write(tmp_path / "old.csv")
    asked = ("--text", "body", "--label", "gold", "--target-risk", 0.2, "-o", tmp_path / "clf")
    done = run("calibrate", "--scores", tmp_path / "old.csv", *asked)
    assert "Scores: probabilities of 3 classes (p_cat, p_dog, p_eel)." in done.err
    return tmp_path / "clf"


@pytest.mark.parametrize("embeddings", [False, True])
def test_the_whole_loop_without_torch(tmp_path, embeddings):
    gold = [write(tmp_path / "old.csv"), write(tmp_path / "new.csv", rows=900, seed=1)][1]
    old, new = (f", '--embeddings', '{name}.npy'" if embeddings else "" for name in ("old", "new"))
    code = (
        BLOCKED.replace('"scipy", ', "")
        + f"""
import json, os
from uatlite.cli import main

def run(*arguments):
    try:
        main(arguments)
    except SystemExit as stop:
        assert not stop.code, (arguments, stop.code)

os.chdir({str(tmp_path)!r})
run(*"calibrate --scores old.csv --text body --label gold --target-risk 0.2 -o clf".split(){old})
run(*"predict clf --scores new.csv -o scored.csv --keep-text".split(){new})
run(*"review scored.csv -n 5 -o review.csv".split())
run(*"watch clf scored.csv -o watch.json --once".split())
run(*"pick scored.csv --budget 300 --random-share 0.9 -o labelled.jsonl".split())
rows = [json.loads(line) for line in open("labelled.jsonl")]
with open("labelled.jsonl", "w") as file:
    file.writelines(json.dumps(row | {{"label": {gold!r}[row["id"]]}}) + "\\n" for row in rows)
run(*"recheck clf labelled.jsonl".split())
run(*"recheck clf labelled.jsonl --update --target-risk 0.4".split())
run(*"history clf".split())
run(*"evaluate --scores old.csv --scores new.csv --label gold -o compared".split())
from uatlite.classifier.classifiers import load
from uatlite.serve.service import Service
Service(load("clf")).warm_up()
run(*"predict clf --scores new.csv -o again.csv".split(){new})
assert not {{"torch", "transformers", "sklearn", "pandas"}} & set(sys.modules)
"""
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for said in ("900 rows scored", "labelled answers are wrong, a risk of", "Version 2 is in use"):
        assert said in done.stderr
    rows, shown = rows_of(tmp_path / "scored.csv"), rows_of(tmp_path / "review.csv")
    answered = [row for row in rows if row["abstain"] == "false"]
    assert len(answered) / len(rows) > 0.3
    assert np.mean([row["label"] != gold[row["id"]] for row in answered]) < 0.2
    assert ("scope" in rows[0]) == embeddings
    assert "| answered at a promised risk of 20% | " in (tmp_path / "compared" / "scores.md").read_text()
    assert "|  | old.csv | new.csv |" in done.stdout
    assert list(shown[0])[:2] == ["id", "body"]
    assert {"logits", "embedding"} & set(shown[0]) == set()


def test_csv_parquet_and_packed_json_say_the_same(calibrated, tmp_path, run):
    write(tmp_path / "new.csv", rows=60, seed=2)
    rows = [{"id": row["id"]} | {name: float(row[name]) for name in COLUMNS} for row in rows_of(tmp_path / "new.csv")]
    parquet.write_table(Table.from_pylist(rows), tmp_path / "new.parquet")
    (tmp_path / "new.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    written = []
    for name in ("new.csv", "new.parquet", "new.jsonl.gz"):
        run("predict", calibrated, "--scores", tmp_path / name, "-o", tmp_path / f"{name}.out.jsonl")
        written.append(rows_of(tmp_path / f"{name}.out.jsonl"))
    assert written[0] == written[1] == written[2]
    assert len(written[0]) == 60


def test_what_is_wrong_is_one_sentence(calibrated, model_dir, tmp_path, run):
    seen, form, sums = (tmp_path / f"{name}.csv" for name in ("seen", "form", "sums"))
    seen.write_text("p_cat,p_dog,p_eel,p_fox\n0.5,0.5,0,0\n")
    form.write_text("logit_cat,logit_dog,logit_eel\n1,2,3\n")
    sums.write_text("p_cat,p_dog,p_eel,gold\n0.5,0.5,0.5,cat\n")
    predict = ("predict", calibrated, "-o", tmp_path / "out.csv", "--scores")
    calibrate = ("calibrate", "-o", tmp_path / "x", "--scores")
    for arguments, said in (
        ((*predict, seen), "'p_fox' is of a class that the calibration has never seen"),
        ((*predict, form), "or in another form, need a calibration of their own"),
        (predict[:-1], "give the rows: a file of texts, or --scores with a file of scores"),
        (("predict", model_dir, *predict[2:], sums), "this one reads texts"),
        ((*calibrate, sums, "--label", "gold"), "the probabilities sum to 1.5"),
        ((*calibrate, tmp_path / "old.csv", "--method", "uat"), "--method is not for a file of scores"),
        ((*calibrate, tmp_path / "old.csv", model_dir), "give a model and labelled rows, or --scores"),
        (("evaluate", "-o", tmp_path / "x"), "give a model, or --scores with the file of each model"),
        (("explain", calibrated, "a text"), "is a text, and this classifier reads rows of scores"),
    ):
        assert said in run(*arguments, code=2).said


def test_rejected_rows_are_listed_and_columns_may_stand_in_another_order(calibrated, tmp_path, run):
    (tmp_path / "new.csv").write_text("p_eel,p_cat,p_dog\n0.1,0.8,0.1\n0.1,nan,0.9\n0.9,0.9,0.1\n")
    done = run("predict", calibrated, "--scores", tmp_path / "new.csv", "-o", tmp_path / "out.jsonl")
    assert "in another order than at calibration; they are read by name" in done.err
    assert [row["label"] for row in rows_of(tmp_path / "out.jsonl")] == ["cat"]
    reasons = [row["reason"] for row in rows_of(tmp_path / "out.jsonl.rejects.jsonl")]
    assert reasons == ["the score of 'cat' is nan, not a finite number", "the probabilities sum to 1.9, not to 1"]


def test_embeddings_come_for_every_row_and_in_the_same_width(tmp_path, run):
    write(tmp_path / "old.csv")
    asked = ("--label", "gold", "--target-risk", 0.3, "-o", tmp_path / "clf", "--embeddings", tmp_path / "old.npy")
    assert "with embeddings of 4 numbers" in run("calibrate", "--scores", tmp_path / "old.csv", *asked).err
    write(tmp_path / "new.csv", rows=50, seed=3)
    predict = ("predict", tmp_path / "clf", "--scores", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "embeddings are given by --embeddings" in run(*predict, code=2).said
    given = (*predict, "--embeddings", tmp_path / "new.npy", "--overwrite")
    for rows, said in (
        (40, "has 40 rows, and the rows of scores are 41 or more"),
        (60, "are 50 or more; give one each"),
    ):
        np.save(tmp_path / "new.npy", np.zeros((rows, 4)))
        assert said in run(*given, code=2).said
    np.save(tmp_path / "new.npy", np.zeros((50, 5)))
    run(*given)
    assert (tmp_path / "out.csv.rejects.jsonl").read_text().count("5 numbers, and at calibration it had 4") == 50


def test_what_wrap_saved_decides_on_a_file_of_its_logits(tmp_path, run):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    y = np.array(CLASSES)[(x[:, :3] + rng.gumbel(size=(600, 3)) / 2).argmax(axis=1)]
    model = LogisticRegression().fit(x[:200], y[:200])
    clf = wrap(model).calibrate(x[200:500], y[200:500], target_errors=0.15)
    clf.save_pretrained(tmp_path / "clf")
    logits = model.predict_log_proba(x[500:]).tolist()
    new = [{"id": i, "logits": logits[i], "embedding": x[500 + i].tolist()} for i in range(100)]
    (tmp_path / "new.jsonl").write_text("\n".join(map(json.dumps, new)))
    run("predict", tmp_path / "clf", "--scores", tmp_path / "new.jsonl", "-o", tmp_path / "out.csv")
    pred = clf.predict(x[500:])
    decided = rows_of(tmp_path / "out.csv")
    assert [row["label"] for row in decided] == pred.labels.tolist()
    assert [row["abstain"] == "true" for row in decided] == pred.abstain.tolist()
    assert 0 < pred.abstain.sum() < 100
