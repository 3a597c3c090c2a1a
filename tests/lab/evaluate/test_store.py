"""The store: what goes in comes out, in order, once; what is broken is found."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from reference import made_provenance
from uatlite.codec import dump, load
from uatlite.errors import DataError, StoreError
from uatlite.lab.evaluate.store import NO_LABEL, Piece, Provenance, RunRecipe, Store, parts_of
from uatlite.predictive import PassLogits

PASSES, CLASSES, ROWS = 4, 3, 40


def make_piece(rows, *, variance=0):
    """Values that say which row they belong to."""
    places = np.array(rows, dtype=np.int32)
    parts = np.arange(PASSES)[:, None, None] * 100 + np.arange(CLASSES) * 10_000
    return Piece(
        rows=places,
        ids=tuple(f"id-{row}" for row in rows),
        labels=np.where(places % 5 == 0, NO_LABEL, places % 3),
        passes=PassLogits(
            (places[None, :, None] + parts[: 1 if variance else PASSES]).astype(np.float64),
            np.float32(places[:, None] / 7 + np.arange(variance)).astype(np.float64) if variance else None,
            places[:, None] + np.array([0.25, 0.5]) if variance else None,
        ),
        seconds=0.5,
    )


def fill(run, order, *, variance=0):
    for number, rows in enumerate(parts_of(order)):
        run.write(number, make_piece(rows, variance=variance))
    run.finish()


@pytest.fixture
def order():
    return np.random.default_rng(0).permutation(ROWS).tolist()


@pytest.mark.parametrize("variance", [0, 1, 3])
def test_a_run_comes_back_in_the_order_of_its_data_set(tmp_path, order, variance):
    run = Store(tmp_path).begin(made_provenance(ROWS))
    assert (run.pieces, run.complete) == (3, False)
    fill(run, order, variance=variance)
    [found] = Store(tmp_path).runs()
    assert found == run
    predictions = found.read()
    expected = make_piece(list(range(ROWS)), variance=variance)
    assert predictions.ids == expected.ids
    np.testing.assert_array_equal(predictions.labels, expected.labels)
    for name, values in vars(expected.passes).items():
        assert (values is None) == (name != "logits" and not variance)
        np.testing.assert_array_equal(getattr(predictions.passes, name), values)
    assert predictions.seconds == 1.5
    assert predictions.provenance == made_provenance(ROWS)


def test_the_key_follows_all_that_decides_the_numbers_and_nothing_else():
    standard = made_provenance(ROWS)
    others = {
        **dict.fromkeys(("model", "data", "tokens", "task", "split", "perturbation", "uatlite"), "x"),
        "method": {"method": "base"},
        "seed": 1,
        "columns": ((1,), (0,), (2,)),
    }
    keys = {made_provenance(ROWS, recipe={name: value}).recipe.key for name, value in others.items()}
    assert set(others) == set(RunRecipe.__dataclass_fields__)
    assert len(keys | {standard.recipe.key}) == len(others) + 1
    assert load(Provenance, json.loads(json.dumps(dump(standard))), advice="").recipe.key == standard.recipe.key


def test_begun_again_a_run_keeps_its_pieces(tmp_path, order):
    store = Store(tmp_path)
    run = store.begin(made_provenance(ROWS))
    plan = parts_of(order)
    run.write(1, make_piece(plan[1]))
    again = store.begin(replace(made_provenance(ROWS), model="the same weights elsewhere"))
    assert again == run
    assert [again.has(number, rows) for number, rows in enumerate(plan)] == [False, True, False]
    assert not again.has(1, plan[1][::-1])
    assert not again.complete
    with pytest.raises(StoreError, match="is not finished; run the command that began it again to continue"):
        again.read()


def change(path, changed):
    pq.write_table(changed(pq.read_table(path, partitioning=None)), path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "rows": lambda path: change(path, lambda table: table.slice(1)),
    "value": lambda path: change(path, lambda table: table.set_column(2, "label", table["label"].fill_null(2))),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_broken_piece_is_found_named_and_written_anew(tmp_path, order, damage):
    run = Store(tmp_path).begin(made_provenance(ROWS))
    fill(run, order)
    damage(run.piece_path(1))
    with pytest.raises(StoreError, match=r"piece-00001\.parquet is broken.* Delete it and run the same command again"):
        run.read()
    assert not run.has(1, parts_of(order)[1])
    run.piece_path(1).unlink()
    assert not run.complete
    run.write(1, make_piece(parts_of(order)[1]))
    assert run.complete
    assert len(run.read().ids) == ROWS


def test_a_row_that_is_there_twice_is_an_error(tmp_path, order):
    run = Store(tmp_path).begin(made_provenance(ROWS))
    fill(run, order)
    run.write(2, make_piece(parts_of(order)[0][:8]))
    with pytest.raises(StoreError, match="each row exactly once"):
        run.read()


def test_a_piece_is_whole_or_not_there(tmp_path, monkeypatch):
    def half(table, file, **options):
        file.write(b"PAR1 half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", half)
    run = Store(tmp_path).begin(made_provenance(ROWS))
    with pytest.raises(KeyboardInterrupt):
        run.write(0, make_piece([0, 1]))
    assert [path.name for path in run.directory.iterdir()] == ["_run.json"]


def test_notes_that_are_broken_or_of_another_format_say_what_to_do(tmp_path):
    run = Store(tmp_path).begin(made_provenance(ROWS))
    note = run.directory / "_run.json"
    note.write_text(note.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StoreError, match="another version"):
        Store(tmp_path).runs()
    note.write_text("{")
    with pytest.raises(StoreError, match=r"stored Provenance is broken .*delete the directory .*run="):
        Store(tmp_path).runs()


def test_a_listing_shows_every_run(tmp_path, order):
    store = Store(tmp_path / "store")
    with pytest.raises(StoreError, match="is not a directory"):
        store.runs()
    fill(store.begin(made_provenance(ROWS)), order)
    store.begin(made_provenance(ROWS, recipe={"seed": 1}))
    store.begin(made_provenance(ROWS, recipe={"perturbation": "swap"}))
    assert store.runs()[0].provenance.set_name == "made+swap/test"
    assert sorted(run.complete for run in store.runs()) == [False, False, True]


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be created"):
        Store(tmp_path / "file").begin(made_provenance(ROWS))


def test_all_runs_are_one_table_for_arrow(tmp_path, order):
    store = Store(tmp_path)
    for seed in (0, 1):
        fill(store.begin(made_provenance(ROWS, recipe={"seed": seed})), order)
    table = pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table()
    assert table.num_rows == 2 * ROWS
    assert set(table.column_names) == {"run", "row", "id", "label", "logits", "margin_variance"}


def test_reading_and_scoring_need_no_torch(tmp_path, order):
    fill(Store(tmp_path).begin(made_provenance(ROWS)), order)
    code = (
        "import sys; from uatlite.lab.evaluate.store import Store\n"
        "import uatlite.lab.evaluate.outcomes, uatlite.lab.evaluate.plan, uatlite.lab.report.results\n"
        f"[run.read() for run in Store({str(tmp_path)!r}).runs()]\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
