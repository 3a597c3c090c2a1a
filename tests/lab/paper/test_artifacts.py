"""Models, seeds and arrays of a reproduction: computed once, and again where their file is broken."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from uatlite.lab.evaluate import predict
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.plan import parse_contender
from uatlite.lab.evaluate.runs import Model, Runs
from uatlite.lab.evaluate.store import Store
from uatlite.lab.paper.models import Arrays, FineTunedModels
from uatlite.lab.paper.settings import ReproductionSettings as Settings


def test_arrays_are_computed_once_and_again_where_their_file_is_broken(settings: Settings, tmp_path: Path) -> None:
    fit, computed = Model("backbone", "sst2"), []

    def compute() -> Arrays:
        computed.append(True)
        return {"values": np.arange(3.0)}

    def read(text: str = "a") -> list[float]:
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


def test_methods_with_a_training_of_their_own_may_have_fewer_seeds(settings: Settings, tmp_path: Path) -> None:
    source = FineTunedModels(tmp_path, replace(settings, seeds=3, trained_seeds=2))
    sngp = CellSpec(measure="ece", contender=parse_contender("sngp"))
    cells = {"uat": replace(sngp, contender=parse_contender("uat")), "sngp": sngp}
    assert {name: len(source.fine_tunings(cell)) for name, cell in cells.items()} == {"uat": 3, "sngp": 2}
    (one,) = source.fine_tunings(replace(sngp, seeds=1))  # the table's own bound holds
    assert one.seed == 0


def test_what_a_method_learns_from_another_is_computed_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> list[float]:
        source = FineTunedModels(tmp_path, replace(settings, limit=60))
        runs = Runs(source, Store(tmp_path / "store"))
        cell = CellSpec(measure="nll", contender=parse_contender("distilled+its"), task="sst2")
        source.fine_tune(runs.jobs(cell)[0].model, lambda work: None)
        return runs.outcomes(cell)[0].probabilities.tolist()

    first = outcome()
    names = sorted(run.provenance.method for run in Store(tmp_path / "store").runs())
    assert names == ["analytic", "base", "base", "distilled", "distilled"]  # on calibration rows and test rows
    monkeypatch.setattr(predict, "run_tokens", lambda *_: pytest.fail("a model ran again"))
    assert outcome() == first
