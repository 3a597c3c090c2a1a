"""calibrate and predict of a token classifier, from the arguments to the files; streams, resumes, the same on Ray."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from uatlite import UncertaintyTagger
from uatlite.cli import main
from uatlite.trust.search import RISKS

ENTITY = ["start", "end", "text", "label", "confidence", "boundaries", "variance", "reported"]


def run(*arguments: object) -> int:
    """The exit code of `uatlite ARGUMENTS`."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def data(tagger_dir: Path, made_texts: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 rows of words and tags that the model mostly finds; one has an unknown type, one a tag that does not fit."""
    tagger, rows = UncertaintyTagger.from_pretrained(tagger_dir, "base"), []
    for number, found in enumerate(tagger.predict([text.split() for text in made_texts(300)])):
        words, tags, spans = found.text.tokens, [], found.text.spans
        for start, end in spans:
            inside = next((e for e in found.entities if e.start <= start and end <= e.end), None)
            mark = "B" if inside is not None and inside.start == start else "I"
            tags.append("O" if inside is None or number % 10 == 0 else f"{mark}-{inside.label}")
        rows.append({"tokens": list(words), "tags": tags})
    rows[3]["tags"][0] = "B-animal"
    rows[5]["tags"] = ["I-person"] + ["O"] * (len(rows[5]["tokens"]) - 1)
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def calibrated(tagger_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("out") / "tagger"
    targets = ("--target-risk", 0.5, "--target-recall", 0.2)
    assert run("calibrate", tagger_dir, data, *targets, "--method", "base", "-o", directory) == 0
    return directory


def test_calibrate_learns_from_tags_and_lists_rejects(calibrated: Path) -> None:
    tagger = UncertaintyTagger.from_pretrained(calibrated)
    assert tagger.calibration_ is not None
    assert tagger.calibration_.rows == 298
    assert tagger.calibration_.rule is not None
    assert tagger.calibration_.rule.promised
    assert tagger.calibration_.extra["recall"]["promised"]
    assert tagger.windows
    reasons = [json.loads(line)["reason"] for line in (calibrated / "rejects.jsonl").read_text().splitlines()]
    assert "animal" in reasons[0]
    assert "an entity begins with B-person" in reasons[1]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_predict_writes_entities(suffix: str, calibrated: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / f"entities.{suffix}"
    assert run("predict", calibrated, data, "-o", output) == 0
    if suffix == "jsonl":
        rows = [json.loads(line) for line in output.read_text().splitlines()]
    elif suffix == "csv":
        with output.open(newline="") as file:
            rows = [{**row, "entities": json.loads(row["entities"])} for row in csv.DictReader(file)]
        assert json.loads(rows[0]["tokens"])[0].startswith("a")
    else:
        rows = pq.read_table(output).to_pylist()
    assert len(rows) == 300  # to be tagged, a row needs no tags that fit
    expected = UncertaintyTagger.from_pretrained(calibrated).predict(
        [json.loads(line)["tokens"] for line in data.read_text().splitlines()], check_shift=False
    )
    for row, one in zip(rows, expected, strict=True):
        assert [list(entity) for entity in row["entities"]] == [ENTITY] * len(one.entities)
        assert [(e["start"], e["end"], e["label"], e["reported"]) for e in row["entities"]] == [
            (e.start, e.end, e.label, e.reported) for e in one.entities
        ]
        assert row["reason"] == one.reason
    own = ["abstain", "reason", "above_threshold", "confidence", "log_odds", "missed", "missed_at", "passes"]
    text = ["tokens"] if suffix == "csv" else []
    assert list(rows[0]) == ["id", *text, "entities", *own, "cut_tokens", "scope", "out_of_scope"]


def test_review_shows_what_is_withheld(calibrated: Path, data: Path, tmp_path: Path) -> None:
    assert run("predict", calibrated, data, "-o", tmp_path / "entities.csv") == 0
    assert run("review", tmp_path / "entities.csv", "-n", 20, "-o", tmp_path / "review.jsonl") == 0
    rows = [json.loads(line) for line in (tmp_path / "review.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    assert any(row["label"].endswith(("person?", "place?")) for row in rows)


def test_a_parquet_file_whose_first_rows_have_no_entity(tagger_dir: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("uatlite.text.write.PARQUET_BATCH", 2)
    tagger = UncertaintyTagger.from_pretrained(tagger_dir, "base")
    texts = [f"a{number}" for number in range(40)]
    found = tagger.predict(texts).entities
    texts = sorted(texts, key=lambda text: len(found[texts.index(text)]))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    assert run("predict", tagger_dir, tmp_path / "in.jsonl", "--method", "base", "-o", tmp_path / "out.parquet") == 0
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert not rows[0]["entities"]
    assert not rows[1]["entities"]
    assert rows[-1]["entities"][0]["variance"] is None


def test_the_menu_is_printed_and_nothing_is_written(tagger_dir: Path, data: Path, tmp_path: Path, capsys) -> None:
    assert run("calibrate", tagger_dir, data, "--method", "base", "--menu") == 0
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert first.startswith("risk  promise (confidence 0.95, ")
    assert "labelled texts, by log-odds)" in first
    assert len(lines) == len(RISKS)
    assert any("of answers reported" in line for line in lines)
    assert last.startswith("Each line is a promise by itself")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_for_entities_is_refused(tagger_dir: Path, data: Path, tmp_path: Path, capsys) -> None:
    assert run("calibrate", tagger_dir, data, "--target-coverage", 0.5, "-o", tmp_path / "no") != 0
    assert "--target-coverage" in capsys.readouterr().err
    pairs = tmp_path / "plain.jsonl"
    pairs.write_text('{"text": "a1", "label": "x"}\n')
    assert run("calibrate", tagger_dir, pairs, "-o", tmp_path / "no") != 0
    assert "tokens and tags, or text and entities" in capsys.readouterr().err
