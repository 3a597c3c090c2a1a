"""The table of tasks: what every entry must have, and what the documentation says of it."""

from itertools import combinations
from pathlib import Path

import pytest

from uatlite.errors import ConfigurationError
from uatlite.text.labels import fold
from uatlite.text.schema import catalogue, find_task
from uatlite.text.tasks import load
from uatlite.values import Span

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "tasks.md"


def test_the_tasks_that_ship():
    assert set(catalogue()) == {
        "rotten-tomatoes", "movie-reviews-imdb", "sst2", "mnli", "mnli-mismatched", "snli", "anli", "hans",
        "squad2", "medqa", "pubmedqa", "imdb", "clinc150", "wnut17", "btc", "uner-ewt", "uner-pud", "goemotions",
    }  # fmt: skip
    assert catalogue()["rotten-tomatoes"] is find_task("rotten-tomatoes")
    assert find_task("rotten-tomatoes").package is not None


@pytest.mark.parametrize("task", catalogue().values(), ids=catalogue())
def test_every_task_is_whole_and_documented(task):
    assert catalogue()[task.name] is task
    assert "test" in task.splits
    assert len({fold(label) for label in task.labels}) == len(task.labels)
    assert task.hub or task.package
    assert task.licence
    assert task.citation
    for origin in (task.hub, task.package):
        if origin is not None:
            assert origin.layout.form == task.form
            assert {fold(code) for code in origin.layout.codes} <= {fold(label) for label in task.labels}
            assert bool(origin.layout.group) == bool(task.layout.group)
    for split in task.splits.values():
        assert split.files
        assert all(stem.count("/") == 1 for stem in split.files)
        low, high = split.share
        assert 0 <= low < high <= 100
        assert not task.layout.group or low == 0 or high == 100  # groups are cut once
    assert set(task.caveats) <= {stem for split in task.splits.values() for stem in split.files}
    for one, other in combinations(task.splits.values(), 2):  # splits of one file do not overlap
        apart = one.share[1] <= other.share[0] or other.share[1] <= one.share[0]
        assert apart or not set(one.files) & set(other.files)
    [row] = [line for line in DOCS.read_text().splitlines() if line.startswith(f"| `{task.name}` |")]
    assert f"| {task.form} |" in row
    assert all(f"{split} " in row for split in task.splits)
    assert task.hub is None or f"`{task.hub.id}`" in row


def test_btc_counts_an_at_sign_and_its_name_as_one_entity(tmp_path):
    (tmp_path / "btc").mkdir()
    (tmp_path / "btc" / "test.jsonl").write_text('{"tokens": ["@", "ada"], "tags": ["B-PER", "B-PER"]}\n')
    [example] = load("btc", "test", tmp_path).examples
    assert example.entities == (Span(0, 5, "PER"),)
    assert catalogue()["btc"].labels == catalogue()["uner-pud"].labels == catalogue()["uner-ewt"].labels


def test_an_unknown_task_lists_them_all():
    with pytest.raises(ConfigurationError, match=r"task='sst' is not one of: rotten-tomatoes.*Did you mean 'sst2'\?"):
        find_task("sst")
