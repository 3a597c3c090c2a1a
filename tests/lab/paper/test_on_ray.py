"""A reproduction whose predictions other processes compute is the one that this process makes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from uatlite.lab.paper.settings import ReproductionSettings as Settings
from uatlite.lab.paper.write import write_reproduction

pytest.importorskip("ray", reason="ray is not installed, so reproducing on a cluster is NOT tested")


def test_tables_made_on_workers_are_those_made_here(
    settings: Settings, whole: Any, recorder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uatlite.lab.evaluate.on_ray import predict_on_cluster
    from uatlite.scoring.on_ray import Cluster, connected

    cluster, display, computed = Cluster(workers=1), recorder(), []

    def counted(*args: Any, **kwargs: Any) -> None:
        predict_on_cluster(args[0], args[1], computed.append, cluster=cluster, **kwargs)

    monkeypatch.setenv("RAY_worker_niceness", "0")
    shutil.copytree(whole.directory / "models", tmp_path / "models")  # training runs in this process either way
    names = ["characters", "rescaling"]  # the second has embeddings that are scaled here
    with connected(cluster):
        write_reproduction(names, tmp_path, settings, display, counted)
    assert sum(computed) > 0
    assert display.done == pytest.approx(display.work)
    for name in names:
        ours, theirs = (
            json.loads((directory / "tables" / f"{name}.json").read_text(encoding="utf-8"))
            for directory in (whole.directory, tmp_path)
        )
        assert ours["cells"] == theirs["cells"]
