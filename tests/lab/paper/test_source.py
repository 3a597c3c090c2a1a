"""What a reproduction runs on: rows, models, seeds and arrays, each computed once and again where a file is broken."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.cells import CellSpec, subset_ids
from uatlite.lab.evaluate.comparison import Sampled
from uatlite.lab.evaluate.models import Model
from uatlite.lab.evaluate.plan import parse_contender
from uatlite.lab.evaluate.runs import Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.probes import paper_measure
from uatlite.lab.paper.source import FineTunedModels
from uatlite.lab.paper.source import ReproductionSettings as Settings
from uatlite.text.tasks import load


def source_of(data_dir, **options):
    return FineTunedModels(Path("nowhere"), Settings(data_dir=data_dir, **options))


def test_only_without_training_rows_the_calibration_rows_are_divided_between_articles(data_dir):
    source = source_of(data_dir)
    parts = [source.dataset(f"squad2/{split}") for split in ("train", "calibration", "test")]
    titles = [{str(example.meta["title"]) for example in part.examples} for part in parts]
    assert all(titles)
    assert not titles[0] & titles[1]
    assert not (titles[0] | titles[1]) & titles[2]
    assert sum(map(len, parts)) == 200
    for split in ("train", "calibration"):
        assert source.dataset(f"sst2/{split}").fingerprint == load("sst2", split, data_dir).fingerprint
    assert ["no training rows here" in source.training_note(task) for task in ("squad2", "sst2")] == [True, False]


def test_limits(data_dir):
    limited = source_of(data_dir, limit=3)
    assert [len(limited.dataset(f"sst2/{split}")) for split in ("train", "calibration", "test")] == [30, 3, 3]
    assert Settings(limit=3).recipe_of("") != Settings().recipe_of("")
    assert Settings(limit=3, recipe="paper").recipe_of("") == Settings().recipe_of("")


def test_a_task_is_trained_by_its_own_recipe():
    settings, fast = Settings(limit=3), Settings(limit=3, changes={"precision": "bf16"})
    assert {fast.recipe_of(task).precision for task in ("sst2", "rotten-tomatoes")} == {"bf16"}
    assert settings.recipe_of("sst2").epochs == 1
    assert settings.recipe_of("pubmedqa") == settings.recipe_of("")
    assert Settings().recipe_of("sst2") == Settings().recipe_of("")
    assert "sst2: learning_rate 0.0001, warmup_steps 60, epochs 1" in " ".join(settings.describe({"sst2"}))
    assert "sst2: " not in " ".join(settings.describe({"mnli"}))
    assert "; 5 seeds, each with its own fine-tuning" in settings.describe(())[0]
    assert Settings(seeds=1).describe(())[0].endswith("; one seed.")


def test_a_larger_labelled_test_set_serves_where_the_test_rows_are_too_few(data_dir, tmp_path):
    few = len(load("sst2", "test", data_dir))
    shutil.copytree(data_dir / "sst2", tmp_path / "sst2")
    lines = [json.dumps({"text": f"A film, number {number}.", "label": "positive"}) for number in range(few + 5)]
    assert len(source_of(tmp_path, limit=few + 1).dataset("sst2")) == few
    (tmp_path / "sst2" / "test_original.jsonl").write_text("\n".join(lines))
    larger = source_of(tmp_path, limit=few + 1)
    assert larger.dataset("sst2").split == "test-original"
    assert len(larger.dataset("sst2")) == few + 1
    assert larger.dataset("sst2/calibration").split == "calibration"
    assert source_of(tmp_path, limit=few).dataset("sst2").split == "test"
    assert source_of(tmp_path).dataset("sst2").split == "test"


def test_a_subset_meets_every_condition(data_dir):
    hans = source_of(data_dir).dataset("hans")
    ids = subset_ids(hans, "heuristic=subsequence&label=non-entailment", None)
    chosen = {(row.meta["heuristic"], hans.labels[row.label or 0]) for row in hans.examples if row.id in ids}
    assert chosen == {("subsequence", "non-entailment")}
    assert len(subset_ids(hans, None, 7)) == 7
    with pytest.raises(ConfigurationError, match="heuristic"):
        subset_ids(hans, "heuristics=subsequence", None)


def test_arrays_are_computed_once_and_again_where_their_file_is_broken(settings, tmp_path):
    fit, computed = Model("backbone", "sst2"), []

    def compute():
        computed.append(True)
        return {"values": np.arange(3.0)}

    def read(text="a"):
        return FineTunedModels(tmp_path, settings).kept("numbers", fit, [fit, text], compute)["values"].tolist()

    assert read() == read() == [0.0, 1.0, 2.0]
    assert len(computed) == 1
    (path,) = (tmp_path / "kept").iterdir()
    assert path.name.startswith("numbers-")
    path.write_bytes(path.read_bytes()[:40])
    assert read() == read() == [0.0, 1.0, 2.0]
    assert len(computed) == 2
    assert read("b") == [0.0, 1.0, 2.0]
    assert len(list((tmp_path / "kept").glob("numbers-*.npz"))) == 2


def test_what_is_kept_of_a_set_is_of_the_rows_that_it_has(settings, tmp_path):
    cell = CellSpec(measure="layer-share", contender=parse_contender("uat"), task="sst2", layers="output")
    for limit in (4, 6):
        source = FineTunedModels(tmp_path, replace(settings, limit=limit))
        source.fine_tune(source.models(cell)[0][0])
        number = paper_measure(cell.measure).compute(cell, Runs(source, Store(tmp_path / "store")))
        assert isinstance(number, Sampled)
        assert number.size == limit


def test_methods_with_a_training_of_their_own_may_have_fewer_seeds(settings, tmp_path):
    source = FineTunedModels(tmp_path, replace(settings, seeds=3, trained_seeds=2))
    sngp = CellSpec(measure="ece", contender=parse_contender("sngp"))
    cells = {"uat": replace(sngp, contender=parse_contender("uat")), "sngp": sngp}
    assert {name: len(source.models(cell)) for name, cell in cells.items()} == {"uat": 3, "sngp": 2}
    assert [seed for _, seed in source.models(replace(sngp, seeds=1))] == [0]  # the table's own bound holds
