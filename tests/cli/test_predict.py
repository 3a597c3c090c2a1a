"""calibrate, predict and export of one class a text: columns, messages, errors and what is only for this kind."""

import csv
import io
import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from uatlite import __version__
from uatlite.classifier.display import ABSTAINING
from uatlite.classifier.saving import read
from uatlite.cli.predict import ScoringBar, as_table
from uatlite.scoring.job import Tally
from uatlite.text.files import open_bytes

COLUMNS = ("--text", "body", "--label", "stars", "--label-order", "bad,fair,good")


@pytest.fixture(scope="module")
def model(model_of):
    """A saved tiny model whose classes have no names."""
    return model_of("unnamed")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """180 labelled rows, one of them without a text."""
    generator = np.random.default_rng(0)
    rows = [
        {"body": " ".join(f"a{word}" for word in generator.integers(0, 56, size=8)), "stars": name}
        for name in generator.choice(["bad", "fair", "good"], size=180)
    ]
    rows[7]["body"] = ""
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def calibrated(model, data, tmp_path_factory, exit_code):
    directory = tmp_path_factory.mktemp("out") / "calibrated"
    rule = ("--review-share", 0.3, "--method", "base")
    assert exit_code("calibrate", model, data, "-o", directory, *COLUMNS, *rule) == 0
    return directory


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_columns_of_calibration_are_remembered(calibrated, data, tmp_path, run, monkeypatch):
    assert json.loads((calibrated / "uatlite.json").read_text())["columns"] == {"text": "body", "label": "stars"}
    named, known, piped = (tmp_path / f"{name}.jsonl" for name in ("named", "known", "piped"))
    run("predict", calibrated, data, "-o", named, "--text", "body")
    run("predict", calibrated, data, "-o", known)
    assert known.read_bytes() == named.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data.read_bytes())))
    run("predict", calibrated, "-", "-o", piped)
    assert len(rows_of(piped)) == len(rows_of(known))
    neither = tmp_path / "neither.jsonl"
    neither.write_text(json.dumps({"words": "a1 a2"}) + "\n")
    done = run("predict", calibrated, neither, "-o", tmp_path / "no.jsonl", code=2)
    assert "There is no column 'body'; the columns are: words" in done.err


def test_every_command_reads_the_columns_of_calibration(calibrated, data, tmp_path, run):
    """evaluate, export, int8 with calibration, calibrate; and scored files of a directory, for pick and review."""
    texts = "On 179 texts logits differ"
    asked = ("--methods", "base,ts", "--resamples", 20, "--limit", 20)
    run("evaluate", calibrated, "--data", rows_with_text(data, tmp_path), *asked, "-o", tmp_path / "eval")
    assert texts in run("export", calibrated, "--texts", data, "-o", tmp_path / "fp32").err
    said = run("export", calibrated, "--int8", "--calibrate", data, "-o", tmp_path / "int8").err
    assert texts in said
    assert "of 1,000 texts to review" in said  # as the classifier
    assert f"1 row rejected; line numbers and reasons are in {tmp_path / 'int8' / 'rejects.jsonl'}" in said
    before, after = (read(directory) for directory in (calibrated, tmp_path / "int8"))
    assert (after.columns, after.calibration.asked) == (before.columns, before.calibration.asked)
    assert after.calibration.calibrator.name == "temperature"
    run("calibrate", tmp_path / "int8", data, "--review-share", 0.5, "-o", tmp_path / "again")
    assert read(tmp_path / "again").columns == before.columns
    (tmp_path / "scored").mkdir()
    for name in ("monday.csv", "tuesday.csv"):  # with rejected rows beside them
        run("predict", calibrated, data, "-o", tmp_path / "scored" / name, "--review", 3)
    run("pick", tmp_path / "scored", "--budget", 300, "-o", tmp_path / "to_label.jsonl")
    assert len(rows_of(tmp_path / "to_label.jsonl")) == 300  # of both files
    assert "body" in run("review", tmp_path / "scored").out


def rows_with_text(data, directory):
    """The rows of a file that have a text."""
    path = directory / "good.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(data) if row["body"]))
    return path


def test_the_id_stands_once(calibrated, tmp_path, run):
    (tmp_path / "in.csv").write_text("id,body\n7,a1 a2\n")
    run("predict", calibrated, tmp_path / "in.csv", "-o", tmp_path / "out.jsonl", "--keep", "id")
    (row,) = rows_of(tmp_path / "out.jsonl")
    assert (row["id"], "input_id" in row) == ("7", False)
    other = ("--id", "body", "--keep", "id", "--overwrite")
    assert "1 row scored" in run("predict", calibrated, tmp_path / "in.csv", "-o", tmp_path / "out.jsonl", *other).err
    (row,) = rows_of(tmp_path / "out.jsonl")
    assert (row["id"], row["input_id"]) == ("a1 a2", "7")


def test_the_input_and_what_was_saved_are_read_once(calibrated, data, run, tmp_path, counted):
    opened, states = counted(open_bytes), counted(read)
    run("predict", calibrated, data, "-o", tmp_path / "out.jsonl")
    assert ([Path(name).name for name in opened], len(states)) == ([data.name], 1)


@pytest.mark.parametrize("state", ["[]", '{"columns": 3}', "{"])
def test_a_broken_state_is_an_error_in_a_sentence(state, calibrated, data, tmp_path, run):
    broken = tmp_path / "broken"
    shutil.copytree(calibrated, broken)
    (broken / "uatlite.json").write_text(state)
    assert "is broken" in run("predict", broken, data, "--text", "body", "-o", tmp_path / "out.jsonl", code=2).err


def test_predict_then_review(calibrated, data, tmp_path, run):
    out, reviewed = tmp_path / "out.parquet", tmp_path / "out.parquet.review.csv"
    asked = ("--text", "body", "--keep", "stars,body", "--review", 5)
    assert f"Wrote {out}, {reviewed.name} and " in run("predict", calibrated, data, "-o", out, *asked).err
    rows = list(csv.DictReader(reviewed.open()))
    assert list(rows[0]) == ["id", "body", "stars", "label", "confidence", "reason", "why"]
    assert len(rows) == 5
    assert all(row["reason"] in ABSTAINING for row in rows)
    assert rows[2]["id"] in run("review", out, "-n", 3).out
    again = tmp_path / "again.csv"
    run("review", out, "-n", 5, "-o", again)
    assert again.read_bytes() == reviewed.read_bytes()
    assert "--overwrite" in run("review", out, "-o", again, code=2).err


def test_a_row_with_many_entities_leaves_room_for_its_text_and_the_reason():
    row = {"id": "rows.jsonl:7", "label": "London place, " * 12, "confidence": 0.5, "why": "0.4 below the threshold"}
    screen = io.StringIO()
    Console(file=screen, width=80).print(as_table([row | {"text": "Ada Lovelace lived in London."}]))
    shown = " ".join(screen.getvalue().split())
    for words in ("rows.jsonl:7", "50.0%", "why", "below", "text", "Lovelace"):
        assert words in shown


def test_rows_that_cannot_be_used_are_told_where_the_others_are_too_few(model, tmp_path, run):
    few = tmp_path / "few.csv"
    few.write_text("body,stars\na1 a2,bad\n,good\n,fair\na3,good\n")
    said = run("calibrate", model, few, *COLUMNS, "--method", "base", "-o", tmp_path / "c", code=2).err
    assert "2 labelled rows are too few" in said
    assert "2 rows rejected, the first: few.csv, line 3: no text in column 'body'" in said


def test_a_classifier_that_promises_nothing_says_so_first(model, data, tmp_path, run):
    given = ("--method", "base", "--target-risk", 0.001)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what the command says is not said again by a Python warning
        calibrated = run("calibrate", model, data, *COLUMNS, *given, "-o", tmp_path / "c", code=5).err
    exported = run("export", tmp_path / "c", "--int8", "--calibrate", data, "-o", tmp_path / "int8", code=5).err
    assert calibrated.startswith(f"No promise: {tmp_path / 'c'} answers nothing. Abstain on all: ")
    assert f"No promise: {tmp_path / 'int8'} answers nothing. Abstain on all: " in exported
    assert "cannot promise a risk of 0.10% with confidence 0.95: even " in calibrated.splitlines()[0]
    assert calibrated.splitlines()[-1] == f"Wrote {tmp_path / 'c'}, which answers nothing"
    for said in (calibrated, exported):
        assert said.count("Abstain on all") == 1
        assert "Instead they can promise: Answer" in said
        assert "UserWarning" not in said
    said = run("predict", tmp_path / "c", data, "--text", "body", "-o", tmp_path / "out.csv").err
    assert said.startswith("No row is answered. Abstain on all: ")
    assert "179 abstained (100.0%): 179 no promise" in said


def test_the_version(run):
    assert run("--version") == (0, f"uatlite {__version__}\n", "")


def test_a_shift_is_warned_of(calibrated, tmp_path, run):
    (tmp_path / "odd.csv").write_text("text\n" + "a3 a3 a3\n" * 50)
    told = run("predict", calibrated, tmp_path / "odd.csv", "-o", tmp_path / "out.csv").err
    assert "The data have shifted" in told
    assert "Over these 50 rows: p = " in told
    few = tmp_path / "few.csv"
    few.write_text("text\na1 a2\n")
    told = run("predict", calibrated, few, "-o", tmp_path / "few.jsonl").err
    assert "Too few rows to tell a shift: none is answered, promised at most " in told
    assert "Over this row: it takes 20 rows to tell." in told


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("predict MODEL DATA -o OUT.csv", "There is no column 'text'; the columns are: body, stars."),
        ("predict CAL DATA -o OUT.csv --text body --strict", "line 8: no text in column 'body'"),
        ("predict CAL DATA -o OUT.csv --text body --method uat", "calibrated with method base"),
        ("predict CAL nowhere.csv -o OUT.csv", "nowhere.csv does not exist"),
        ("predict CAL /dev/null -o OUT.csv --format csv", "/dev/null is empty: it has no row"),
        ("predict no/such/model DATA -o OUT.csv --text body", "is not a directory"),
        ("predict no/such/model DATA -o OUT.csv", "is not a directory"),  # before a column is looked for
        ("predict DIR DATA -o OUT.csv", "is not a directory"),
        ("export CAL -o DIR --reference DATA", "--reference is not for an export without --calibrate"),
        ("export CAL -o DIR --texts DATA --text bdy", "There is no column 'bdy'"),
        ("predict CAL DATA -o OUT.doc --text body", "is not one of: jsonl, csv, parquet"),
        (
            "predict CAL DATA -o OUT.csv --text body --keep stars,bdy",
            "There is no column 'bdy'; the columns are: body, stars. Did you mean 'body'?",
        ),
        ("predict CAL DATA -o OUT.csv --text body --id nr", "There is no column 'nr'"),
        ("predict CAL DATA -o OUT.csv --text body --review 3 --no-keep-text", "choose one of them"),
        ("review DATA", "is not what 'uatlite predict' writes; its columns are: body, stars"),
        ("calibrate MODEL DATA -o DIR --text body --label strs", "There is no column 'strs'"),
        ("calibrate MODEL DATA -o DIR --text body --label stars", "--label-order"),
        ("calibrate MODEL DATA -o CAL", "is not empty"),
        ("calibrate MODEL DATA --text body --label stars", "-o DIR"),
        ("calibrate MODEL DATA -o DIR --label-order a,b", "are not 3 different names"),
    ],
)
def test_an_error_is_one_sentence_and_exit_code_2(command, message, model, calibrated, data, tmp_path, run):
    names = {"CAL": calibrated, "MODEL": model, "DATA": data, "DIR": tmp_path / "dir"}
    given = [tmp_path / word if word.startswith("OUT") else names.get(word, word) for word in command.split()]
    told = run(*given, code=2).err
    assert told.startswith("Error: ")
    assert message in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "OUT.csv").exists()
    assert not (tmp_path / "dir").exists()


def test_an_uncalibrated_model_is_named_so(model, tmp_path, run):
    (tmp_path / "in.tsv").write_text("text\na1 a2\na3\n")
    asked = ("-o", tmp_path / "out.parquet", "--method", "base")
    assert "Not calibrated" in run("predict", model, tmp_path / "in.tsv", *asked).err


def test_sites_lists_every_site(model, run):
    told = run("sites", model).out
    assert "bert.embeddings.dropout" in told
    assert "8 sites. 2 are functional" in told


def test_the_bar_says_rows_speed_and_shares():
    with ScoringBar(Console(force_terminal=True, file=io.StringIO()), 114) as bar:
        bar.show(Tally(rows=60, rejected=4, abstained=15))
        (task,) = bar.tasks
        assert (task.completed, task.fields["note"]) == (64, "0 rows/s, 25.0% abstained, 4 rejected")


def test_a_second_look_is_told_and_stands_in_the_rows(model, data, tmp_path, run):
    given = ("calibrate", model, data, *COLUMNS, "--review-share", 0.4, "--second-look", "uat:samples=3")
    told = run(*given, "-o", tmp_path / "twice").err
    assert "get a second look by uat:samples=3 (calibrated on " in told
    run("predict", tmp_path / "twice", data, "-o", tmp_path / "scored.jsonl")
    looked = {(row["abstain"], row["second_label"] is not None) for row in rows_of(tmp_path / "scored.jsonl")}
    assert looked == {(True, True), (False, False)}


def test_reference_texts_and_promises_for_each_class(model, data, tmp_path, run):
    reference = tmp_path / "texts.csv"
    generator = np.random.default_rng(1)
    lines = [" ".join(f"a{word}" for word in generator.integers(0, 56, size=8)) for _ in range(90)]
    reference.write_text("body\n" + "\n".join(lines) + "\n")
    given = ("calibrate", model, data, *COLUMNS, "--target-risk", 0.9, "--per-class", "--reference", reference, "-o")
    assert "90 reference texts" in run(*given, tmp_path / "c").err
    state = json.loads((tmp_path / "c/uatlite.json").read_text())["calibration"]
    assert [one["name"] for one in state["rules"][0]["per_kind"]] == ["bad", "fair", "good"]
    assert state["scope"]["reference_rows"] == 90
    reference.write_text("other\nx\n")
    assert "body" in run(*given, tmp_path / "d", code=2).err


def test_export_then_predict(saved, tmp_path, run):
    rows = tmp_path / "rows.jsonl"
    lines = [{"text": f"a{n % 50} a{n % 7} a{n % 11}", "label": ("bad", "fair", "good")[n % 3]} for n in range(60)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "out"
    said = run("export", saved, "-o", out, "--method", "base", "--texts", rows, "--int8").err
    assert "On 60 texts logits differ from PyTorch's by" in said
    assert "Not calibrated" in said
    run("predict", out, rows, "-o", tmp_path / "scored.jsonl")
    assert len(rows_of(tmp_path / "scored.jsonl")) == 60
    blind = run("predict", out, rows, "-o", tmp_path / "tokens.jsonl", "--tokens", code=2)
    assert "does not show its token uncertainty" in blind.err
    assert not list(tmp_path.glob("tokens.jsonl*"))
    assert "is not empty" in run("export", saved, "-o", out, "--method", "base", code=2).err


def test_what_cannot_be_exported_is_refused(saved, tmp_path, run):
    to = ("-o", tmp_path / "out")
    assert "the method uat:samples=2 needs more than one plain pass" in run("export", saved, *to, code=2).err
    run("export", saved, *to, "--texts", tmp_path / "nothing.csv", code=2)
    run("export", tmp_path / "nothing", *to, code=2)
    assert not (tmp_path / "out").exists()


def test_costs_from_a_file(model_dir, reviews, run, tmp_path):
    table, asked = tmp_path / "costs.csv", ("calibrate", model_dir, reviews, "--text", "body", "--label", "stars")
    rows = ["true,negative,neutral,positive,review", "negative,0,4,12,1", "neutral,2,0,4,1", "positive,3,1,0,2"]
    table.write_text("\n".join(rows))
    said = run(*asked, "--costs", table, "-o", tmp_path / "clf", "--method", "base").err
    assert "Answer where that is expected to cost less than a review: " in said
    assert "the threshold that is best in hindsight" in said
    done = run("predict", tmp_path / "clf", reviews, "--text", "body", "-o", tmp_path / "out.jsonl")
    assert "rows scored" in done.err
    faults = {
        "'negative' where 'positive' is true is missing": rows[:3],
        "'positive' where 'negative' is true is '-12'; give a number, 0 or more": [*rows[:1], "negative,0,4,-12,1"],
        "it names the true class": [row.partition(",")[2] for row in rows],
        "line 3: no class, or the same again": [*rows[:2], rows[1]],
        "class in the table of costs='fine' is not one of": [*rows, "fine,1,1,1,1"],
        "'review' where 'negative' is true is missing": [row.rpartition(",")[0] for row in rows],
    }
    for fault, lines in faults.items():
        table.write_text("\n".join(lines))
        assert fault in run(*asked, "--costs", table, "-o", tmp_path / "x", code=2).err
    assert "does not exist" in run(*asked, "--costs", tmp_path / "no.csv", "-o", tmp_path / "x", code=2).err
