"""Every declaration, end to end, on a tiny random model and a few made rows; four against a direct computation."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr

from by_hand import slow_ece
from reference import Recorded
from uatlite.errors import DataError, ModelError
from uatlite.lab.paper.declaration import NAMES
from uatlite.lab.paper.write import PAGE, write_reproduction
from uatlite.model.load import load_checkpoint
from uatlite.model.weights import FILE, flat_parameters
from uatlite.passes.config import UATConfig
from uatlite.passes.engine import sample
from uatlite.predictive import predict
from uatlite.text.perturb import perturb
from uatlite.text.tasks import load


def test_every_table_is_filled_and_written(whole):
    assert [table.declaration.name for table in whole.tables] == list(NAMES)
    page = (whole.directory / PAGE).read_text(encoding="utf-8")
    clinc = (whole.directory / "tables" / "clinc.md").read_text(encoding="utf-8")
    assert "<small>published 0.965" in page  # numbers of others are not called the paper's
    assert "|  | published | 0.965 |" in clinc
    assert "| paper |" not in clinc
    for table in whole.tables:
        name = table.declaration.name
        few = ["21 rows are too few to know what is in scope; calibrate on 50 rows or more."]
        assert table.reasons == (few if name == "clinc" else []), name
        assert f'id="{name}"' in page
        for ending in ("md", "tex", "csv", "json"):
            assert (whole.directory / "tables" / f"{name}.{ending}").stat().st_size > 0
        drawn = [(whole.directory / "figures" / f"{name}.{ending}").is_file() for ending in ("png", "svg")]
        assert drawn == [table.declaration.figure is not None] * 2, name


def test_what_the_files_say_is_what_was_measured(whole):
    values = json.loads((whole.directory / "tables" / "shift.json").read_text(encoding="utf-8"))
    rows = csv.DictReader((whole.directory / "tables" / "shift.csv").read_text(encoding="utf-8").splitlines())
    cell = whole.cell("shift", 0, "uat", "ood-ece")
    found, line = (
        next(record for record in records if (record["row"], record["column"]) == ("uat", "ood-ece"))
        for records in (values["cells"], rows)
    )
    assert found["mean"] == float(line["mean"]) == cell.measurement.mean
    assert (found["paper"], found["seeds"]) == (0.0402, 1)
    assert math.isclose(found["difference"], cell.measurement.mean - 0.0402)


def test_progress_adds_up(whole):
    assert list(whole.display.stages) == list(NAMES)
    assert 0 < whole.display.work == pytest.approx(whole.display.total)


def test_the_five_members_of_an_ensemble_are_the_plain_models_of_the_first_seeds(whole):
    (ensemble,) = (whole.directory / "models").glob("sst2-ensemble-0-*")
    record = json.loads((ensemble / "uatlite-training.json").read_text(encoding="utf-8"))
    assert record["run"]["method"] == "ensemble:members=5 of seeds 0, 1, 2, 3, 4"
    weights = load_file(ensemble / FILE)["members"]
    for seed in range(1, 5):
        assert torch.equal(weights[seed - 1], flat_parameters(plain_model(whole, "sst2", seed).model))


# ── against a direct computation ──


def plain_model(whole, task, seed=0, kind="one"):
    return load_checkpoint(next((whole.directory / "models").glob(f"{task}-base-{seed}-*")), kind=kind, device="cpu")


def logits_of(checkpoint, dataset, config):
    """Logits (passes, rows, classes) of the engine, one text at a time, and U of each text's tokens."""
    logits, uncertainty = [], []
    for text in dataset.texts:
        pair = text if isinstance(text, tuple) else (text, None)
        encoded = checkpoint.tokenizer(*pair, truncation=True, max_length=32, return_tensors="pt")
        found = sample(checkpoint.model, encoded, config)
        logits.append(found.logits)
        uncertainty.append(found.token_uncertainty[0])
    return torch.cat(logits, dim=1).numpy(), uncertainty


def ece_of(probabilities, labels):
    return slow_ece(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)


def test_shift_is_the_ece_of_both_sets_for_each_seed(whole, settings):
    table = write_reproduction(["shift"], whole.directory, replace(settings, seeds=2), Recorded())[0]
    for column, task in (("id-ece", "mnli"), ("ood-ece", "mnli-mismatched")):
        dataset = load(task, "test", settings.data_dir, limit=settings.limit)
        found = []
        for seed in (0, 1):
            logits, _ = logits_of(plain_model(whole, "mnli", seed), dataset, UATConfig(seed=seed))
            found.append(ece_of(predict(logits).probabilities, np.array(dataset.gold)))
        measured = table.grids[0].cells["uat", column].measurement
        assert measured is not None
        assert measured.values == pytest.approx(found, abs=1e-5)


def test_sensitivity_at_three_passes_is_a_run_of_three(whole, settings):
    dataset = load("squad2", "test", settings.data_dir, limit=settings.limit)
    config = UATConfig(samples=3, penalty=1.0)
    logits, _ = logits_of(plain_model(whole, "squad2"), dataset, config)
    found = ece_of(predict(logits).probabilities, np.array(dataset.gold))
    cell = whole.table("sensitivity").grids[2].cells["3", "ece"]
    assert cell.measurement.mean == pytest.approx(found, abs=1e-5)


def test_negation_changes_confidence_by_what_it_does_row_by_row(whole, settings):
    dataset = load("mnli", "test", settings.data_dir, limit=settings.limit)
    model = plain_model(whole, "mnli")
    before, after = (predict(logits_of(model, one, UATConfig())[0]) for one in (dataset, perturb(dataset, "negation")))
    table = whole.table("negation").grids[0].cells
    changes = {"confidence": after.confidence - before.confidence, "margin": after.margin - before.margin}
    for column, change in changes.items():
        assert table["uat", column].measurement.mean == pytest.approx(change.mean(), abs=1e-5)


def test_correlation_is_that_of_all_tokens(whole, settings):
    dataset = load("mnli", "test", settings.data_dir, limit=settings.limit)
    logits, uncertainty = logits_of(plain_model(whole, "mnli"), dataset, UATConfig())
    information = predict(logits).mutual_information
    spread = np.concatenate([[one] * len(u) for one, u in zip(information, uncertainty, strict=True)])
    expected = spearmanr(torch.cat(uncertainty).numpy(), spread).statistic
    assert whole.cell("correlation", 0, "mnli", "mi-s").measurement.mean == pytest.approx(expected, abs=1e-3)


# ── interrupted, repeated, incomplete ──


def test_a_second_run_makes_nothing_anew(whole, settings, monkeypatch):
    names = [name for name in NAMES if name != "shift"]  # which another test has made with two seeds since
    before = {path: path.read_bytes() for path in ((whole.directory / "tables" / f"{name}.json") for name in names)}
    monkeypatch.setattr("uatlite.lab.train.fine_tune._tuned", lambda *_: pytest.fail("a model was trained again"))
    monkeypatch.setattr("uatlite.lab.evaluate.runs.StoreJob.compute", lambda *_: pytest.fail("rows predicted again"))
    monkeypatch.setattr(np, "savez", lambda *_, **__: pytest.fail("an array was computed again"))
    write_reproduction(names, whole.directory, settings, Recorded())
    assert {path: path.read_bytes() for path in before} == before


class Stopped(Exception):
    """What ends a run early."""


def test_a_run_that_was_stopped_goes_on(settings, tmp_path):
    class Stopping(Recorded):
        def advance(self, amount):
            super().advance(amount)
            if self.work > self.total / 2:
                raise Stopped

    with pytest.raises(Stopped):
        write_reproduction(["characters"], tmp_path / "stopped", settings, Stopping())
    pieces = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").rglob("*.parquet")}
    models = {path: path.stat().st_mtime_ns for path in (tmp_path / "stopped").rglob("uatlite-training.json")}
    assert pieces
    assert models
    write_reproduction(["characters"], tmp_path / "stopped", settings, Recorded())
    write_reproduction(["characters"], tmp_path / "whole", settings, Recorded())
    assert all(path.stat().st_mtime_ns == then for path, then in {**pieces, **models}.items())
    texts = [(tmp_path / name / "tables" / "characters.json").read_text() for name in ("stopped", "whole")]
    assert texts[0] == texts[1]


def test_what_is_missing_is_said_and_the_rest_is_made(whole, settings, data_dir, tmp_path):
    for name in ("mnli", "sst2", "anli", "snli", "imdb"):  # but not hans
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / name).symlink_to(data_dir / name)
    display = Recorded()
    changed = replace(settings, data_dir=tmp_path / "data")
    ood, hans = write_reproduction(["selective-ood", "hans"], whole.directory, changed, display)
    (line,) = [line for line in display.said if line.startswith("missing:")]  # before anything is trained
    assert re.match(r"missing: \d+ cells of selective-ood, 45 cells of hans: needs hans: hans/test is not in", line)
    assert [line for line in display.said if line.startswith("sst2: trained on 32 rows of sst2/train.jsonl.gz")]
    assert hans.skipped
    assert "hans/test" in hans.reasons[0]
    assert not ood.skipped
    assert ood.grids[0].filled == 0
    assert ood.grids[1].filled
    assert "<li>missing: needs hans" in (whole.directory / PAGE).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"data_dir": Path("nowhere")}, DataError, "The data directory nowhere does not exist"),
        ({"backbone": "./nowhere"}, ModelError, r"\./nowhere is not a directory"),
        ({"others": ("./nowhere",)}, ModelError, r"\./nowhere is not a directory"),
    ],
)
def test_a_directory_that_is_not_there_is_an_error_before_anything_is_made(given, error, says, settings, tmp_path):
    with pytest.raises(error, match=says):
        write_reproduction(["backbones"], tmp_path, replace(settings, **given), Recorded())
    assert not list(tmp_path.iterdir())


def test_cost_is_timed_without_predictions(settings, tmp_path):
    (table,) = write_reproduction(["latency"], tmp_path, settings, Recorded())
    assert table.grids[0].filled == len(table.grids[0].cells)
    assert not (tmp_path / "store").exists()
