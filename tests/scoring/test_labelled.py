"""Labelled rows with several answers a text: what a file holds is found, and what cannot be used is rejected."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from uatlite.errors import DataError
from uatlite.scoring.blocks import read_labelled
from uatlite.text.examples import find_layout
from uatlite.text.rows import read_rows
from uatlite.text.schema import Gold, Layout
from uatlite.text.tasks import load, task_from_file
from uatlite.values import Span, Words


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def layout_of(path: Path, layout: Layout | None = None) -> Layout:
    return find_layout(read_rows(path), layout or Layout())


@pytest.mark.parametrize(
    ("row", "named", "gold"),
    [
        ({"tokens": ["a"], "tags": ["O"]}, None, "tags"),
        ({"text": "a", "entities": []}, None, "entities"),
        ({"text": "a", "labels": "x; y"}, None, "labels"),
        ({"text": "a", "label": "x", "labels": ["y"]}, None, "class"),
        ({"text": "a", "label": ["x"]}, None, "labels"),
        ({"words": ["a"], "ner": ["O"]}, ("words", "ner"), "tags"),
        ({"body": "a", "spans": '[{"start": 0}]'}, ("body", "spans"), "entities"),
        ({"body": "a", "topics": ["x"]}, ("body", "topics"), "labels"),
        ({"body": "[a]", "topic": "[x]"}, ("body", "topic"), "class"),
        ({"other": 1}, None, "class"),
    ],
)
def test_what_a_file_holds(row: dict[str, object], named: tuple[str, str] | None, gold: Gold, tmp_path: Path) -> None:
    given = Layout() if named is None else Layout(text=named[0], label=named[1])
    found = layout_of(write(tmp_path / "rows.jsonl", [row]), given)
    assert found.gold == gold
    if named is not None:
        assert (found.text, found.label) == named


def test_words_with_tags(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rows.jsonl",
        [
            {"tokens": ["Ada", "Lovelace"], "tags": ["B-PER", "I-PER"]},
            {"tokens": ["Ada"], "tags": ["O", "O"]},
            {"tokens": ["Ada", ""], "tags": ["O", "O"]},
            {"tokens": ["Ada"], "tags": ["I-PER"]},
            {"tokens": ["Titanic"], "tags": ["B-ship"]},
            {"tokens": ["nobody"], "tags": ["O"]},
        ],
    )
    rows = read_labelled(str(path), layout_of(path), ("LOC", "PER"))
    assert rows.texts == [Words(("Ada", "Lovelace")), Words(("nobody",))]
    assert rows.entities == [(Span(0, 12, "PER"),), ()]
    assert (rows.labels, rows.label_sets) == ([], [])
    assert [(reject.line, reject.reason.split(";")[0]) for reject in rows.rejects] == [
        (2, "2 tags for 1 words"),
        (3, "word 2 of 2 in column 'tokens' is empty"),
        (4, "tag 1 of 'Ada' is 'I-PER' after 'O'"),
        (5, "unknown label 'ship' in column 'tags'"),
    ]
    with pytest.raises(DataError, match=r"line 2: 2 tags for 1 words\. Without --strict such rows are listed"):
        read_labelled(str(path), layout_of(path), ("LOC", "PER"), strict=True)


def test_a_conll_file_and_the_same_rows_as_jsonl_are_one(tmp_path: Path) -> None:
    (tmp_path / "rows.conll").write_text("Ada B-PER\nof O\nRome B-LOC\n\nnobody O\n")
    same = [{"tokens": ["Ada", "of", "Rome"], "tags": ["B-PER", "O", "B-LOC"]}, {"tokens": ["nobody"], "tags": ["O"]}]
    write(tmp_path / "rows.jsonl", same)
    one, other = (
        read_labelled(str(path), layout_of(path), ("LOC", "PER"))
        for path in (tmp_path / "rows.conll", tmp_path / "rows.jsonl")
    )
    assert (one.texts, one.entities) == (other.texts, other.entities)
    test = load(task_from_file(tmp_path / "rows.conll"), "all")
    assert (test.labels, [example.entities for example in test.examples]) == (("LOC", "PER"), one.entities)


def test_texts_with_entities_and_with_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "entities.jsonl", [{"text": " Ada ", "entities": [{"start": 1, "end": 4, "label": "per"}]}])
    rows = read_labelled(str(path), layout_of(path), ("PER",))
    assert (rows.texts, rows.entities) == ([" Ada "], [(Span(1, 4, "PER"),)])
    table = tmp_path / "labels.csv"
    table.write_text('text,labels\noh,"joy,anger"\nwell,\nhm,grief\n')
    several = read_labelled(str(table), layout_of(table), ("anger", "joy"))
    assert (several.texts, several.label_sets, several.entities) == (["oh", "well"], [(0, 1), ()], [])
    assert [reject.reason for reject in several.rejects] == ["unknown label 'grief' in column 'labels'"]


def test_files_without_a_usable_row(tmp_path: Path) -> None:
    empty = tmp_path / "empty.conll"
    empty.write_text("\n\n")
    with pytest.raises(DataError, match="has no usable row"):
        read_labelled(str(empty), Layout(text="tokens", label="tags", gold="tags"), ("PER",))
    path = write(tmp_path / "rows.jsonl", [{"tokens": ["Ada"], "tags": ["B-PER", "O"]}])
    with pytest.raises(DataError, match=r"no usable row \(1 rejected; the first: line 1, 2 tags for 1 words\)"):
        read_labelled(str(path), layout_of(path), ("PER",))
