"""Arrays on disk: computed once, and again where their file is broken."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedModel

from uatlite.classifier.run import run_tokens
from uatlite.classifier.runtime import Outputs
from uatlite.lab.paper import artifacts as module
from uatlite.lab.paper.artifacts import Arrays, Artifacts
from uatlite.lab.paper.declaration import CellSpec
from uatlite.lab.paper.models import FineTuning
from uatlite.lab.paper.settings import ReproductionSettings as Settings
from uatlite.methods.method import Method
from uatlite.methods.registry import learned_arrays
from uatlite.model.tokens import Tokens
from uatlite.values import Floats


def test_arrays_are_computed_once_and_again_where_their_file_is_broken(settings: Settings, tmp_path: Path) -> None:
    fit, computed = FineTuning("backbone", "sst2", "base", 0), []

    def compute() -> Arrays:
        computed.append(True)
        return {"values": np.arange(3.0)}

    def read(text: str = "a") -> list[float]:
        return Artifacts(tmp_path, settings).cached("numbers", fit, [fit, text], compute)["values"].tolist()

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
    artifacts = Artifacts(tmp_path, replace(settings, seeds=3, trained_seeds=2))
    counts = {name: len(artifacts.fine_tunings(CellSpec(measure="ece", contender=name))) for name in ("uat", "sngp")}
    assert counts == {"uat": 3, "sngp": 2}
    (one,) = artifacts.fine_tunings(CellSpec(measure="ece", contender="sngp", seeds=1))  # the table's own bound holds
    assert one.seed == 0


def test_what_a_method_learns_from_another_is_computed_once(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = run_tokens, list[str]()

    def counted(model: PreTrainedModel, method: Method, tokens: Tokens) -> Outputs:
        asked.append(method.name)
        return run(model, method, tokens)

    monkeypatch.setattr(module, "run_tokens", counted)

    def read_out() -> Floats:
        artifacts = Artifacts(tmp_path, replace(settings, limit=60))
        (job,) = artifacts.jobs(CellSpec(measure="nll", contender="distilled", task="sst2"))
        artifacts.models.fine_tune(job.fit, lambda work: None)
        ((_, method, _),) = artifacts.store_jobs([job])
        return learned_arrays(method)["read_out.weights"]

    first = read_out()
    assert sorted(asked) == ["analytic", "base"]
    assert len(first) > 10
    np.testing.assert_array_equal(read_out(), first)
    assert sorted(asked) == ["analytic", "base"]
