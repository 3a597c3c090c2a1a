"""The user's own file: found again, named by ids or places, and not shown once it has changed."""

import json
from pathlib import Path

import pytest

from uatlite.lab.evaluate.own_file import OwnFile, digest_of
from uatlite.text.schema import find_task
from uatlite.text.tasks import load, task_from_file


def write(path: Path, *, ids: bool) -> Path:
    rows = [{"text": f"text {place // 2}", "label": "ab"[place % 2]} for place in range(8)]  # each text twice
    path.write_text(
        "\n".join(json.dumps({"id": f"no. {place}", **row} if ids else row) for place, row in enumerate(rows))
    )
    return path


@pytest.mark.parametrize("ids", [True, False])
def test_every_row_is_found_by_its_id_in_the_store(tmp_path: Path, ids: bool) -> None:
    task = task_from_file(write(tmp_path / "mine.jsonl", ids=ids))
    own = OwnFile.of(task)
    assert own is not None
    found = OwnFile(**own.to_dict()).examples()
    for split in ("calibration", "test"):
        for example in load(task, split).examples:
            assert found[example.id].text == example.text
    names = [example.meta["shown"] for example in found.values()]
    assert names == ([f"no. {place}" for place in range(8)] if ids else [f"row {n} of mine.jsonl" for n in range(1, 9)])


def test_a_file_that_moved_is_found_by_its_name_and_a_changed_one_is_not_shown(tmp_path: Path) -> None:
    own = OwnFile.of(task_from_file(write(tmp_path / "mine.jsonl", ids=True)))
    assert own is not None
    (tmp_path / "moved").mkdir()
    moved = (tmp_path / "mine.jsonl").rename(tmp_path / "moved" / "mine.jsonl")
    assert own.examples() == {}
    assert len(own.examples(tmp_path / "moved")) == 8
    moved.write_text(moved.read_text().replace("text 0", "text x"))
    assert own.examples(tmp_path / "moved") == {}


def test_a_task_of_the_catalogue_has_no_file(tmp_path: Path) -> None:
    assert OwnFile.of(find_task("sst2")) is None
    assert digest_of(tmp_path / "absent.csv") == ""
    write(tmp_path / "a.jsonl", ids=True)
    assert digest_of(tmp_path) == digest_of(tmp_path / "a.jsonl")
