"""Which rows are trained, calibrated and tested on, and which of them a cell is about."""

import json
import shutil
from pathlib import Path

import pytest

from uatlite.errors import ConfigurationError
from uatlite.lab.evaluate.cells import subset_ids
from uatlite.lab.paper.datasets import Datasets
from uatlite.lab.paper.settings import ReproductionSettings as Settings
from uatlite.text.tasks import load


@pytest.fixture
def datasets(data_dir: Path) -> Datasets:
    return Datasets(Settings(data_dir=data_dir))


def test_without_training_rows_the_calibration_rows_are_divided_between_articles(datasets: Datasets) -> None:
    data = datasets.task("squad2")
    parts = [data.train, data.calibration, data.test()]
    titles = [{str(example.meta["title"]) for example in part.examples} for part in parts]
    assert all(titles)
    assert not titles[0] & titles[1]
    assert not (titles[0] | titles[1]) & titles[2]
    assert sum(map(len, parts)) == 200
    assert "no training rows here" in data.note


def test_training_rows_are_used_where_there_are_some(datasets: Datasets, data_dir: Path) -> None:
    data = datasets.task("sst2")
    assert data.train.fingerprint == load("sst2", "train", data_dir).fingerprint
    assert data.calibration.fingerprint == load("sst2", "calibration", data_dir).fingerprint
    assert "no training rows" not in data.note


def test_limits(data_dir: Path) -> None:
    limited = Datasets(Settings.of(data_dir=data_dir, limit=3)).task("sst2")
    assert (len(limited.train), len(limited.calibration), len(limited.test())) == (30, 3, 3)
    assert Settings.of(limit=3).recipe != Settings.of().recipe
    assert Settings.of(limit=3, recipe="paper").recipe == Settings.of().recipe


def test_a_task_is_trained_by_its_own_recipe() -> None:
    settings = Settings.of(limit=3)
    exact, fast = Settings.of(limit=3, precision="fp32"), Settings.of(limit=3, precision="bf16")
    assert exact == settings
    assert {fast.recipe_of(task).precision for task in ("sst2", "rotten-tomatoes")} == {"bf16"}
    assert settings.recipe_of("sst2").epochs == 1
    assert settings.recipe_of("pubmedqa") == settings.recipe
    assert Settings.of().recipe_of("sst2") == Settings.of().recipe
    assert "sst2: learning_rate 0.0001, warmup_steps 60, epochs 1" in " ".join(settings.describe({"sst2"}))
    assert "sst2: " not in " ".join(settings.describe({"mnli"}))
    assert "; 5 seeds, each with its own fine-tuning" in settings.describe(())[0]
    assert settings.of(seeds=1).describe(())[0].endswith("; one seed.")


def test_a_larger_labelled_test_set_serves_where_the_test_rows_are_too_few(data_dir: Path, tmp_path: Path) -> None:
    few = len(load("sst2", "test", data_dir))
    shutil.copytree(data_dir / "sst2", tmp_path / "sst2")
    lines = [json.dumps({"text": f"A film, number {number}.", "label": "positive"}) for number in range(few + 5)]
    assert len(Datasets(Settings.of(data_dir=tmp_path, limit=few + 1)).find("sst2")) == few
    (tmp_path / "sst2" / "test_original.jsonl").write_text("\n".join(lines))
    larger = Datasets(Settings.of(data_dir=tmp_path, limit=few + 1))
    assert larger.find("sst2").split == "test-original"
    assert len(larger.find("sst2")) == few + 1
    assert larger.task("sst2").calibration.split == "calibration"
    assert Datasets(Settings.of(data_dir=tmp_path, limit=few)).find("sst2").split == "test"
    assert Datasets(Settings.of(data_dir=tmp_path)).find("sst2").split == "test"


def test_a_subset_meets_every_condition(datasets: Datasets) -> None:
    hans = datasets.find("hans")
    ids = subset_ids(hans, "heuristic=subsequence&label=non-entailment", None)
    found = [example for example in hans.examples if example.id in ids]
    assert {(one.meta["heuristic"], hans.labels[one.label or 0]) for one in found} == {
        ("subsequence", "non-entailment")
    }
    assert len(subset_ids(hans, None, 7)) == 7
    with pytest.raises(ConfigurationError, match="heuristic"):
        subset_ids(hans, "heuristics=subsequence", None)
