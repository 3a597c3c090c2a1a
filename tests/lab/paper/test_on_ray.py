"""A reproduction whose models and predictions other processes make is the one that this process makes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from uatlite.lab.paper.source import ReproductionSettings as Settings
from uatlite.lab.paper.write import write_reproduction

pytest.importorskip("ray", reason="ray is not installed, so reproducing on a cluster is NOT tested")


def test_tables_made_on_workers_are_those_made_here(
    settings: Settings, whole: Any, recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uatlite.scoring.on_ray import Cluster, connected

    display, computed, trained = recorder(), [], []

    class Counted(Cluster):
        def run(self, tasks: Any, advance: Any) -> None:
            super().run(tasks, computed.append)
            trained.extend(list((tmp_path / "models").glob("*/uatlite-training.json")))  # before this process trains

    monkeypatch.setenv("RAY_worker_niceness", "0")
    others = shutil.ignore_patterns("sst2-*")  # one model is enough to train there
    shutil.copytree(whole.directory / "models", tmp_path / "models", ignore=others)
    names = ["characters", "rescaling"]  # the second has embeddings that are scaled here
    cluster = Counted(workers=1)
    with connected(cluster):
        write_reproduction(names, tmp_path, settings, display, cluster)
    assert "sst2" in {path.parent.name.split("-")[0] for path in trained}
    assert sum(computed) > 0
    assert display.done == pytest.approx(display.work)
    for name in names:
        ours, theirs = (
            json.loads((directory / "tables" / f"{name}.json").read_text(encoding="utf-8"))
            for directory in (whole.directory, tmp_path)
        )
        assert ours["cells"] == theirs["cells"]
