"""The product's commands over every kind of answer, from the arguments to the files; and what each kind refuses."""

import csv
import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from uatlite import load
from uatlite.scoring.scored_rows import ScoredRow
from uatlite.text.gold import tags_of_spans
from uatlite.text.write import write_rows
from uatlite.trust.all_texts import REVIEW_SHARES
from uatlite.trust.planners import RISKS
from uatlite.values import Choices, Kind, Span, Text, Words

ROWS = 240
NAMES = {"one": ("bad", "fair", "good"), "labels": ("anger", "joy", "fear")}
ENTITY = ["start", "end", "text", "label", "confidence", "boundaries", "variance", "reported"]


class Case(NamedTuple):
    """What a kind is tested with."""

    columns: str
    """options that name the columns"""
    asked: str
    """options of calibrate"""
    broken: dict[str, object]
    """the gold of a row that cannot be used"""
    reason: str
    """why it cannot"""
    refused: dict[str, str]
    """options of calibrate that are refused, and the message"""
    first: str
    """the first columns of the output after the id and the text"""


FIRST = "label abstain reason above_threshold confidence"
CASES = {
    "one": Case(
        columns="",
        asked="--target-risk 0.5",
        broken={"label": "hope"},
        reason="unknown label 'hope'",
        refused={
            "--target-recall 0.5": "--target-recall is not for a model of one class a text; use --target-risk,",
            "--label-sets 1.5": "=1.5 is not between 0 and 1",
        },
        first=FIRST,
    ),
    "choice": Case(
        columns="--options options",
        asked="--review-share 0.3",
        broken={"label": 7},
        reason="the label is option 8 of 3",
        refused={"--target-errors 0.001": "takes 2995 labelled texts without an error"},
        first=FIRST,
    ),
    "labels": Case(
        columns="",
        asked="--target-risk 0.5",
        broken={"labels": None},
        reason="no list of labels",
        refused={
            "--per-class": "--per-class is not for a model of many labels; use --target-risk or --target-errors",
            "--target-risk 1.5": "target_risk=1.5",
        },
        first="labels abstain withheld reason above_threshold confidence",
    ),
    "entities": Case(
        columns="",
        asked="--target-risk 0.5 --target-recall 0.2",
        broken={"tags": ["B-person"]},
        reason="1 tag for",
        refused={"--review-share 0.5": "--review-share is not for a model of entities; use --target-risk,"},
        first="entities abstain reason above_threshold confidence log_odds missed missed_at",
    ),
}
FORMATS = pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])


@dataclass(frozen=True)
class Made:
    """A model of a kind, labelled rows, and what `calibrate` made of them."""

    kind: Kind
    case: Case
    model: Path
    data: Path
    texts: list[Text]
    directory: Path


def gold_of(kind, place, row):
    """Mostly what the model says, so that something can be promised."""
    wrong = place % 10 == 0
    if kind == "entities":
        words = row.values["words"]
        spans = [] if wrong else [Span(entity["start"], entity["end"], entity["label"]) for entity in row.answer]
        return {"tags": tags_of_spans(words.spans, spans)}
    if kind == "labels":
        chances = np.array([row.values[f"p_{name}"] for name in NAMES["labels"]])
        drawn = np.random.default_rng(place).random(len(chances)) < chances
        return {"labels": [name for name, yes in zip(NAMES["labels"], drawn, strict=True) if yes]}
    names = NAMES.get(kind, ("A", "B", "C"))
    return {"label": names[(names.index(row.answer) + wrong) % 3]}


@pytest.fixture(scope="session", params=CASES)
def of(request, model_of, made_texts, tmp_path_factory, exit_code):
    """A model of each kind in turn; two of its rows cannot be used."""
    kind = request.param
    case, home, model = CASES[kind], tmp_path_factory.mktemp(kind), model_of(kind)
    texts = [of_kind(kind, text) for text in made_texts(ROWS)]
    said = load(model, method="base").predict(texts)
    lines = []
    for place, (text, row) in enumerate(zip(texts, said.rows(), strict=True)):
        gold = gold_of(kind, place, ScoredRow(row | {"words": text}))
        lines.append({"id": f"r{place}", **columns_of(text), **(case.broken if place in (3, 5) else gold)})
    data = jsonl(home / "rows.jsonl", lines)
    arguments = (*case.columns.split(), *case.asked.split(), "--method", "base", "-o", home / "made")
    assert exit_code("calibrate", model, data, *arguments) == 0
    return Made(kind, case, model, data, texts, home / "made")


def of_kind(kind, text):
    words = (*text.split(), "a1", "a2")
    if kind == "entities":
        return Words(words)
    return Choices(text, (" ".join(words[:2]), " ".join(words[1:3]), "a7")) if kind == "choice" else text


def columns_of(text):
    if isinstance(text, Words):
        return {"tokens": list(text.tokens)}
    return {"text": text.question, "options": list(text.options)} if isinstance(text, Choices) else {"text": text}


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_calibrate_learns_from_rows_and_lists_rejects(of):
    product = load(of.directory)
    calibration = product.calibration_
    assert calibration.rows == ROWS - 2
    assert len(calibration.rules) == (2 if of.kind == "entities" else 1)
    assert all(rule.promised for rule in calibration.rules)
    rejects = rows_of(of.directory / "rejects.jsonl")
    assert [reject["line"] for reject in rejects] == [4, 6]
    for reject in rejects:
        assert of.case.reason in reject["reason"]
    assert json.loads((of.directory / "uatlite.json").read_text())["kind"] == product.kind.name == of.kind


@FORMATS
def test_predict_writes_what_python_says(of, suffix, run, tmp_path):
    output = tmp_path / f"out.{suffix}"
    done, rows = run("predict", of.directory, of.data, "-o", output), rows_of(output)
    expected = load(of.directory).predict(of.texts, check_shift=False)
    text = list(columns_of(of.texts[0])) if suffix == "csv" else []  # people read CSV
    first = ["id", *text, *of.case.first.split()]
    assert list(rows[0])[: len(first)] == first
    for row, prediction in zip(rows, expected.rows(), strict=True):
        read, said = ScoredRow(row), ScoredRow(prediction)
        assert (read.answer, read.answered, row["reason"]) == (said.answer, said.answered, prediction["reason"])
        assert read.number("confidence") == pytest.approx(said.number("confidence"), abs=1e-6)
        assert [list(entity) for entity in read.listed("entities")] == [ENTITY] * len(said.listed("entities"))
    summary = json.loads((tmp_path / f"out.{suffix}.summary.json").read_text())
    assert (summary["rows"], summary["abstained"]) == (ROWS, int(expected.abstain.sum()))
    assert summary["shift"]["rows"] == ROWS
    assert summary["promise"] == " ".join(rule.describe() for rule in expected.rules)
    assert f"{ROWS} rows scored, {summary['abstained']} abstained" in done.err


def test_tokens_are_written_with_their_uncertainty(of, run, tmp_path):
    for suffix in (".jsonl", ".csv", ".parquet"):
        run("predict", of.directory, of.data, "--tokens", "-o", tmp_path / f"out{suffix}")
        rows = rows_of(tmp_path / f"out{suffix}")
        expected = load(of.directory).predictor().tokens(of.texts)
        for row, tokens in zip(rows, expected, strict=True):
            assert ScoredRow(row).listed("tokens") == tokens
    assert all(token["uncertainty"] > 0 for token in expected[0])
    resumed = ("predict", of.directory, of.data, "-o", tmp_path / "out.jsonl", "--resume")
    assert "exists" in run(*resumed, code=2).err  # another job: without the tokens
    run(*resumed, "--tokens")


def test_scored_rows_are_reviewed_picked_and_watched(of, run, tmp_path):
    scored = tmp_path / "scored.csv"
    run("predict", of.directory, of.data, "-o", scored, "--review", 30)
    rows = {row["id"]: ScoredRow(row) for row in rows_of(scored)}
    reviewed = rows_of(tmp_path / "scored.csv.review.csv")
    assert len(reviewed) == 30
    for row in reviewed:
        read = rows[row["id"]]
        doubtful = [*read.listed("withheld"), *(e["label"] for e in read.listed("entities") if not e["reported"])]
        if isinstance(read.answer, str):
            assert row["label"] == read.answer
        elif read.answer or doubtful:
            assert row["label"].endswith("?") or read.answer
    run("review", scored, "-n", 2)

    run("pick", scored, "--budget", 40, "--show-prediction", "-o", tmp_path / "picked.jsonl")
    picked = rows_of(tmp_path / "picked.jsonl")
    assert len(picked) == 40
    assert [row["predicted"] for row in picked] == [rows[row["id"]].answer for row in picked]
    assert all(row[name] for row in picked for name in columns_of(of.texts[0]))

    watched = ("watch", of.directory, scored, "-o", tmp_path / "state.json", "--once", "--report", tmp_path / "p.html")
    assert run(*watched, code=None).code in (0, 4)
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["rows"] == ROWS
    (hour,) = state["timeline"]["hours"].values()
    assert hour["labels"] == Counter(row.counted_label for row in rows.values())


@FORMATS
def test_picked_rows_are_labelled_and_rechecked(of, suffix, run, tmp_path):
    """Rows that are left empty are left out, also where an empty cell could say that no label applies."""
    picked = tmp_path / "picked.jsonl"
    run("predict", of.directory, of.data, "-o", tmp_path / "scored.jsonl", "--keep-text")
    run("pick", tmp_path / "scored.jsonl", "--budget", 150, "--random-share", 1, "-o", picked)
    unlabelled = run("recheck", of.directory, tmp_path / "scored.jsonl", code=2).err
    assert "its labels are what the model said, nobody gave them" in unlabelled
    column = {"labels": "labels", "entities": "tags"}.get(of.kind, "label")
    gold = {row["id"]: row[column] for row in rows_of(of.data)}
    rows = [row | {"label": gold[row["id"]]} for row in rows_of(picked) if row["id"] not in ("r3", "r5")]
    rows[0]["label"] = "" if suffix != "parquet" or of.kind in ("one", "choice") else None
    write_rows(tmp_path / f"labelled.{suffix}", rows)
    target = ("--target-risk", 0.6) if of.kind == "choice" else ()
    done = run("recheck", of.directory, tmp_path / f"labelled.{suffix}", *target)
    assert done.err.startswith("1 row left out; the first: line ")
    assert "The promise holds." in done.err
    if of.kind != "choice":  # which has no target risk to renew
        shutil.copytree(of.directory, tmp_path / "renewed")
        scored = ("--update", "--scored", tmp_path / "scored.jsonl")
        renewed = run("recheck", tmp_path / "renewed", tmp_path / f"labelled.{suffix}", *scored, code=None)
        assert renewed.code == (0 if "Version 2 is in use" in renewed.err else 5)
        assert renewed.err.startswith("Version 2 is not put in use: it answers") == (renewed.code == 5)


def test_the_menu_is_printed_and_nothing_is_written(of, run, tmp_path):
    asked = ("calibrate", of.model, of.data, *of.case.columns.split(), "--method", "base", "--menu")
    first, *lines, last = run(*asked).err.splitlines()
    assert first.startswith("risk  promise (confidence 0.95, ")
    assert len(lines) == 2 * len(RISKS) + (1 if of.kind in ("labels", "entities") else 2 + len(REVIEW_SHARES))
    assert last.startswith("Each line is a promise by itself")
    assert list(tmp_path.iterdir()) == []
    run(*asked, "-o", tmp_path / "made")
    calibration = load(tmp_path / "made").calibration_
    assert calibration.menu.describe() == [first, *lines, last]


def test_what_is_not_for_a_kind_is_refused(of, run, tmp_path):
    for options, message in of.case.refused.items():
        asked = ("calibrate", of.model, of.data, *of.case.columns.split(), *options.split(), "-o", tmp_path / "no")
        assert message in run(*asked, code=2).err
    other = jsonl(tmp_path / "other.jsonl", [{"words": "a1", "stars": "x"}])
    run("calibrate", of.model, other, *of.case.columns.split(), "-o", tmp_path / "no", code=2)
    run("predict", of.directory, other, "-o", tmp_path / "no.csv", code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["other.jsonl"]


def test_a_parquet_file_whose_first_rows_have_no_entity(model_of, run, tmp_path, monkeypatch):
    monkeypatch.setattr("uatlite.text.write.PARQUET_BATCH", 2)
    model, texts = model_of("entities"), [f"a{number}" for number in range(40)]
    found = load(model, method="base").predict(texts).entities
    texts = sorted(texts, key=lambda text: len(found[texts.index(text)]))
    data = jsonl(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    run("predict", model, data, "--method", "base", "-o", tmp_path / "out.parquet")
    rows = rows_of(tmp_path / "out.parquet")
    assert not rows[0]["entities"]
    assert not rows[1]["entities"]
    assert rows[-1]["entities"][0]["variance"] is None
