"""Which model a method runs on, right logits in the right rows, and resuming after any kind of end."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from uatlite.errors import ConfigurationError, InputError, ModelError
from uatlite.lab.evaluate import runs as running
from uatlite.lab.evaluate.cells import CellSpec
from uatlite.lab.evaluate.models import GivenModels
from uatlite.lab.evaluate.plan import Contender, Plan, SetChoice, parse_contenders
from uatlite.lab.evaluate.runs import StoreJob
from uatlite.lab.evaluate.store import Store
from uatlite.methods.registry import METHODS, parse_method
from uatlite.methods.sampling import LayerVariance
from uatlite.model.load import Checkpoint
from uatlite.model.weights import MethodWeights, attach
from uatlite.text.schema import find_task
from uatlite.values import Choices, Dataset, Example


@pytest.mark.parametrize("name", ["base", "uat", "analytic"])
def test_stored_logits_are_those_of_each_text_alone(tmp_path, prepared, name):
    predictions = StoreJob(prepared, METHODS[name].seeded(3)).fill(Store(tmp_path)).read()
    assert predictions.ids == tuple(prepared.dataset.ids)
    assert predictions.labels.tolist() == prepared.dataset.gold
    checkpoint, method = prepared.checkpoint, METHODS[name].seeded(3)
    for row in (0, 17, 79):
        encoded = checkpoint.tokenizer(prepared.dataset.texts[row], return_tensors="pt")
        alone = method.run(checkpoint.model, encoded)
        np.testing.assert_allclose(predictions.logits[:, row], alone.logits[:, 0].numpy(), atol=2e-5)
        if alone.variance is not None:
            assert predictions.passes.margin_variance is not None
            np.testing.assert_allclose(predictions.passes.margin_variance[row], alone.variance[0, 0], rtol=1e-3)


def test_layers_are_chosen_by_the_stored_variance_of_each(tmp_path, prepared):
    stored = StoreJob(prepared, LayerVariance()).fill(Store(tmp_path)).read().passes.given_variance
    encoded = prepared.checkpoint.tokenizer(prepared.dataset.texts[17], return_tensors="pt")
    alone = LayerVariance().run(prepared.checkpoint.model, encoded).variance
    assert stored.shape == (len(prepared.dataset), 2)
    np.testing.assert_allclose(stored[17], alone[0].numpy(), rtol=1e-3)


def test_provenance_says_where_the_numbers_come_from(tmp_path, prepared):
    texts = ["w1 w2", " ".join(["w3"] * 60)]
    dataset = Dataset(
        "made", "test", prepared.alignment.labels, tuple(Example(t, t, 1) for t in texts), source="two rows"
    )
    swapped = replace(prepared, dataset=dataset, perturbation="swap")
    provenance = StoreJob(swapped, parse_method("uat:samples=2").seeded(5)).fill(Store(tmp_path)).provenance
    assert provenance.recipe.model == prepared.checkpoint.hash
    assert provenance.recipe.data == dataset.fingerprint
    assert provenance.recipe.seed == 5
    assert (provenance.method, provenance.passes, provenance.rows) == ("uat:samples=2", 2, 2)
    assert (provenance.truncated_texts, provenance.truncated_tokens) == (1, 62 - 40)
    assert provenance.set_name == "made+swap/test"
    assert set(provenance.versions) == {"uatlite", "torch", "transformers", "numpy"}


def counted(monkeypatch, most=-1):
    """The rows of each piece that a model is run on from now on; after so many pieces it is interrupted."""
    rows = []
    run = running.run_tokens

    def run_tokens(model, method, tokens, places):
        if len(rows) == most:
            raise KeyboardInterrupt
        rows.append(len(places))
        return run(model, method, tokens, places)

    monkeypatch.setattr(running, "run_tokens", run_tokens)
    return rows


def test_nothing_is_computed_twice(tmp_path, prepared, monkeypatch):
    store, job, advanced = Store(tmp_path), StoreJob(prepared, METHODS["base"]), list[int]()
    with monkeypatch.context() as patch:
        counted(patch, most=2)
        with pytest.raises(KeyboardInterrupt):
            job.fill(store, advanced.append)
    assert advanced == [16, 16]
    rows = counted(monkeypatch)
    run = job.fill(store, advanced.append)
    assert rows == advanced[2:] == [16] * 3
    before = run.read().logits
    # base has no seed: every seed is the same run
    assert StoreJob(prepared, METHODS["base"].seeded(1)).fill(store, advanced.append) == run
    assert len(rows) == 3
    assert len(advanced) == 5
    # a broken piece alone is computed anew
    (run.directory / "_complete.json").unlink()
    run.piece_path(1).write_bytes(b"PAR1")
    assert job.fill(store).read().logits.tolist() == before.tolist()
    assert rows == [16] * 4


def test_questions_need_an_option_for_each_label(prepared):
    question = Example("q", Choices("w1", ("w2", "w3")), 0)
    dataset = Dataset("quiz", "test", ("A", "B", "C"), (question,), source="one question")
    with pytest.raises(InputError, match=r"questions with \[2\] options.*its 3 labels"):
        _ = replace(prepared, dataset=dataset).tokens


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import torch; torch.set_num_threads(1)
from conftest import make_dataset, LABELS
from uatlite.model.load import load_checkpoint
from uatlite.text.labels import Alignment
from uatlite.lab.evaluate.runs import Prepared, StoreJob
from uatlite.lab.evaluate.store import Store
from uatlite.methods import METHODS

def wait(rows):
    time.sleep(0.1)

alignment = Alignment(((0,), (1,), (2,)), LABELS, "")
prepared = Prepared(load_checkpoint(Path(sys.argv[1]), device="cpu"), make_dataset(400), alignment, "made")
StoreJob(prepared, METHODS["uat"]).fill(Store(sys.argv[2]), wait)
"""


def test_interrupted_and_killed_a_run_goes_on_where_it_stopped(tmp_path, checkpoint_dir, prepared, dataset):
    store = tmp_path / "store"
    for number, pieces in ((signal.SIGINT, 3), (signal.SIGKILL, 6)):
        arguments, deadline = [str(checkpoint_dir), str(store), str(Path(__file__).parent)], time.monotonic() + 60
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stderr=subprocess.DEVNULL)
        while len(list(store.glob("run=*/piece-*.parquet"))) < pieces:
            assert time.monotonic() < deadline, "the run did not get that far"
            time.sleep(0.02)
        os.kill(process.pid, number)
        assert process.wait(30) != 0
    [run] = Store(store).runs()
    assert not run.complete
    stamps = {path.name: path.stat().st_mtime_ns for path in run.directory.glob("piece-*.parquet")}
    assert 6 <= len(stamps) < run.pieces
    job = StoreJob(replace(prepared, dataset=dataset(400)), METHODS["uat"])
    assert job.fill(Store(store)) == run
    assert run.complete
    unchanged = {name: (run.directory / name).stat().st_mtime_ns for name in stamps}
    assert unchanged == stamps, "a finished piece was computed again"
    whole = job.fill(Store(tmp_path / "other")).read()
    assert run.read().ids == whole.ids == tuple(f"test-{row}" for row in range(400))
    np.testing.assert_array_equal(run.read().logits, whole.logits)


@pytest.fixture
def runs_on(tiny, tokenizer):
    """`runs_on({"DIR": "METHOD it was trained for, or plain"}, methods)`: method -> the model that it runs on."""

    def checkpoint(name, method):
        model = tiny("bert")
        if method != "plain":
            attach(model, MethodWeights(method, {"some": torch.zeros(1)}))
        return Checkpoint(name, model, tokenizer)

    def names(models, *methods):
        plan = Plan(parse_contenders("base"), SetChoice(find_task("sst2")))
        source = GivenModels([checkpoint(*model) for model in models.items()], plan)
        cells = {method: CellSpec(measure="", contender=Contender(parse_method(method))) for method in methods}
        return {method: source.load(source.models(cell)[0][0]).name for method, cell in cells.items()}

    return names


def test_each_method_runs_on_the_model_that_was_trained_for_it_or_the_plain_one(runs_on):
    models = {"swag-dir": "swag", "plain-dir": "plain", "ens-dir": "ensemble"}
    names = runs_on(models, "base", "uat", "swag:samples=3", "ensemble")
    assert names == {"base": "plain-dir", "uat": "plain-dir", "swag:samples=3": "swag-dir", "ensemble": "ens-dir"}
    assert set(runs_on({"swag-dir": "swag"}, "base", "swag").values()) == {"swag-dir"}
    with pytest.raises(ModelError, match=r"ensemble needs a model .* trained for swag.*train --method ensemble"):
        runs_on({"plain-dir": "plain", "swag-dir": "swag"}, "ensemble")
    with pytest.raises(ConfigurationError, match="a and b are both trained for swag"):
        runs_on({"a": "swag", "b": "swag"})
    with pytest.raises(ConfigurationError, match="a, b are all plain models"):
        runs_on({"a": "plain", "b": "plain"})
