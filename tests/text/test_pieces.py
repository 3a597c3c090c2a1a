"""Pieces of work: whole or absent, refused under another record, found when broken."""

import json
from pathlib import Path

import numpy as np
import pytest

from uatlite.errors import DataError
from uatlite.text.write import Pieces, read_record, write_record


@pytest.fixture
def pieces(tmp_path: Path) -> Pieces:
    found = Pieces(tmp_path / "work")
    found.begin({"model": "a", "shape": (1, 2)})
    return found


def test_a_record_says_which_fields_differ(pieces: Pieces) -> None:
    assert pieces.differences({"model": "a", "shape": (1, 2)}) == []
    assert pieces.differences({"shape": [1, 2]}) == []  # a field that is not asked for is of no concern
    assert pieces.differences({"model": "b", "shape": [1, 2], "seed": None}) == ["model", "seed"]


@pytest.mark.parametrize("content", [None, "", "{", "[1]"])
def test_a_record_that_is_missing_or_broken_agrees_with_nothing(pieces: Pieces, content: str | None) -> None:
    path = pieces.path(pieces.record)
    path.unlink() if content is None else path.write_text(content)
    assert read_record(path) is None
    assert pieces.differences({"model": "a"}) == ["model"]
    assert pieces.begun == (content is not None)


def test_a_piece_is_whole_or_not_there(pieces: Pieces) -> None:
    def interrupt() -> None:
        with pieces.write("one") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert not pieces.has("one")
    assert pieces.names("*") == ["record.json"]
    with pieces.write("one") as file:
        file.write(b"whole")
    assert pieces.has("one")
    assert pieces.read("one", Path.read_bytes) == b"whole"
    assert pieces.names("o*") == ["one"]


@pytest.mark.parametrize("damage", [b"", b"PK broken", None])
def test_a_broken_or_missing_piece_reads_as_none(pieces: Pieces, damage: bytes | None) -> None:
    with pieces.write("arrays.npz") as file:
        np.savez(file, a=np.arange(3))
    assert pieces.read("arrays.npz", lambda path: dict(np.load(path))) is not None
    path = pieces.path("arrays.npz")
    path.unlink() if damage is None else path.write_bytes(damage)
    assert pieces.read("arrays.npz", lambda path: dict(np.load(path))) is None


def test_other_errors_of_a_reader_are_raised(pieces: Pieces) -> None:
    def fail(path: Path) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pieces.read("one", fail)


def test_finished_work_says_so(pieces: Pieces) -> None:
    assert (pieces.begun, pieces.finished) == (True, False)
    pieces.finish({"pieces": 0})
    assert pieces.finished
    assert json.loads(pieces.path("complete.json").read_text()) == {"pieces": 0}


def test_removed_work_leaves_nothing(pieces: Pieces) -> None:
    pieces.remove()
    assert list(pieces.directory.parent.iterdir()) == []
    pieces.remove()  # again is no error


def test_a_directory_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    write_record(tmp_path / "file", {})
    with pytest.raises(DataError, match="cannot be created"):
        Pieces(tmp_path / "file" / "work").begin({})
